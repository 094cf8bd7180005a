// A page that is fetched when it is first opened, so that the others come sooner.
import {signal} from '@preact/signals';
import type {JSX} from 'preact';
import {ApiError} from '../state/api';
import {Loading, Trouble} from './basics';

export function later<Props>(fetch: () => Promise<(props: Props) => JSX.Element>): (props: Props) => JSX.Element {
  const page = signal<{Body?: (props: Props) => JSX.Element; failed?: boolean; asked?: boolean}>({});
  const ask = () => {
    page.value = {asked: true};
    // Not there: lockstepd is away, or another version of it has come since this page was opened.
    void fetch().then((Body) => { page.value = {Body}; }, () => { page.value = {failed: true}; });
  };
  return (props) => {
    const {Body, failed, asked} = page.value;
    if (Body) return <Body {...props as Props & JSX.IntrinsicAttributes} />;
    if (failed) return <div class="page"><Trouble error={new ApiError(0, undefined, 'lockstepd did not send this page')} again={() => location.reload()} /></div>;
    if (!asked) queueMicrotask(ask);
    return <div class="page"><Loading what="the page" /></div>;
  };
}
