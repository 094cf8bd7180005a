// What ranks print: the tail of one as it comes, and a search over all.
import {useSignal} from '@preact/signals';
import type {JSX} from 'preact';
import {useEffect, useLayoutEffect, useMemo, useRef} from 'preact/hooks';
import {bytes, count, plural} from '../lib/format';
import {ansi, clipped, levelOf} from '../lib/text';
import {searchPattern, searchQuery} from '../lib/search';
import {download, fileName} from '../lib/export';
import type {Values} from '../lib/paths';
import type {Job} from '../types';
import {ApiError, get, parameters} from '../state/api';
import {isOver, throttled, useWork} from '../state/data';
import {kSlice, sleep, slice} from '../state/files';
import {followLog} from '../state/follow';
import {formatPlace, query, setQuery} from '../state/router';
import {indexOf, Tail, windowOf, type Line, type Place} from '../state/tail';
import {Card, Empty, Safe, Segments, Show, Toggle} from '../ui/basics';
import {useSaving} from '../ui/save';
import type {JobPageProps} from './job';

const kShown = 2_000;  // characters of a line, until it is asked for whole
const kRow = 19;
const kBefore = 400;  // bytes before what was searched for

/** A line with its colours; what a search found is marked. */
function LogLine({line, wrap, found}: {line: Line; wrap: boolean; found?: RegExp}): JSX.Element {
  const long = line.text.length > kShown;
  const spans = useMemo(() => ansi(long ? line.text.slice(0, kShown) : line.text), [line.text]);
  const level = levelOf(line.text);
  return <div data-n={line.number} class={`log-line ${level !== 'plain' ? `log-${level}` : ''} ${wrap ? 'log-wrap' : ''}`}>{spans.map((span, i) => <span key={i} class={span.style || undefined}>{found ? marked(span.text, found) : span.text}</span>)}
    {long && <button type="button" class="link-button" onClick={() => download(`line-${line.number}.txt`, line.text)}>… {bytes(line.text.length - kShown)} more, as a file</button>}</div>;
}

function marked(text: string, pattern: RegExp): (string | JSX.Element)[] {
  const out: (string | JSX.Element)[] = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    if (match[0] === '') continue;
    out.push(text.slice(at, match.index), <mark key={match.index}>{match[0]}</mark>);
    at = match.index + match[0].length;
    if (out.length > 200) break;
  }
  out.push(text.slice(at));
  return out;
}

const logPath = (id: string, wanted: Values) => `v1/jobs/${id}/logs${parameters(wanted)}`;

/** The lines of a rank's log: read from its tail or from the byte `begin` on, further while it is followed, to its end when the
 *  job is over. What is shown stays whatever becomes of the job. */
function useTail(job: Job, rank: number, tail: number, begin: number | undefined, wanted: boolean | undefined) {
  const kept = useRef(new Tail());
  const tick = useSignal(0);
  const error = useSignal<ApiError | undefined>(undefined);
  const loaded = useSignal(false);
  const start = useSignal(0);  // bytes before what was read
  const instead = useSignal<string | null>(null);
  const mode = isOver(job) ? 'over' : wanted ? 'live' : 'still';
  useEffect(() => {
    // Of one slice every line stays: the first are those that somebody came for.
    kept.current = new Tail(!!begin, begin === undefined ? undefined : {lines: kSlice, line: kSlice, characters: kSlice});
    loaded.value = false;
    error.value = undefined;
  }, [job.id, rank, tail, begin]);
  useEffect(() => {
    const stop = new AbortController();
    const draw = throttled(() => { tick.value++; }, 100);
    const add = (bytes: Uint8Array, next: number) => {
      if (stop.signal.aborted) return;  // another one reads on
      kept.current.push(bytes, next);
      draw();
    };
    const run = async () => {
      for (let failures = 0; !stop.signal.aborted;) {
        let pause = 5000;
        try {
          const at = kept.current.next;
          if (at !== undefined && (mode === 'still' || begin !== undefined)) return;
          // Who has not begun yet has no log; it is asked for again.
          const there = await slice(logPath(job.id, {rank, ...(at !== undefined ? {offset: at} : begin !== undefined ? {offset: begin} : {tail})}), stop.signal).catch((failed: ApiError) => {
            if (mode !== 'live' || failed.status !== 404) throw failed;
          });
          if (stop.signal.aborted) return;
          error.value = undefined;
          failures = 0;
          if (there && at !== undefined && (there.offset < at || there.attempt !== kept.current.attempt)) {
            // It was longer, or of another attempt: this is the log of another start.
            kept.current = new Tail();
            continue;
          }
          if (there) {
            instead.value = there.instead;
            kept.current.attempt = there.attempt;
            if (at === undefined) {
              start.value = there.offset;
              if (there.hole! <= there.offset) {
                start.value = there.hole!;
                kept.current.cut = false;  // it begins with the line that says so
              }
            }
            add(there.bytes, there.next);
          }
          loaded.value = true;
          if (there && there.next - there.offset >= kSlice) continue;
          if (mode === 'over') return;
          // Its attempt alone: the next one's bytes are of another log.
          if (mode === 'live') pause = there ? await followLog(logPath(job.id, {rank, attempt: there.attempt!, offset: there.next, follow: true}), stop.signal, (chunk) => add(chunk, kept.current.next! + chunk.byteLength)) : 2000;
        } catch (failed) {
          const known = failed instanceof ApiError ? failed : new ApiError(0, undefined, 'lockstepd does not answer');
          if (stop.signal.aborted) return;
          error.value = known;
          if ([401, 403, 404].includes(known.status)) {
            loaded.value = true;
            return;
          }
          pause = Math.min(pause, 500 * 2 ** failures++);
        }
        // What is shown stays; what comes is read from the byte on that it had come to.
        await sleep(pause);
      }
    };
    void run();
    return () => stop.abort();
  }, [job.id, rank, tail, begin, mode]);
  return {kept, tick, error, loaded, start, instead};
}

/** Where the reader is: at the end, which is followed, or at a line, which stays where it is whatever comes and goes around it;
 *  so it does while text is selected. */
function useReader(wrap: boolean, height: number, begins: boolean) {
  const box = useRef<HTMLDivElement>(null);
  const redraw = useSignal(0);
  const is = useRef<{place?: Place; selected?: [number, number]; ends: boolean; top: number; from: number; to: number; shown: Line[]}>({place: begins ? {number: 0, off: 0} : undefined, ends: !begins, top: 0, from: 0, to: 0, shown: []});
  const placeNow = (element: HTMLElement): Place => {
    const {from, shown} = is.current;
    const top = element.scrollTop;
    if (!wrap) {
      const at = Math.max(0, Math.min(shown.length - 1, Math.floor(top / kRow)));
      return {number: shown[at]?.number ?? 0, off: top - at * kRow};
    }
    const rows = [...element.children].slice(1, -1) as HTMLElement[];
    const at = rows.findIndex((row) => row.offsetTop + row.offsetHeight > top);
    return {number: shown[from + at]?.number ?? 0, off: top - (rows[at]?.offsetTop ?? 0)};
  };
  /** Somebody has scrolled, if anything has but this. */
  const look = () => {
    const element = box.current;
    const now = is.current;
    if (!element || Math.abs(element.scrollTop - now.top) < 1) return false;
    now.top = element.scrollTop;
    now.ends = (!wrap || now.to >= now.shown.length) && element.scrollHeight - element.scrollTop - element.clientHeight < 30;
    now.place = now.ends && !now.selected ? undefined : placeNow(element);
    return true;
  };
  useEffect(() => {
    const select = () => {
      const selection = getSelection();
      const number = (node: Node | null | undefined) => Number((node?.nodeType === 1 ? node as HTMLElement : node?.parentElement)?.closest<HTMLElement>('.log-line')?.dataset['n'] ?? NaN);
      const ends = selection && !selection.isCollapsed && box.current?.contains(selection.anchorNode) ? [number(selection.anchorNode), number(selection.focusNode)].filter((one) => one >= 0) : [];
      const now = is.current;
      if (look()) redraw.value++;
      if (ends.length) {
        now.place ??= placeNow(box.current!);
        now.selected = [Math.min(...ends), Math.max(...ends)];
      } else if (now.selected) {
        now.selected = undefined;
        if (now.ends) now.place = undefined;
        redraw.value++;
      }
    };
    document.addEventListener('selectionchange', select);
    return () => document.removeEventListener('selectionchange', select);
  }, [wrap]);
  return {box, onScroll: () => { if (look()) redraw.value++; }, windowFor: (shown: Line[]): [number, number] => {
    look();
    const now = is.current;
    void redraw.value;
    const [from, to] = windowOf(shown, {place: now.place, selected: now.selected, height, row: wrap ? undefined : kRow, first: now.shown[now.from]?.number});
    Object.assign(now, {from, to, shown});
    return [from, to];
  }, settle: () => {
    const element = box.current;
    const {place, from, shown} = is.current;
    if (!element) return;
    if (!place) element.scrollTop = element.scrollHeight;
    else {
      const at = indexOf(shown, place.number);
      const top = (wrap ? (element.children[at - from + 1] as HTMLElement | undefined)?.offsetTop ?? 0 : at * kRow) + place.off;
      if (Math.abs(top - element.scrollTop) >= 1) element.scrollTop = top;
    }
    is.current.top = element.scrollTop;
  }};
}

/** The log of one rank: its tail, or what is from the byte `begin` on. A log that grows is followed; scrolling up holds what is seen,
 *  the end goes on. `earlier`: the address of what is before the byte that it begins with. */
export function LogView({job, rank, tail = 2000, begin, height = 560, follow: wanted, find, mark = find, level, wrap = false, earlier}: {
  job: Job; rank: number; tail?: number; begin?: number; height?: number; follow?: boolean; find?: RegExp; mark?: RegExp; level?: string; wrap?: boolean; earlier?: (start: number) => string;
}): JSX.Element {
  const {kept: {current: kept}, tick, error, loaded, start, instead} = useTail(job, rank, tail, begin, wanted);
  const {box, onScroll, windowFor, settle} = useReader(wrap, height, begin !== undefined);
  const drawn = tick.value;
  const found = useMemo(() => (find || level ? kept.lines.filter((line) => (!level || levelOf(line.text) === level || (level === 'warning' && levelOf(line.text) === 'error')) && (!find || (find.lastIndex = 0, find.test(line.text)))) : undefined),
    [drawn, find, level, kept]);
  const shown = found ?? kept.lines;
  const [from, to] = windowFor(shown);
  useLayoutEffect(settle);
  return <>
    {instead.value && <p class="quiet">Rank {rank} has no log of its own; this is its launcher's, of rank {instead.value}.</p>}
    {kept.dropped > 0 && <p class="quiet">{plural(kept.dropped, 'line before these is', 'lines before these are')} not kept here; the file has them.</p>}
    {error.value && <p class="bad" role="alert"><Safe text={error.value.message} /></p>}
    {earlier && start.value > 0 && <p class="quiet">The {bytes(start.value)} before these lines are neither shown nor searched. <a href={earlier(start.value)}>Earlier lines</a></p>}
    <div class="log" ref={box} style={{maxHeight: `${height}px`}} tabIndex={0} role="log" aria-label={`Log of rank ${rank}`} aria-live="off" onScroll={onScroll}>
      {!loaded.value ? <p class="quiet">Loading…</p> : shown.length === 0 ? <p class="quiet">{found ? 'No line is like that.' : error.value ? '' : `It has printed nothing${isOver(job) ? '' : ' yet'}.`}</p> : <>
        <div style={{height: `${wrap ? 0 : from * kRow}px`}} />
        {shown.slice(from, to).map((line) => <LogLine key={line.number} line={line} wrap={wrap} found={mark} />)}
        <div style={{height: `${wrap ? 0 : (shown.length - to) * kRow}px`}} /></>}
    </div></>;
}

/** A page that runs is drawn again every second: what is typed stays until Enter or whatever leaves the box; Escape takes it back. */
function RankBox({rank, last}: {rank: number; last: number}): JSX.Element {
  const typed = useSignal<string | undefined>(undefined);
  const done = () => {
    const wanted = typed.value;
    typed.value = undefined;
    if (wanted && Number(wanted) >= 0 && Number(wanted) !== rank) setQuery({rank: Math.floor(Number(wanted)), at: undefined});
  };
  return <label class="field-inline">Rank <input type="number" min="0" max={last} value={typed.value ?? String(rank)} onInput={(event) => { typed.value = event.currentTarget.value; }} onChange={done} onBlur={done}
    onKeyDown={(event) => { if (event.key === 'Enter') done(); else if (event.key === 'Escape') typed.value = undefined; }} /></label>;
}

interface Hit {text: string; count: number; ranks: string; first?: {rank: number; offset: number; time?: string}}

function SearchAll({job, text, regex}: {job: Job; text: string; regex: boolean}): JSX.Element {
  const {state, again} = useWork<{items: Hit[]; searched_bytes?: number; truncated?: boolean}>(`search ${job.id} ${text} ${regex}`,
    (stop) => get(`v1/jobs/${job.id}/logs/search${parameters({q: searchQuery(text, regex), regex: true, limit: 100})}`, stop));
  return <Card title="In the logs of all ranks" aside={<span class="quiet">{state.value.value?.searched_bytes !== undefined && `${bytes(state.value.value.searched_bytes)} searched`}{state.value.value?.truncated && ', not all'}</span>}>
    <Show asked={state.value} what="the search" again={again}>{(found) => (found.items.length === 0 ? <Empty title={`No rank has printed that${found.truncated ? ' in the newest part of its log' : ''}`} />
      : <ul class="hits">{found.items.map((hit, i) => <li key={i}><span class="num quiet">{count(hit.count)} ×</span><span class="chip">rank {hit.ranks}</span>
        <a href={formatPlace(['jobs', job.id, 'logs'], {rank: hit.first?.rank ?? parseInt(hit.ranks, 10), at: hit.first?.offset, mark: text, regex: regex ? 1 : undefined})}><code>{clipped(ansi(hit.text).map((span) => span.text).join(''), 300)}</code></a></li>)}</ul>)}</Show></Card>;
}

export function Logs({job}: JobPageProps): JSX.Element {
  const q = query.value;
  // Of a job that has failed what is looked for is in the log of the rank that broke it. One that is read already stays.
  const first = useMemo(() => (isOver(job) ? job.cause?.rank : 0), [job.id]);
  const last = (job.resources.nodes ?? 1) * (job.resources.ranks_per_node ?? 1) - 1;
  const rank = Math.min(last, Math.max(0, Number(q['rank'] ?? first) || 0));
  const typed = useSignal(q['q'] ?? '');
  const regex = q['regex'] === '1';
  const text = q['q'] ?? '';
  // Another address is another search.
  useEffect(() => { typed.value = text; }, [text]);
  const find = useMemo(() => searchPattern(text, regex), [text, regex]);
  // A hit of the search over all is looked at among its neighbours.
  const mark = find ?? searchPattern(q['mark'] ?? '', regex);
  const all = q['all'] === '1' && text.length > 1;
  const following = q['follow'] !== '0';
  const wrap = q['wrap'] === '1';
  const at = q['at'] === undefined ? undefined : Number(q['at']) || 0;
  const {came, save} = useSaving();
  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      if (event.key === 'f' && !event.ctrlKey && !event.metaKey && !(event.target as Element).closest('input, textarea, select')) setQuery({follow: following ? 0 : undefined});
    };
    document.addEventListener('keydown', key);
    return () => document.removeEventListener('keydown', key);
  }, [following]);
  return <>
    <div class="filters" role="search">
      <RankBox rank={rank} last={last} />
      <form class="row" aria-label="Search" onSubmit={(event) => { event.preventDefault(); setQuery({q: typed.value}); }}>
        <input type="search" placeholder="Search" aria-label="Search the log" value={typed.value} onInput={(event) => { typed.value = event.currentTarget.value; if (q['all'] !== '1') setQuery({q: typed.value}); }} /></form>
      <Toggle on={regex} set={(on) => setQuery({regex: on ? 1 : undefined})}>.*</Toggle>
      <Toggle on={q['all'] === '1'} set={(on) => setQuery({all: on ? 1 : undefined, q: typed.value})}>all ranks</Toggle>
      <Segments label="Level" value={q['level'] ?? ''} options={[['', 'all lines'], ['warning', 'warnings'], ['error', 'errors']]} set={(level) => setQuery({level})} />
      <Toggle on={wrap} set={(on) => setQuery({wrap: on ? 1 : undefined})}>wrap</Toggle>
      {!isOver(job) && at === undefined && <Toggle on={following} set={(on) => setQuery({follow: on ? undefined : 0})}>follow</Toggle>}
      <button type="button" class="button" disabled={came !== undefined} onClick={() => void save(`${fileName(job.name, `rank-${rank}`)}.log`, (offset) => logPath(job.id, {rank, offset}))}>{came !== undefined ? `Downloading… ${bytes(came)}` : 'Download all'}</button>
    </div>
    {text && !find && <p class="bad">That is no regular expression yet.</p>}
    {all && <SearchAll job={job} text={text} regex={regex} />}
    {at !== undefined && <p class="quiet">From byte {count(at)} on, 1 MiB at most. <button type="button" class="link-button" onClick={() => setQuery({at: undefined, mark: undefined})}>Newest lines</button></p>}
    <Card title={`Rank ${rank}`}><LogView key={`${rank} ${at}`} job={job} rank={rank} begin={at && Math.max(0, at - kBefore)} follow={following && at === undefined} find={find} mark={mark} level={q['level']} wrap={wrap}
      earlier={(start) => formatPlace(['jobs', job.id, 'logs'], {...q, rank, at: start > kSlice ? start - kSlice + kBefore : 0})} /></Card>
  </>;
}
