// What happened to a job, in sentences; many of a kind in a row are one line.
import type {JSX} from 'preact';
import {useMemo} from 'preact/hooks';
import {count, seconds, timeOfDay} from '../lib/format';
import {describe, kMostEvents, type Weight} from '../lib/story';
import {download, fileName} from '../lib/export';
import type {JobEvent} from '../types';
import {jobHref, query, setQuery} from '../state/router';
import {Card, Empty, Safe, Show} from '../ui/basics';
import type {JobPageProps} from './job';

const kSigns: Record<Weight, string> = {bad: '✕', warn: '!', good: '✓', plain: '·', quiet: '·'};
const kFold = 4;
const kShown = 2000;

interface Told {event: JobEvent; text: string; weight: Weight}

/** Runs of neighbours of one kind; those that matter stay single. */
export function folded(told: Told[]): Told[][] {
  const out: Told[][] = [];
  for (const one of told) {
    const last = out[out.length - 1];
    const may = one.weight === 'quiet' || one.event.kind === 'checkpoint_saved';
    if (may && last && last[0]!.event.kind === one.event.kind && last[0]!.weight === one.weight) last.push(one);
    else out.push([one]);
  }
  return out.flatMap((run) => (run.length < kFold ? run.map((one) => [one]) : [run]));
}

function Line({told, id}: {told: Told; id: string}): JSX.Element {
  const {event, text, weight} = told;
  return <div class={`event weight-${weight}`}><span class="num quiet event-time" title={event.time}>{timeOfDay(seconds(event.time), true)}</span><span class="event-sign" aria-hidden="true">{kSigns[weight]}</span>
    <span class="event-text">{event.rank !== undefined ? <a href={jobHref(id, `ranks/${event.rank}`)}><Safe text={text} most={600} /></a> : <Safe text={text} most={600} />}</span>
    <span class="quiet only-wide event-kind">{event.kind.replace(/_/g, ' ')}</span></div>;
}

export function Events({job, events}: JobPageProps): JSX.Element {
  const q = query.value;
  const words = (q['q'] ?? '').toLowerCase();
  const kinds = useMemo(() => [...new Set((events.value.value ?? []).map((event) => event.kind))].sort(), [events.value.value]);
  return <>
    <div class="filters" role="search"><input type="search" placeholder="Filter: rank, node, words" aria-label="Filter events" value={q['q'] ?? ''} onInput={(event) => setQuery({q: event.currentTarget.value})} />
      <select aria-label="Kind" value={q['kind'] ?? ''} onChange={(event) => setQuery({kind: event.currentTarget.value})}><option value="">every kind</option>{kinds.map((kind) => <option key={kind} value={kind}>{kind.replace(/_/g, ' ')}</option>)}</select>
      <button type="button" class="button" onClick={() => download(`${fileName(job.name, 'events')}.json`, JSON.stringify(events.value.value ?? [], null, 1), 'application/json')}>JSON</button></div>
    <Show asked={events.value} what="events">{(all) => {
      const shown = folded(all.map((event) => ({event, ...describe(event)})).filter(({event, text}) => (!q['kind'] || event.kind === q['kind']) && (!words || `${text} ${event.node ?? ''} ${event.rank !== undefined ? `rank ${event.rank}` : ''}`.toLowerCase().includes(words))).reverse());
      if (!shown.length) return <Empty title="No event is like that" />;
      let day = '';
      return <Card>{(all.length >= kMostEvents || shown.length > kShown) && <p class="quiet">{shown.length > kShown && `The newest ${count(kShown)} of ${count(shown.length)} lines: a filter finds the others. `}{all.length >= kMostEvents && `Events before the newest ${count(kMostEvents)} are not read here; the API has them.`}</p>}
        <ol class="events" aria-label="Events, newest first">{shown.slice(0, kShown).map((run) => {
        const first = run[0]!;
        const date = new Date(first.event.time).toDateString();
        const head = date !== day && (day = date);
        return <li key={first.event.seq}>{head && <p class="event-day">{head}</p>}
          {run.length === 1 ? <Line told={first} id={job.id} /> : <details class="event-run"><summary class={`event weight-${first.weight}`}><span class="num quiet event-time">{timeOfDay(seconds(first.event.time), true)}</span><span class="event-sign" aria-hidden="true">{kSigns[first.weight]}</span>
            <span class="event-text">{count(run.length)} × {first.event.kind.replace(/_/g, ' ')}: <Safe text={run[run.length - 1]!.text} /> … <Safe text={first.text} /></span></summary>{run.map((told) => <Line key={told.event.seq} told={told} id={job.id} />)}</details>}</li>;
      })}</ol></Card>;
    }}</Show></>;
}
