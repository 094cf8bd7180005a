// Small parts that every page uses.
import {signal, useSignal} from '@preact/signals';
import type {ComponentChildren, JSX} from 'preact';
import {useLayoutEffect, useRef} from 'preact/hooks';
import {copy} from '../lib/export';
import {plural} from '../lib/format';
import {pointText} from '../lib/sweep';
import {clipped} from '../lib/text';
import type {Job} from '../types';
import type {ApiError} from '../state/api';
import type {Asked} from '../state/data';

/** Shape and colour of each state: never colour alone. */
const kStates: Record<string, {sign: string; tone: string}> = {
  accepted: {sign: '○', tone: 'wait'}, queued: {sign: '◷', tone: 'wait'}, held: {sign: '❙❙', tone: 'wait'},
  requeued: {sign: '◷', tone: 'wait'}, starting: {sign: '◔', tone: 'go'}, running: {sign: '▶', tone: 'go'},
  restarting: {sign: '↻', tone: 'warn'}, succeeded: {sign: '✓', tone: 'good'}, failed: {sign: '✕', tone: 'bad'},
  cancelled: {sign: '⊘', tone: 'off'}, waiting: {sign: '○', tone: 'wait'}, ended: {sign: '■', tone: 'off'},
  stopped: {sign: '■', tone: 'off'}, lost: {sign: '✕', tone: 'bad'}, never_started: {sign: '○', tone: 'off'},
  hang: {sign: '❙❙', tone: 'bad'},
};

export function State({state}: {state: string}): JSX.Element {
  const look = kStates[state] ?? {sign: '·', tone: 'off'};
  return <span class={`state tone-${look.tone}`}><span class="sign" aria-hidden="true">{look.sign}</span>{state.replace('_', ' ')}</span>;
}

/** Which of a sweep it is: they share a name. */
export function ofSweep({sweep}: Pick<Job, 'sweep'>): JSX.Element | undefined {
  return sweep && <span class="quiet" title={clipped(pointText(sweep.parameters), 400)}> {sweep.index + 1}/{sweep.size}</span>;
}

/** Text of strangers: hidden characters are written out, direction does not leak, length is bounded. */
export function Safe({text, most = 200}: {text: string; most?: number}): JSX.Element {
  return <bdi title={text.length > most ? clipped(text, 2000) : undefined}>{clipped(text, most)}</bdi>;
}

/** A job's or a node's: cut where there is no room, whole where one points at it. */
export const Name = ({of}: {of?: string}): JSX.Element => <bdi class="name" title={of}>{of}</bdi>;

export function Loading({what, rows = 3}: {what: string; rows?: number}): JSX.Element {
  return <div class="loading" role="status"><span class="away">Loading {what}</span>
    {Array.from({length: rows}, (_, i) => <div key={i} class={`bone bone-${i % 3}`} aria-hidden="true" />)}</div>;
}

export function Empty({title, children}: {title: string; children?: ComponentChildren}): JSX.Element {
  return <div class="empty"><p class="empty-title">{title}</p>{children && <div class="quiet">{children}</div>}</div>;
}

export function Trouble({error, again}: {error: ApiError; again?: () => void}): JSX.Element {
  const title = error.status === 404 ? 'There is no such thing, or it is not yours to see' : error.status === 403 ? 'Not allowed'
    : error.status === 0 ? 'lockstepd does not answer' : 'That did not work';
  return <div class="empty" role="alert"><p class="empty-title">{title}</p>
    <p class="quiet"><Safe text={error.message} most={500} /></p>
    {again && <button type="button" class="button" onClick={again}>Try again</button>}</div>;
}

/** What is shown of something that was asked for: bones, trouble, or itself. */
export function Show<T>({asked, what, again, children}: {asked: Asked<T>; what: string; again?: () => void; children: (value: T) => ComponentChildren}): JSX.Element {
  if (asked.value !== undefined) return <>{children(asked.value)}</>;
  return asked.error ? <Trouble error={asked.error} again={again} /> : <Loading what={what} />;
}

// --- notices --------------------------------------------------------------------------------------------------------
interface Notice {id: number; text: string; bad: boolean}
const notices = signal<Notice[]>([]);
let noticeId = 0;

/** Says for some seconds what happened. */
export function say(text: string, bad = false): void {
  const one = {id: ++noticeId, text, bad};
  notices.value = [...notices.value.slice(-3), one];
  setTimeout(() => {
    notices.value = notices.value.filter((other) => other !== one);
  }, bad ? 12_000 : 5_000);
}

export function Notices(): JSX.Element {
  return <div class="notices" role="status" aria-live="polite">
    {notices.value.map((one) => <div key={one.id} class={`notice ${one.bad ? 'notice-bad' : ''}`}><Safe text={one.text} most={400} /></div>)}</div>;
}

export function CopyButton({text, label, children}: {text: string | (() => string); label: string; children?: ComponentChildren}): JSX.Element {
  return <button type="button" class="link-button" title={label} aria-label={children ? undefined : label} onClick={async () => {
    const what = typeof text === 'string' ? text : text();
    say((await copy(what)) ? `Copied: ${what.slice(0, 120)}` : 'This browser does not let the page copy', false);
  }}>{children ?? <svg class="icon" viewBox="0 0 16 16" width="13" height="13" aria-hidden="true"><rect x="5.5" y="5.5" width="8" height="8" rx="1.5" /><path d="M3.5 10.5h-1v-8h8v1" /></svg>}</button>;
}

// --- dialog -----------------------------------------------------------------------------------------------------------
/** The browser's own modal dialog: it keeps the focus inside. */
export function Dialog({open, close, title, children, wide}: {open: boolean; close: () => void; title: string; children: ComponentChildren; wide?: boolean}): JSX.Element | null {
  const ref = useRef<HTMLDialogElement>(null);
  // At once: a key that comes before anything is drawn is for the dialog, not for the page behind it.
  useLayoutEffect(() => {
    if (!open) return;
    const before = document.activeElement as HTMLElement;
    ref.current!.showModal();
    // Once it is gone, and with it all else that is out of reach beside it: the browser gives nothing back.
    return () => queueMicrotask(() => before.focus());
  }, [open]);
  if (!open) return null;
  return <dialog ref={ref} class={wide ? 'wide' : ''} aria-label={title} onClose={close} onCancel={close}
    onClick={(event) => event.target === ref.current && close()}>
    <div class="dialog-body"><h2>{title}</h2>{children}</div></dialog>;
}

/** A button that asks once. `act` says what happened, or throws. */
export function ActionButton({label, question, detail, act, tone, disabled, why}: {
  label: string; question: string; detail: string; act: () => Promise<string>; tone?: 'bad'; disabled?: boolean; why?: string;
}): JSX.Element {
  const open = useSignal(false);
  const busy = useSignal(false);
  const error = useSignal('');
  return <>
    <button type="button" class={`button ${tone === 'bad' ? 'button-bad' : ''}`} disabled={disabled} title={disabled ? why : undefined}
      onClick={() => { error.value = ''; open.value = true; }}>{label}</button>
    <Dialog open={open.value} close={() => { open.value = false; }} title={question}>
      <p>{detail}</p>
      {error.value && <p class="bad" role="alert"><Safe text={error.value} most={500} /></p>}
      <div class="row end">
        <button type="button" class="button" onClick={() => { open.value = false; }}>Leave it</button>
        <button type="button" class={`button ${tone === 'bad' ? 'button-bad solid' : 'solid'}`} disabled={busy.value} autofocus onClick={async () => {
          busy.value = true;
          error.value = '';
          try {
            say(await act());
            open.value = false;
          } catch (failed) {
            error.value = (failed as Error).message;
          }
          busy.value = false;
        }}>{busy.value ? 'Asking…' : label}</button>
      </div>
    </Dialog></>;
}

/** Is the element near what is seen? Charts far away are not made. Once near it stays. */
export function useNear(margin = '400px'): {ref: {current: HTMLDivElement | null}; near: boolean} {
  const ref = useRef<HTMLDivElement>(null);
  const near = useSignal(false);
  useLayoutEffect(() => {
    if (!ref.current || near.value) return;
    // What is seen already need not wait for the observer's first frame.
    const {top, bottom} = ref.current.getBoundingClientRect();
    if (top < innerHeight && bottom > 0) {
      near.value = true;
      return;
    }
    const watch = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) {
        near.value = true;
        watch.disconnect();
      }
    }, {rootMargin: margin});
    watch.observe(ref.current);
    return () => watch.disconnect();
  }, []);
  return {ref, near: near.value};
}

/** The width of an element, followed. */
export function useWidth(): {ref: {current: HTMLDivElement | null}; width: number} {
  const ref = useRef<HTMLDivElement>(null);
  const width = useSignal(0);
  useLayoutEffect(() => {
    if (!ref.current) return;
    const watch = new ResizeObserver((entries) => {
      const seen = Math.floor(entries[0]!.contentRect.width);
      if (seen > 0) width.value = seen;
    });
    watch.observe(ref.current);
    width.value = ref.current.clientWidth;
    return () => watch.disconnect();
  }, []);
  return {ref, width: width.value};
}

export function Card({title, aside, children, id, class: extra}: {title?: ComponentChildren; aside?: ComponentChildren; children: ComponentChildren; id?: string; class?: string}): JSX.Element {
  return <section class={`card ${extra ?? ''}`} id={id} aria-label={typeof title === 'string' ? title : undefined}>
    {(title || aside) && <header class="card-head">{title && <h2>{title}</h2>}<span class="grow" />{aside}</header>}
    {children}</section>;
}

export function Tile({label, value, note, tone, href}: {label: string; value: ComponentChildren; note?: ComponentChildren; tone?: string; href?: string}): JSX.Element {
  const inside = <><span class="tile-label">{label}</span><span class="tile-value">{value}</span>{note && <span class="tile-note">{note}</span>}</>;
  return href ? <a class={`tile ${tone ? `tile-${tone}` : ''}`} href={href}>{inside}</a> : <div class={`tile ${tone ? `tile-${tone}` : ''}`}>{inside}</div>;
}

/** One of several; what is pressed is marked. */
export function Segments<T extends string>({label, value, options, set}: {label: string; value: T; options: readonly (T | [T, string])[]; set: (value: T) => void}): JSX.Element {
  return <span class="segments" role="group" aria-label={label}>{options.map((option) => {
    const [one, text] = typeof option === 'string' ? [option, option || 'all'] : option;
    return <button key={one} type="button" aria-pressed={value === one} onClick={() => set(one)}>{text}</button>;
  })}</span>;
}

export function Toggle({on, set, children}: {on: boolean; set: (on: boolean) => void; children: ComponentChildren}): JSX.Element {
  return <button type="button" class="toggle" aria-pressed={on} onClick={() => set(!on)}>{children}</button>;
}

/** Of a list that is cut: how much is not there. */
export function More({of, most, what, children}: {of: number; most: number; what: string; children?: ComponentChildren}): JSX.Element | null {
  return of > most ? <p class="quiet">{plural(of - most, `more ${what}`)}{children}</p> : null;
}

/** A short table. A head that begins with > is of numbers, one with ? is left out on a narrow screen; a row's first cell is
 *  its name. `framed`: with a border of its own. */
export function Grid({label, heads, rows, framed}: {label: string; heads: string[]; rows: ComponentChildren[][]; framed?: boolean}): JSX.Element {
  const looks = heads.map((head) => `${head.includes('>') ? 'right num' : ''} ${head.includes('?') ? 'only-wide' : ''}`);
  const table = <table class="table"><caption class="away">{label}</caption><thead><tr>{heads.map((head, i) => <th key={i} scope="col" class={looks[i]}>{head.replace(/^[>?]+/, '')}</th>)}</tr></thead>
    <tbody>{rows.map((row, n) => <tr key={n} class={framed ? 'goes' : ''}>{row.map((cell, i) => (i === 0 ? <th key={i} scope="row">{cell}</th> : <td key={i} class={looks[i]}>{cell}</td>))}</tr>)}</tbody></table>;
  return framed ? <div class="table-wrap" tabIndex={0} role="region" aria-label={label}>{table}</div> : table;
}

export function Code({text, label, most = 200_000}: {text: string; label: string; most?: number}): JSX.Element {
  return <pre class="code" tabIndex={0} aria-label={`${label}, text`} role="region"><Safe text={text} most={most} /></pre>;
}
