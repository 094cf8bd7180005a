// What is around every page: where one can go, whether it is live, who is signed in, what keys do.
import {signal, useSignal} from '@preact/signals';
import type {ComponentChildren, JSX} from 'preact';
import {useEffect, useLayoutEffect, useRef} from 'preact/hooks';
import {timeOfDay} from '../lib/format';
import type {Job, Page} from '../types';
import {get, parameters, reach} from '../state/api';
import {cut, kInstead, live, refusal} from '../state/live';
import {theme} from '../state/prefs';
import {go, jobHref, place, query, setQuery} from '../state/router';
import {identity, maySubmit, signOut} from '../state/session';
import {Dialog, Notices} from './basics';
import {Menu} from './menu';

export function Logo(): JSX.Element {
  return <svg class="logo" viewBox="0 0 32 32" width="26" height="26" aria-hidden="true"><rect width="32" height="32" rx="7" class="logo-ground" />
    <path d="M7 9h18M7 16h18" class="logo-line" /><path d="M7 23h11" class="logo-late" /></svg>;
}

export const kNav: [string, string][] = [['jobs', 'Jobs'], ['queue', 'Queue'], ['nodes', 'Nodes'], ['compare', 'Compare'], ['system', 'System']];
/** Of a job. */
export const kTabs: [string, string][] = [['', 'Overview'], ['ranks', 'Ranks'], ['gpus', 'GPUs'], ['rendezvous', 'Rendezvous'], ['logs', 'Logs'], ['events', 'Events'], ['evidence', 'Evidence'], ['profiles', 'Profiles'], ['config', 'Script & config']];
export const palette = signal(false);
const help = signal(false);

function LiveSign(): JSX.Element {
  const {ok, since} = reach.value;
  const state = !ok ? 'off' : live.value === 'live' ? 'on' : live.value === 'idle' ? 'idle' : 'wait';
  const text = !ok ? `no answer since ${timeOfDay(since)}` : cut.value ? `every ${kInstead} s` : state === 'on' ? 'live' : state === 'idle' ? 'idle' : 'connecting';
  if (state === 'idle') return <span />;
  return <span class={`live live-${state}`} title={state === 'on' ? 'Changes are shown as they happen' : undefined}><span class="live-dot" aria-hidden="true" /><span class="live-text">{text}</span></span>;
}

function Who(): JSX.Element {
  const open = useSignal(false);
  const who = identity.value!;
  return <span class="menu-box"><button type="button" class="who" aria-haspopup="true" aria-expanded={open.value} onClick={() => { open.value = !open.value; }}>
    <bdi>{who.user}</bdi>{who.role !== 'user' && <span class="tag">{who.role}</span>}</button>
    {open.value && <Menu close={() => { open.value = false; }} items={[
      ...(['auto', 'light', 'dark'] as const).map((one) => ({label: `${theme.value === one ? '✓ ' : ''}${one === 'auto' ? 'As the system' : one === 'light' ? 'Light' : 'Dark'}`, act: () => { theme.value = one; }})),
      {label: 'Keys', act: () => { help.value = true; }},
      {label: 'Sign out', act: () => void signOut()},
    ]} />}</span>;
}

export function Shell({children}: {children: ComponentChildren}): JSX.Element {
  const section = place.value.path[0] ?? 'jobs';
  useKeys();
  return <>
    <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById('main')?.focus(); }}>Skip to the content</a>
    <header class="top">
      <a class="brand" href="#/jobs" aria-label="Lockstep"><Logo /><span>Lockstep</span></a>
      <nav class="nav" aria-label="Pages">{kNav.map(([key, title]) => <a key={key} href={`#/${key}`} aria-current={section === key ? 'page' : undefined}>{title}</a>)}</nav>
      <span class="grow" />
      <button type="button" class="find" onClick={() => { palette.value = true; }}><span>Go to…</span><kbd>Ctrl K</kbd></button>
      <LiveSign />
      {maySubmit.value && <a class="button solid submit" href="#/submit">Submit</a>}
      <Who />
    </header>
    {!reach.value.ok && <p class="offline" role="alert">lockstepd does not answer. What you see is from {timeOfDay(reach.value.since)}; it goes on by itself as soon as it is back.</p>}
    {reach.value.ok && cut.value && <p class="offline" role="status">Live updates are cut off: {refusal.value ? `lockstepd refuses them: ${refusal.value}` : <>lockstepd answers, but something on the way, such as a proxy or an extension of this browser, holds back <code>v1/events</code></>}. This page asks every {kInstead} seconds instead.</p>}
    <main id="main" tabIndex={-1}>{children}</main>
    <nav class="bottom" aria-label="Pages, small screen">{kNav.map(([key, title]) => <a key={key} href={`#/${key}`} aria-current={section === key ? 'page' : undefined}>{title}</a>)}</nav>
    <Notices /><Palette /><Help />
  </>;
}

// --- command palette --------------------------------------------------------------------------------------------------
interface Choice {label: string; note?: string; job?: string; run: () => void}

function Palette(): JSX.Element | null {
  const text = useSignal('');
  const at = useSignal(0);
  const jobs = useSignal<Job[]>([]);
  const asking = useSignal(0);
  const hits = useSignal<{words: string; ids: string[]}>({words: '', ids: []});  // by what is not shown, too
  const entered = useSignal(false);  // before there was anything to choose from
  const list = useRef<HTMLUListElement>(null);
  const open = palette.value;
  const begin = () => {
    let on = true;
    asking.value = asking.peek() + 1;
    return () => {
      if (on) asking.value = asking.peek() - 1;
      on = false;
    };
  };
  // Before the first key that is meant for it.
  useLayoutEffect(() => {
    if (!open) return;
    text.value = '';
    at.value = 0;
    entered.value = false;
  }, [open]);
  useEffect(() => {
    if (!open) return;
    const done = begin();
    void get<Page<Job>>('v1/jobs?limit=200&fields=id,name,user,state').then(({items}) => { jobs.value = [...items, ...jobs.value.filter((one) => !items.some(({id}) => id === one.id))].slice(0, 400); }, () => undefined).then(done);
    return done;
  }, [open]);
  // The newest are here; lockstepd looks through all others for what is typed.
  useEffect(() => {
    const words = text.value.trim();
    if (!open || words.length < 2) return;
    const stop = new AbortController();
    const done = begin();
    const timer = setTimeout(() => void get<Page<Job>>(`v1/jobs${parameters({limit: 40, fields: 'id,name,user,state', q: words})}`, stop.signal).then(({items}) => {
      hits.value = {words, ids: items.map(({id}) => id)};
      jobs.value = [...jobs.value, ...items.filter((one) => !jobs.value.some(({id}) => id === one.id))];
    }, () => undefined).then(done), 250);
    return () => {
      clearTimeout(timer);
      stop.abort();
      done();
    };
  }, [open, text.value]);
  const first = useRef<() => void>(() => undefined);
  useEffect(() => {
    if (entered.peek()) first.current();
  }, [asking.value, jobs.value, hits.value]);
  useEffect(() => {
    list.current?.children[at.value]?.scrollIntoView({block: 'nearest'});
  }, [at.value]);
  if (!open) return null;
  const id = place.value.path[0] === 'jobs' ? place.value.path[1] : undefined;
  const rank = /^(?:rank|r)\s*(\d+)$/i.exec(text.value.trim());
  const all: Choice[] = [
    ...(id && rank ? [{label: `Rank ${rank[1]}`, note: 'of this job', run: () => { location.hash = jobHref(id, `ranks/${rank[1]}`); }}] : []),
    ...(id ? kTabs.map(([page, title]) => ({label: title, note: 'of this job', run: () => { location.hash = jobHref(id, page); }})) : []),
    ...kNav.map(([key, title]) => ({label: title, note: 'page', run: () => go([key])})),
    ...(maySubmit.value ? [{label: 'Submit a job', note: 'page', run: () => go(['submit'])}] : []),
    ...(['light', 'dark', 'auto'] as const).map((one) => ({label: `Colours: ${one}`, note: 'look', run: () => { theme.value = one; }})),
    ...jobs.value.map((job) => ({label: job.name, note: `${job.state} · ${job.user} · ${job.id}`, job: job.id, run: () => { location.hash = jobHref(job.id); }})),
  ];
  const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter((choice) => rank ? true : words.every((word) => `${choice.label} ${choice.note}`.toLowerCase().includes(word))
    || hits.value.words === text.value.trim() && hits.value.ids.includes(choice.job ?? '')).slice(0, 40);
  const choose = (choice: Choice | undefined) => {
    entered.value = !choice && asking.value > 0;
    if (!choice) return;
    palette.value = false;
    choice.run();
  };
  first.current = () => choose(found[0]);
  return <Dialog open close={() => { palette.value = false; }} title="Go to">
    <input class="palette-input" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant={found.length ? `palette-${at.value}` : undefined} autofocus placeholder="A page, a job, rank 12" aria-label="A page, a job, rank 12"
      value={text.value} onInput={(event) => { text.value = event.currentTarget.value; at.value = 0; entered.value = false; }}
      onKeyDown={(event) => {
        if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
          event.preventDefault();
          at.value = (at.value + (event.key === 'ArrowDown' ? 1 : found.length - 1)) % Math.max(1, found.length);
        } else if (event.key === 'Enter') choose(found[at.value]);
      }} />
    <ul class="palette-list" id="palette-list" role="listbox" aria-label="Where to go" ref={list}>
      {found.map((choice, i) => <li key={i} id={`palette-${i}`} role="option" aria-selected={i === at.value} onClick={() => choose(choice)}><bdi>{choice.label}</bdi><span class="quiet"><bdi>{choice.note}</bdi></span></li>)}
    </ul>{!found.length && <p class="quiet" role="status">{entered.value ? 'Goes there once lockstepd has answered…' : asking.value ? 'Asking lockstepd…' : 'Nothing is called that.'}</p>}</Dialog>;
}

// --- keys -------------------------------------------------------------------------------------------------------------
const kKeys: [string, string][] = [
  ['Ctrl K', 'go to a page, a job, a rank'], ['/', 'filter or search on this page'], ['g j', 'jobs'], ['g q', 'queue'], ['g n', 'nodes'], ['g c', 'compare'], ['g s', 'system'], ['n', 'submit a job'],
  ['j  k', 'next and previous row; Enter opens it'], ['x', 'horizontal axis: step, time, since start'], ['l', 'logarithmic y'], ['+  −', 'smoothing'], ['0', 'reset zoom'],
  ['f', 'follow the log'], ['c', 'compare, from a job: with others'], ['o r t e', 'of a job: overview, ranks, logs (text), events'], ['← →', 'on a chart: read its values; Shift for larger steps'], ['?', 'this list'],
];

function Help(): JSX.Element {
  return <Dialog open={help.value} close={() => { help.value = false; }} title="Keys">
    <dl class="keys">{kKeys.map(([key, what]) => <div key={key}><dt>{key.split(' ').filter(Boolean).map((one, i) => <kbd key={i}>{one}</kbd>)}</dt><dd>{what}</dd></div>)}</dl></Dialog>;
}

function moveRow(step: number): void {
  const links = [...document.querySelectorAll<HTMLElement>('#main tr.goes a, #main .row-link')].filter((link, i, all) => i === 0 || link.closest('tr') !== all[i - 1]!.closest('tr'));
  if (!links.length) return;
  const at = links.indexOf(document.activeElement as HTMLElement);
  links[Math.max(0, Math.min(links.length - 1, at < 0 ? 0 : at + step))]!.focus();
}

function useKeys(): void {
  useEffect(() => {
    let before = '';
    const press = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
        event.preventDefault();
        palette.value = !palette.value;
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if ((event.target as Element).closest('input, textarea, select, dialog, [contenteditable]')) return;
      const second = before === 'g';
      before = event.key;
      const id = place.peek().path[0] === 'jobs' ? place.peek().path[1] : undefined;
      const q = query.peek();
      const goes: Record<string, string> = {j: 'jobs', q: 'queue', n: 'nodes', c: 'compare', s: 'system'};
      if (second && goes[event.key]) {
        before = '';
        go([goes[event.key]!]);
        return;
      }
      const smooth = Number(q['smooth']) || 0;
      switch (event.key) {
        case '?': help.value = true; break;
        case '/': {
          const field = document.querySelector<HTMLInputElement>('#main input[type=search]');
          if (field) {
            event.preventDefault();
            field.focus();
            field.select();
          }
          break;
        }
        case 'c': go(['compare'], {jobs: id}); break;
        case 'n': if (maySubmit.peek()) go(['submit']); break;
        case 'j': moveRow(1); break;
        case 'k': moveRow(-1); break;
        case 'x': setQuery({x: q['x'] === 'time' ? 'rel' : q['x'] === 'rel' ? undefined : 'time', zoom: undefined}); break;
        case 'l': setQuery({logy: q['logy'] ? undefined : 1}); break;
        case '+': case '=': setQuery({smooth: Math.min(0.99, Math.round((smooth + 0.1) * 100) / 100)}); break;
        case '-': setQuery({smooth: Math.max(0, Math.round((smooth - 0.1) * 100) / 100) || undefined}); break;
        case '0': setQuery({zoom: undefined}); break;
        case 'o': if (id) location.hash = jobHref(id); break;
        case 'r': if (id) location.hash = jobHref(id, 'ranks'); break;
        case 't': if (id) location.hash = jobHref(id, 'logs'); break;
        case 'e': if (id) location.hash = jobHref(id, 'events'); break;
      }
    };
    document.addEventListener('keydown', press);
    return () => document.removeEventListener('keydown', press);
  }, []);
}

