// The first page: what runs, how it goes, what broke and who did it, one line a job.
import {useSignal} from '@preact/signals';
import type {ComponentChildren, JSX} from 'preact';
import {useEffect, useLayoutEffect, useMemo} from 'preact/hooks';
import {ago, clock, count, dateTime, number, percent, plural, seconds} from '../lib/format';
import {eventsPath, listPath, parsePlace} from '../lib/paths';
import {anomalyName, causeLine, inTrouble, plainly, ranksOf, stateOf} from '../lib/story';
import {pointText} from '../lib/sweep';
import type {Job, JobEvent, Page, Series} from '../types';
import {get, inTurn, send} from '../state/api';
import {now} from '../state/clock';
import {isOver, throttled, useWork} from '../state/data';
import {listen} from '../state/live';
import {jobHref, query, remember, remembered, setQuery} from '../state/router';
import {identity, mayAct, maySubmit} from '../state/session';
import {ActionButton, Empty, Name, Safe, Segments, Show, State, ofSweep, useNear} from '../ui/basics';
import {Sparkline} from '../ui/sparkline';

const kStates = ['running', 'queued', 'failed', 'succeeded', 'cancelled'];
const kAttention = 5;
const kLooks = 20;  // answers of a search without a job, one after the other: of 20,000 jobs each
const kPages = 200;
/** Messages are not cut; in the table three lines of them are seen. */
const kWhole = 600;

interface List extends Page<Job> {pages: number}

/** Asked for again when one of the filters changes; what is there stays while earlier ones are on their way. */
function useJobs(): {asked: ReturnType<typeof useWork<List>>['state']; pages: number} {
  // Not for each letter.
  const words = useSettled(query.value['q'] ?? '', 300);
  const q: Record<string, string> = {...query.value, q: words};
  const pages = Math.min(kPages, Math.max(1, Math.floor(Number(q['pages'])) || 1));
  const key = listPath(q);
  const {state, again} = useWork<List>(key, async (stop) => {
    const items: Job[] = [];
    let cursor: string | undefined;
    for (let i = 0; i < pages; i++) {
      // A search may answer that it has found nothing yet.
      for (let looks = 0, before = items.length; looks < (words ? kLooks : 1) && items.length === before && (!looks || cursor); looks++) {
        const page: Page<Job> = await get<Page<Job>>(listPath(q, cursor), stop);
        items.push(...page.items);
        cursor = page.next_cursor;
      }
      if (!cursor) break;
    }
    return {items, next_cursor: cursor, pages};
  }, words ? 30 : 5);
  useEffect(() => {
    if ((state.peek().value?.pages ?? pages) !== pages) again();
  }, [pages]);
  useEffect(() => {
    // All jobs are read for a search.
    const soon = throttled(again, words ? 15_000 : 400);
    return listen(['jobs'], soon, words ? soon : again);
  }, [key]);
  return {asked: state, pages};
}

/** A text once it has been the same for a while. */
function useSettled(text: string, milliseconds: number): string {
  const settled = useSignal(text);
  useEffect(() => {
    if (settled.peek() === text) return;
    const timer = setTimeout(() => { settled.value = text; }, milliseconds);
    return () => clearTimeout(timer);
  }, [text]);
  return settled.value;
}

/** On the way back the list is where it was, once it is there. */
function useScroll(there: boolean): void {
  useLayoutEffect(() => {
    if (!there) return;
    const to = remembered()['y'];
    if (typeof to === 'number') scrollTo(0, to);
    // A click may lead away; what is heard after it is of another page.
    const save = () => {
      const {path} = parsePlace(location.hash);
      if ((path[0] ?? 'jobs') === 'jobs' && !path[1] && remembered()['y'] !== Math.round(scrollY)) remember({y: Math.round(scrollY)});
    };
    const stop = new AbortController();
    const soon = throttled(() => stop.signal.aborted || save(), 500);
    addEventListener('scroll', soon, {passive: true, signal: stop.signal});
    addEventListener('click', save, {capture: true, signal: stop.signal});
    return () => stop.abort();
  }, [there]);
}

/** The loss so far, once the row is near what is seen. */
function LossLine({job}: {job: Job}): JSX.Element {
  const {ref, near} = useNear('100px');
  const wanted = near && job.step !== undefined;
  const {state} = useWork<Series>(wanted ? `spark ${job.id}` : undefined,
    (stop) => inTurn(() => get<Series>(`v1/jobs/${job.id}/series?metric=loss&ranks=all&stat=median&points=48`, stop)), isOver(job) ? undefined : 10);
  const values = state.value.value?.bands?.median ?? [];
  const last = values.findLast((v) => v !== null);
  return <div class="loss" ref={ref}>{values.length > 1 && <><Sparkline values={values} label={`Loss, now ${number(last)}`} /><span class="num">{number(values.at(-1) === null ? 'nan' : last, 3)}</span></>}</div>;
}

export function Progress({job}: {job: Job}): JSX.Element | null {
  if (job.step === undefined) return null;
  const ratio = job.total_steps ? Math.min(1, job.step / job.total_steps) : undefined;
  return <span class="progress-text"><span class="num">{count(job.step)}{job.total_steps ? <span class="quiet"> / {count(job.total_steps)}</span> : ''}</span>
    {ratio !== undefined && !isOver(job) && <progress max="1" value={ratio} aria-label={`${percent(ratio)} of the steps`} />}</span>;
}

/** The rank, the node or both, and a colon; of neither nothing. */
function blamed(job: Job, {rank, node}: {rank?: number; node?: string}): ComponentChildren {
  return <>{rank !== undefined && <a href={jobHref(job.id, `ranks/${rank}`)}><b>rank {rank}</b></a>}{node && <>{rank !== undefined && ' '}on <Name of={node} /></>}{rank !== undefined || node ? ': ' : ''}</>;
}

/** Why it waits, what it does, or what ended it: the one thing to know. */
export function Verdict({job}: {job: Job}): JSX.Element {
  if (job.cause && job.state === 'cancelled') return <span class="verdict quiet"><Safe text={job.cause.message} most={kWhole} /></span>;
  if (job.cause) {
    return <span class="verdict bad">{blamed(job, job.cause)}<Safe text={causeLine(job.cause)} most={kWhole} /></span>;
  }
  if (job.hang) return <span class="verdict bad">{blamed(job, job.hang)}<Safe text={job.hang.message ?? ''} most={kWhole} /></span>;
  if (job.pending_reason && !isOver(job) && job.state !== 'running') {
    return <span class="verdict quiet"><Safe text={job.pending_reason} most={140} />{job.expected_start && ` · starts about ${dateTime(seconds(job.expected_start))}`}</span>;
  }
  const anomalies = Object.entries(job.anomalies ?? {});
  const again = job.lost_steps !== undefined && <span class="chip">restarted</span>;
  if (anomalies.length) return <span class="verdict">{again}{anomalies.slice(0, 3).map(([kind, n]) => <span key={kind} class="chip chip-warn">{n > 1 ? `${n} × ` : ''}{anomalyName(kind)}</span>)}</span>;
  if (job.cancel_requested_at && !isOver(job)) return <span class="verdict quiet">is being ended</span>;
  return <span>{again}</span>;
}

function Age({job}: {job: Job}): JSX.Element {
  const start = seconds(job.started_at);
  const end = seconds(job.finished_at);
  if (!isOver(job) && start !== undefined) return <span title={`since ${dateTime(start)}`}>{clock(now.value - start)}</span>;
  if (end !== undefined) return <span title={dateTime(end)}>{ago(end, now.value)}{start !== undefined && <span class="quiet"> · {clock(end - start)}</span>}</span>;
  return <span class="quiet">{ago(seconds(job.submitted_at), now.value)}</span>;
}

/** Jobs that are in trouble now or ended so within the last day, by name and culprit. */
function Attention({jobs}: {jobs: Job[]}): JSX.Element | null {
  const all = inTrouble(jobs, now.value);
  const whole = query.value['look'];
  const list = whole ? all : all.slice(0, kAttention);
  if (!list.length) return null;
  return <section class="attention" aria-label="Needs a look"><h2>Needs a look</h2>
    {list.map((job) => <div key={job.id} class={`attention-item ${job.state === 'failed' || job.hang ? 'is-bad' : 'is-warn'}`}>
      <a class="attention-name row-link" href={jobHref(job.id)}><Name of={job.name} /></a><State state={stateOf(job)} /><AttentionText job={job} /></div>)}
    {all.length > kAttention && <button type="button" class="link-button" aria-expanded={!!whole} onClick={() => setQuery({look: whole ? undefined : 'all'})}>{whole ? 'Fewer' : `${count(all.length - kAttention)} more`}</button>}</section>;
}

/** Names the slow rank of a running job that has one; the list itself only knows how often. */
function AttentionText({job}: {job: Job}): JSX.Element {
  const wanted = !isOver(job) && !job.hang && !!job.anomalies;
  const {state} = useWork<JobEvent | undefined>(wanted ? `attention ${job.id} ${JSON.stringify(job.anomalies)}` : undefined, async (stop) => {
    let before: string | undefined;
    for (let i = 0; i < 5; i++) {
      const page: Page<JobEvent> = await inTurn(() => get<Page<JobEvent>>(eventsPath(job.id, before), stop), true);
      const found = page.items.find((event) => event.kind === 'anomaly' && !event.data?.['over']);
      before = page.next_cursor;
      if (found || !before) return found;
    }
    return undefined;
  });
  const said = state.value.value;
  if (!said) return <Verdict job={job} />;
  return <span class="verdict">{blamed(job, said)}<Safe text={plainly(said.data?.['message'])} most={kWhole} /></span>;
}

function Row({job, picked, pick}: {job: Job; picked: boolean; pick: (on: boolean) => void}): JSX.Element {
  const ranks = ranksOf(job);
  return <tr class={`goes job-row ${job.state === 'failed' || job.hang ? 'row-bad' : ''}`} onClick={(event) => {
    if (!(event.target as Element).closest('a, input, label') && !getSelection()?.toString()) location.hash = jobHref(job.id);
  }}>
    <td class="pick"><input type="checkbox" aria-label={`Compare ${job.name}`} checked={picked} onChange={(event) => pick(event.currentTarget.checked)} /></td>
    <td><State state={stateOf(job)} /></td>
    <td class="job-name"><a class="row-link" href={jobHref(job.id)}><Name of={job.name} /></a>{ofSweep(job)}{job.sweep && query.value['sweep'] && <div class="labels quiet"><Safe text={pointText(job.sweep.parameters)} most={200} /></div>}
      <div class="labels">{Object.entries(job.labels).slice(0, 3).map(([name, value]) => <a key={name} class="chip" href={`#/jobs?label=${encodeURIComponent(`${name}:${value}`)}`}><Safe text={`${name}:${value}`} most={28} /></a>)}</div></td>
    <td class="only-wide"><bdi>{job.user}</bdi></td>
    <td class="right only-wide" title={`${job.resources.nodes} nodes × ${job.resources.ranks_per_node} ranks`}>{ranks ? count(ranks) : ''}</td>
    <td class="right at-step"><Progress job={job} /></td>
    <td><LossLine job={job} /></td>
    <td class="right only-wide" title="Share of the time that went into steps that count">{job.ettr !== undefined && percent(job.ettr)}</td>
    <td class="right when"><Age job={job} /></td>
    <td class="wide-column"><Verdict job={job} /></td>
  </tr>;
}

/** What is ticked in this entry of the history. */
function pickedBefore(): string[] | undefined {
  const ids = remembered()['picked'];
  return Array.isArray(ids) ? ids.map(String) : undefined;
}

export function Jobs(): JSX.Element {
  const {asked, pages} = useJobs();
  const q = query.value;
  const picked = useSignal<string[]>(pickedBefore() ?? []);
  useEffect(() => {
    const arrive = () => { picked.value = pickedBefore() ?? picked.value; };
    addEventListener('hashchange', arrive);
    return () => removeEventListener('hashchange', arrive);
  }, []);
  const pick = (ids: string[]) => {
    picked.value = ids;
    remember({picked: ids});
  };
  useScroll(!!asked.value.value);
  const filtered = kStates.includes(q['state'] ?? '') || q['user'] || q['name'] || q['label'] || q['sweep'];
  // What is here already is cut down at once; lockstepd looks through all others.
  const words = (q['q'] ?? '').toLowerCase().split(' ').filter(Boolean);
  const shown = useMemo(() => (asked.value.value?.items ?? []).filter((job) => {
    const text = [job.id, job.name, job.user, job.framework, ...Object.entries(job.labels).map((label) => label.join(':')), job.cause?.message].join('\n').toLowerCase();
    return words.every((word) => text.includes(word));
  }), [asked.value, q['q']]);
  return <div class="page">
    <h1 class="away">Jobs</h1>
    <div class="filters" role="search">
      <input type="search" placeholder="Find: name, user, label, cause" aria-label="Find jobs" value={q['q'] ?? ''} onInput={(event) => setQuery({q: event.currentTarget.value, pages: undefined})} />
      <Segments label="State" value={q['state'] ?? ''} options={['', ...kStates]} set={(state) => setQuery({state, pages: undefined})} />
      {identity.value?.role !== 'user' && <label class="check"><input type="checkbox" checked={q['user'] === identity.value?.user} onChange={(event) => setQuery({user: event.currentTarget.checked ? identity.value?.user : undefined, pages: undefined})} /> only mine</label>}
      {q['label'] && <button type="button" class="toggle pressed" onClick={() => setQuery({label: undefined, pages: undefined})}>label <Safe text={q['label']} most={40} /> ✕</button>}
      {q['sweep'] && <button type="button" class="toggle pressed" onClick={() => setQuery({sweep: undefined, pages: undefined})}>one sweep ✕</button>}
      {q['sweep'] && asked.value.value?.items.some((job) => !isOver(job) && mayAct(job.user)) && <ActionButton label="Cancel the sweep" tone="bad" question="End every job of this sweep?" detail="Those that run are asked to stop and then ended; those that wait do not start. This cannot be undone." act={async () => `${plural((await send<{cancelled: number}>('POST', `v1/sweeps/${q['sweep']}/cancel`)).cancelled, 'job is', 'jobs are')} being ended`} />}
      {picked.value.length > 1 && <a class="button" href={`#/compare?jobs=${picked.value.join(',')}`}>Compare {picked.value.length}</a>}
    </div>
    <Show asked={asked.value} what="jobs">{(page) => <>
      {!q['state'] && !words.length && <Attention jobs={page.items} />}
      {shown.length === 0
        ? <Empty title={filtered || words.length ? 'No job is like that' : 'No job yet'}>{filtered || words.length ? <button type="button" class="button" onClick={() => setQuery({q: '', state: '', user: '', name: '', label: '', sweep: '', pages: ''})}>Show all</button>
          : <>{maySubmit.value && <a class="button solid" href="#/submit">Submit the first</a>}<p>Or from a shell: <code>lockstep run -n 2 -- python train.py</code></p></>}</Empty>
        : <div class="table-wrap" role="region" aria-label="Jobs" tabIndex={0}><table class="table jobs"><caption class="away">{plural(shown.length, 'job')}</caption>
          <thead><tr><th scope="col"><span class="away">Compare</span></th><th scope="col">State</th><th scope="col">Job</th><th scope="col" class="only-wide">User</th><th scope="col" class="right only-wide">Ranks</th><th scope="col" class="right">Step</th><th scope="col">Loss</th><th scope="col" class="right only-wide">Productive</th><th scope="col" class="right when">Time</th><th scope="col" class="wide-column">What to know</th></tr></thead>
          <tbody>{shown.map((job) => <Row key={job.id} job={job} picked={picked.value.includes(job.id)} pick={(on) => pick(on ? [...picked.value, job.id].slice(-10) : picked.value.filter((id) => id !== job.id))} />)}</tbody></table></div>}
      {page.next_cursor && pages < kPages && <p class="center"><button type="button" class="button" disabled={page.pages < pages} onClick={() => setQuery({pages: pages + 1})}>{page.pages < pages ? 'Asking…' : 'Earlier jobs'}</button></p>}
    </>}</Show>
  </div>;
}
