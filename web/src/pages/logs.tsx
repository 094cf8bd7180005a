// What ranks print: the tail of one as it comes, and a search over all.
import {useSignal} from '@preact/signals';
import type {JSX} from 'preact';
import {useEffect, useMemo, useRef} from 'preact/hooks';
import {bytes, count, plural} from '../lib/format';
import {ansi, clipped, levelOf, LineReader} from '../lib/text';
import {download, fileName} from '../lib/export';
import type {Values} from '../lib/paths';
import type {Job} from '../types';
import {ApiError, follow, get, parameters} from '../state/api';
import {isOver, throttled, useWork} from '../state/data';
import {slice} from '../state/files';
import {inPlace} from '../state/live';
import {formatPlace, query, setQuery} from '../state/router';
import {Card, Empty, Safe, Segments, Show, Toggle} from '../ui/basics';
import {useSaving} from '../ui/save';
import type {JobPageProps} from './job';

const kKept = 20_000;
const kShown = 2_000;  // characters of a line, until it is asked for whole
const kRow = 19;
const kBefore = 400;  // bytes before what was searched for

interface Line {text: string; number: number}

/** A line with its colours; what a search found is marked. */
function LogLine({line, wrap, found}: {line: Line; wrap: boolean; found?: RegExp}): JSX.Element {
  const long = line.text.length > kShown;
  const spans = useMemo(() => ansi(long ? line.text.slice(0, kShown) : line.text), [line.text]);
  const level = levelOf(line.text);
  return <div class={`log-line ${level !== 'plain' ? `log-${level}` : ''} ${wrap ? 'log-wrap' : ''}`}>{spans.map((span, i) => <span key={i} class={span.style || undefined}>{found ? marked(span.text, found) : span.text}</span>)}
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

export function searchPattern(text: string, regex: boolean): RegExp | undefined {
  if (!text) return undefined;
  try {
    return new RegExp(regex ? text : text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), 'gi');
  } catch {
    return undefined;
  }
}

const logPath = (id: string, wanted: Values) => `v1/jobs/${id}/logs${parameters(wanted)}`;

/** The log of one rank: its tail, or what is from the byte `begin` on. A log that grows is followed; scrolling up pauses,
 *  the end goes on. */
export function LogView({job, rank, tail = 2000, begin, height = 560, follow: wanted, find, level, wrap = false}: {
  job: Job; rank: number; tail?: number; begin?: number; height?: number; follow?: boolean; find?: RegExp; level?: string; wrap?: boolean;
}): JSX.Element {
  const lines = useRef<Line[]>([]);
  const tick = useSignal(0);
  const error = useSignal<ApiError | undefined>(undefined);
  const loaded = useSignal(false);
  const instead = useSignal<string | null>(null);
  const dropped = useSignal(0);
  const box = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const atEnd = useRef(true);
  const live = wanted && !isOver(job);
  useEffect(() => {
    const stop = new AbortController();
    lines.current = [];
    dropped.value = 0;
    loaded.value = false;
    error.value = undefined;
    atEnd.current = begin === undefined;
    let n = 0;
    const draw = throttled(() => { tick.value++; }, 100);
    const add = (texts: string[]) => {
      for (const text of texts) lines.current.push({text, number: ++n});
      if (lines.current.length > kKept) {
        dropped.value += lines.current.length - kKept;
        lines.current = lines.current.slice(-kKept);
      }
      draw();
    };
    const run = async () => {
      let at = begin;  // the byte that comes next
      let cut = !!begin;  // the first line is a part of one
      let reader = new LineReader();
      for (let failures = 0; !stop.signal.aborted;) {
        let pause = 5000;
        try {
          // Who has not begun yet has no log, but can be followed.
          const there = await slice(logPath(job.id, {rank, ...(at === undefined ? {tail} : {offset: at})}), stop.signal).catch((failed: ApiError) => {
            if (!live || failed.status !== 404) throw failed;
          });
          error.value = undefined;
          failures = 0;
          if (there) {
            instead.value = there.instead;
            if (at !== undefined && there.offset < at) {
              // It was longer: this is the log of another start.
              at = undefined;
              cut = false;
              reader = new LineReader();
              lines.current = [];
              continue;
            }
            add(reader.push(there.bytes).slice(cut ? 1 : 0));
            cut = false;
          }
          at = there?.next ?? at ?? 0;
          loaded.value = true;
          if (live && !await inPlace(() => follow(logPath(job.id, {rank, offset: at, follow: true}), {}, stop.signal, (chunk) => {
            at = at! + chunk.byteLength;
            add(reader.push(chunk));
          }))) {
            await new Promise((resolve) => setTimeout(resolve, 1000));
            continue;  // other tabs follow logs: this one asks
          }
          if (reader.open) add([reader.open]);
          reader = new LineReader();
          if (!live) return;
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
        await new Promise((resolve) => setTimeout(resolve, pause));
      }
    };
    void run();
    return () => stop.abort();
  }, [job.id, rank, tail, begin, live]);
  const shown = useMemo(() => {
    if (!find && !level) return lines.current;
    return lines.current.filter((line) => (!level || levelOf(line.text) === level || (level === 'warning' && levelOf(line.text) === 'error')) && (!find || (find.lastIndex = 0, find.test(line.text))));
  }, [tick.value, find, level, lines.current]);
  useEffect(() => {
    if (atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [tick.value, shown.length, loaded.value]);
  // Wrapped lines have no known height: then the last thousand exist.
  const from = wrap ? Math.max(0, shown.length - 1000) : Math.max(0, Math.floor(top.value / kRow) - 20);
  const to = wrap ? shown.length : Math.min(shown.length, Math.ceil((top.value + height) / kRow) + 20);
  return <>
    {instead.value && <p class="quiet">Rank {rank} has no log of its own; this is its launcher's, of rank {instead.value}.</p>}
    {dropped.value > 0 && <p class="quiet">The first {plural(dropped.value, 'line')} are not kept here; the file has them.</p>}
    {error.value && <p class="bad" role="alert"><Safe text={error.value.message} /></p>}
    <div class="log" ref={box} style={{maxHeight: `${height}px`}} tabIndex={0} role="log" aria-label={`Log of rank ${rank}`} aria-live="off" onScroll={(event) => {
      const element = event.currentTarget;
      top.value = element.scrollTop;
      atEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < 30;
    }}>
      {!loaded.value ? <p class="quiet">Loading…</p> : shown.length === 0 ? <p class="quiet">{find || level ? 'No line is like that.' : error.value ? '' : 'It has printed nothing yet.'}</p> : <>
        <div style={{height: `${wrap ? 0 : from * kRow}px`}} />
        {shown.slice(from, to).map((line) => <LogLine key={line.number} line={line} wrap={wrap} found={find} />)}
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
    (stop) => get(`v1/jobs/${job.id}/logs/search${parameters({q: text, regex: regex || undefined, limit: 100})}`, stop));
  return <Card title="In the logs of all ranks" aside={<span class="quiet">{state.value.value?.searched_bytes !== undefined && `${bytes(state.value.value.searched_bytes)} searched`}{state.value.value?.truncated && ', not all'}</span>}>
    <Show asked={state.value} what="the search" again={again}>{(found) => (found.items.length === 0 ? <Empty title="No rank has printed that" />
      : <ul class="hits">{found.items.map((hit, i) => <li key={i}><span class="num quiet">{count(hit.count)} ×</span><span class="chip">rank {hit.ranks}</span>
        <a href={formatPlace(['jobs', job.id, 'logs'], {rank: hit.first?.rank ?? parseInt(hit.ranks, 10), at: hit.first?.offset, q: text, regex: regex ? 1 : undefined})}><code>{clipped(ansi(hit.text).map((span) => span.text).join(''), 300)}</code></a></li>)}</ul>)}</Show></Card>;
}

export function Logs({job}: JobPageProps): JSX.Element {
  const q = query.value;
  // Of a job that has failed what is looked for is in the log of the rank that broke it.
  const rank = Math.max(0, Number(q['rank'] ?? (isOver(job) ? job.cause?.rank : 0)) || 0);
  const typed = useSignal(q['q'] ?? '');
  const regex = q['regex'] === '1';
  const text = q['q'] ?? '';
  // Another address is another search.
  useEffect(() => { typed.value = text; }, [text]);
  const find = useMemo(() => searchPattern(text, regex), [text, regex]);
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
  const last = (job.resources.nodes ?? 1) * (job.resources.ranks_per_node ?? 1) - 1;
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
    {at !== undefined && <p class="quiet">From byte {count(at)} on, 1 MiB at most. <button type="button" class="link-button" onClick={() => setQuery({at: undefined})}>Newest lines</button></p>}
    <Card title={`Rank ${rank}`}><LogView key={rank} job={job} rank={rank} begin={at && Math.max(0, at - kBefore)} follow={following && at === undefined} find={find} level={q['level']} wrap={wrap} /></Card>
  </>;
}
