// A page that is fetched when it is first opened, so that the others come sooner.
import {signal} from '@preact/signals';
import type {JSX} from 'preact';
import {useEffect} from 'preact/hooks';
import {ApiError, good} from '../state/api';
import {sleep} from '../state/files';
import {Loading, Trouble} from './basics';

const kEvery = 2000;  // milliseconds
const kOften = 60_000;
const kLast = 'lockstep reload';

/** Loads the page anew once lockstepd answers: what could not be fetched is not fetched again otherwise. Where that does not help
 *  it is not done over and over. */
function NotThere(): JSX.Element {
  useEffect(() => {
    const stop = new AbortController();
    void (async () => {
      for (let away = false; !stop.signal.aborted; away = true) {
        await sleep(kEvery);
        if (stop.signal.aborted || !await good('healthz', stop.signal).then(() => true, () => false)) continue;
        if (!away && Date.now() - Number(sessionStorage.getItem(kLast)) < kOften) return;
        sessionStorage.setItem(kLast, String(Date.now()));
        location.reload();
        return;
      }
    })();
    return () => stop.abort();
  }, []);
  return <div class="page"><Trouble error={new ApiError(0, undefined, 'lockstepd did not send this page')} again={() => location.reload()} /></div>;
}

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
    if (failed) return <NotThere />;
    if (!asked) queueMicrotask(ask);
    return <div class="page"><Loading what="the page" /></div>;
  };
}
