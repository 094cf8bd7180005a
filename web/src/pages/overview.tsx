// One look: is it learning, is it fast, who is slow, what broke.
import {useSignal} from '@preact/signals';
import type {JSX} from 'preact';
import {useMemo} from 'preact/hooks';
import {clock, count, dateTime, duration, kNone, metricTitle, metricValue, number, percent, plural, seconds, timeOfDay} from '../lib/format';
import {along, median, noNumbers, trend} from '../lib/series';
import {ansi} from '../lib/text';
import {advice, anomaliesOf, anomalyName, askedAt, causeLine, eta, isFailure, kSpans, lastFrames, lossBroke, marksOf, phasesOf, plainly, ranksOf, repeatedText, restarted, stateOf} from '../lib/story';
import type {Cause, Generation, Job, JobEvent, Series} from '../types';
import {get, parameters} from '../state/api';
import {now} from '../state/clock';
import {isOver, useWork} from '../state/data';
import {flip, pinned} from '../state/prefs';
import {jobHref, query, setQuery} from '../state/router';
import {Card, CopyButton, Name, Safe, Tile} from '../ui/basics';
import type {Mark} from '../ui/chart';
import {Expired, expired, kFirstMetrics, MetricChart, useAmount, useMetric, useMetricNames, useView, type View, ViewBar} from '../ui/metric';
import {Sparkline} from '../ui/sparkline';
import type {JobPageProps} from './job';

/** Marks where the horizontal axis of the view has them. */
export function useMarks(job: Job, events: JobEvent[] | undefined, view: View): Mark[] {
  const amount = useAmount(job, view);
  return useMemo(() => {
    const start = seconds(job.started_at) ?? 0;
    return marksOf(job, events ?? []).flatMap((mark) => {
      const x = !view.byTime ? (view.amount && mark.step !== undefined ? amount && along(amount, mark.step) : mark.step) : mark.time === undefined ? undefined : view.x === 'rel' ? mark.time - start : mark.time;
      if (x === undefined) return [];
      const href = mark.rank !== undefined ? jobHref(job.id, `ranks/${mark.rank}`) : mark.kind === 'checkpoint' ? undefined : jobHref(job.id, 'events');
      return [{x, kind: mark.kind, label: mark.label, href}];
    });
  }, [job, events, view.x, amount]);
}

export function CauseBanner({job, cause}: {job: Job; cause: Cause}): JSX.Element {
  const open = useSignal(false);
  const traceback = cause.exception?.traceback;
  const frames = traceback ? lastFrames(traceback) : undefined;
  const log = cause.log_tail?.trimEnd();
  const others = cause.others ?? [];
  const unknown = cause.rank === undefined && !cause.node && others.length > 0 && others.every((one) => one.failure === 'echo');
  return <section class="banner banner-bad" aria-label="What broke">
    <h2><span aria-hidden="true">✕ </span>{cause.rank !== undefined && <><a href={jobHref(job.id, `ranks/${cause.rank}`)}>Rank {cause.rank}</a>{cause.node && <> on <a href={`#/nodes?node=${encodeURIComponent(cause.node)}`}><Name of={cause.node} /></a></>}: </>}<Safe text={causeLine(cause)} most={400} /></h2>
    <p><span class="chip chip-bad">{cause.class.replace(/_/g, ' ')}</span>{cause.exit_code !== undefined && <span class="chip">exit code {cause.exit_code}</span>}{cause.signal !== undefined && <span class="chip">signal {cause.signal}</span>}
      <span class="quiet">{unknown ? 'Every rank that failed tells of another one; their logs may say which came first.' : frames && cause.class === 'rank_exit' ? 'The script raised an exception; the traceback says where.' : advice(cause.class)}</span></p>
    {cause.exception && !cause.message.endsWith(causeLine(cause)) && <p class="quiet"><Safe text={cause.message} most={300} /></p>}
    {frames && <div class="trace"><pre tabIndex={0} aria-label="Traceback">{open.value && frames.head && <Safe text={`${frames.head}\n`} most={100_000} />}<Safe text={frames.tail} most={8000} /></pre>
      <p class="row">{frames.head && <button type="button" class="link-button" aria-expanded={open.value} onClick={() => { open.value = !open.value; }}>{open.value ? 'Only the last frames' : 'Whole traceback'}</button>}
        <CopyButton text={traceback!} label="Copy the traceback">Copy</CopyButton></p></div>}
    {!frames && log && <div class="trace"><p class="quiet">The last it printed:</p><pre tabIndex={0} aria-label="Last lines"><Safe text={log.split('\n').slice(-8).map((line) => ansi(line).map((span) => span.text).join('')).join('\n')} most={4000} /></pre></div>}
    <p class="row">{cause.rank !== undefined && <a class="button" href={jobHref(job.id, 'logs', {rank: cause.rank})}>Log of rank {cause.rank}</a>}
      <a class="button" href={jobHref(job.id, 'evidence')}>Evidence</a><a class="button" href={jobHref(job.id, 'events')}>Events</a>
      {others.length > 0 && <span class="quiet">{plural(cause.others_total ?? others.length, unknown ? 'rank' : 'other rank')} failed{unknown ? '' : ' after it'}: {others.slice(0, 4).map((one) => `rank ${one.rank} (${one.failure === 'echo' ? 'an echo' : one.failure})`).join(', ')}{others.length > 4 ? ' …' : ''}</span>}</p>
  </section>;
}

export function HangBanner({job}: {job: Job}): JSX.Element | null {
  const hang = job.hang;
  if (!hang || isOver(job)) return null;
  const since = seconds(hang.since);
  return <section class="banner banner-bad" aria-label="What broke"><h2><span aria-hidden="true">❙❙ </span>{hang.rank !== undefined ? <><a href={jobHref(job.id, `ranks/${hang.rank}`)}>Rank {hang.rank}</a>{hang.node && <> on <Name of={hang.node} /></>} holds everybody up</> : 'No rank makes a step'}{since !== undefined && ` for ${clock(now.value - since)}`}</h2>
    {hang.message && <p><Safe text={hang.message} most={500} /></p>}
    <p class="row"><a class="button" href={jobHref(job.id, 'evidence')}>What every rank waits for</a>{hang.rank !== undefined && <a class="button" href={jobHref(job.id, 'logs', {rank: hang.rank})}>Log of rank {hang.rank}</a>}</p></section>;
}

interface SlowRank {rank: number; node?: string; ratio?: number; value?: number; median?: number}

/** The rank that computes longest: of the last steps while it runs, of the whole history after. */
function useSlowest(job: Job, names: string[] | undefined): SlowRank | undefined {
  const over = isOver(job);
  const {state} = useWork<Series>(names?.includes('busy_seconds') ? `slowest ${job.id} ${over}` : undefined, (stop) =>
    get<Series>(`v1/jobs/${job.id}/series${parameters({metric: 'busy_seconds', ranks: 'all', stat: 'median', worst: 1, points: 20, from: over ? undefined : Math.max(0, (job.step ?? 0) - 100)})}`, stop), over ? undefined : 3);
  const worst = state.value.value?.worst?.[0];
  if (!worst) return undefined;
  const middle = median((state.value.value?.bands?.median ?? []).map((v) => v ?? undefined));
  const value = median((worst.points ?? []).map((point) => point[3] ?? undefined));
  return {rank: worst.rank, node: worst.node, median: middle, value, ratio: value !== undefined && middle ? value / middle : undefined};
}

function Tiles({job, events, names}: {job: Job; events: JobEvent[] | undefined; names: string[] | undefined}): JSX.Element {
  const plain = useMemo((): View => ({x: 'step', byTime: false, smooth: 0, logY: false, logX: false, clip: false}), []);
  const loss = useMetric(job, 'loss', plain);
  const step = useMetric(job, 'step_seconds', plain, {points: 200});
  const slow = useSlowest(job, names);
  const losses = loss.bands.value.median;
  const change = trend(losses);
  const lastLoss = losses.findLast((v) => v !== null);
  const times = step.bands.value.median.filter((v): v is number => v !== null);
  const recent = median(times.slice(-20));
  const left = eta(job, recent);
  const anomalies = anomaliesOf(events);
  const bad = job.cause && job.state !== 'cancelled' ? job.cause : undefined;
  // Slowness has a tile of its own.
  const broken = anomalies.find((event) => !/^(straggler|slow_node)$/.test(String(event.data?.['anomaly'])));
  const again = restarted(job);
  // One that somebody asked for is no failure.
  const failed = again.filter((one) => !one.cause?.message || isFailure(one.cause));
  const before = failed.findLast((one) => one.cause) ?? again.findLast((one) => one.cause);
  const ratio = slow?.ratio;
  const isSlow = ratio !== undefined && ratio > 1.25;
  const nan = lossBroke(events);
  return <div class="tiles">
    <Tile label="Is it learning?" tone={nan ? 'bad' : undefined} value={<><span class="num">{number(nan && losses.at(-1) === null ? 'nan' : lastLoss)}</span><Sparkline values={losses} label="Loss so far" width={110} height={28} /></>}
      note={nan ? 'some ranks reported a loss that is no number' : change === undefined ? (loss.state.value.loading ? '' : 'loss; too few steps for a trend') : Math.abs(change) < 0.002 ? 'loss has been level lately' : change < 0 ? `loss fell by ${percent(-change, 1)} lately` : `loss rose by ${percent(change, 1)} lately`} />
    <Tile label="Is it fast?" value={<><span class="num">{recent === undefined ? kNone : duration(recent)}</span><span class="unit">a step</span></>}
      note={recent === undefined ? (step.state.value.loading ? '' : 'no step times') : stateOf(job) === 'hang' ? 'until it hung; no step is made now' : `${number(1 / recent, 3)} steps/s${job.ettr !== undefined ? ` · ${percent(job.ettr)} productive` : ''}${left !== undefined && !isOver(job) ? ` · ${duration(left)} left` : ''}`} />
    <Tile label="Who is slow?" tone={isSlow ? 'warn' : undefined} href={slow ? jobHref(job.id, isSlow ? `ranks/${slow.rank}` : 'ranks') : jobHref(job.id, 'ranks')}
      value={slow === undefined ? kNone : isSlow ? <>rank {slow.rank}{slow.node && <span class="unit">on <Name of={slow.node} /></span>}</> : 'nobody'}
      note={slow === undefined ? (!names || names.includes('busy_seconds') ? '' : 'ranks do not report how long they wait') : isSlow
        ? `computes ${ratio!.toFixed(1)} × as long as the median (${metricValue('busy_seconds', slow.value)} against ${metricValue('busy_seconds', slow.median)})` : `longest is rank ${slow.rank}, ${percent(Math.max(0, (ratio ?? 1) - 1))} above the median`} />
    <Tile label="What broke?" tone={bad || job.hang ? 'bad' : broken ? 'warn' : undefined} href={jobHref(job.id, 'events')}
      value={bad ? <>{bad.rank !== undefined ? `rank ${bad.rank}` : bad.class.replace(/_/g, ' ')}{bad.node && <span class="unit">on <Name of={bad.node} /></span>}</> : job.hang ? 'it hangs' : broken ? anomalyName(String(broken.data?.['anomaly'])) : failed.length ? plural(failed.length, 'restart') : 'nothing'}
      note={bad ? <Safe text={causeLine(bad)} most={90} /> : broken ? <>{broken.rank !== undefined ? `rank ${broken.rank} ` : ''}{broken.node && <>on <Name of={broken.node} /> </>}{broken.data?.['step'] !== undefined && `at step ${count(Number(broken.data['step']))}`}</> : again.length ? <Safe text={[before && whyAgain(before), repeatedText(job)].filter(Boolean).join('; ')} most={140} /> : job.warnings?.length ? plural(job.warnings.length, 'warning') : job.anomalies && Object.keys(job.anomalies).length ? 'no failure, no restart' : 'no anomaly was seen'} />
  </div>;
}

/** Why there is a generation after this one: who failed, or who asked when. */
function whyAgain(one: Generation): string {
  const cause = one.cause!;
  return isFailure(cause) ? `${cause.rank !== undefined ? `rank ${cause.rank}${cause.node ? ` on ${cause.node}` : ''}: ` : ''}${causeLine(cause)}` : `${cause.message}${askedAt(one)}`;
}

/** Queue, launch, rendezvous, steps, restarts on one line of time, with what happened on it. */
export function Timeline({job, events}: {job: Job; events: JobEvent[] | undefined}): JSX.Element | null {
  const end = seconds(job.finished_at) ?? now.value;
  const phases = phasesOf(job, end);
  const start = phases[0]?.from;
  if (start === undefined || end <= start) return null;
  const place = (at: number) => `${(Math.max(0, Math.min(1, (at - start) / (end - start))) * 100).toFixed(3)}%`;
  const marks = marksOf(job, events ?? []).filter((mark) => mark.time !== undefined && (mark.kind !== 'restart' || mark.asked)).slice(-400)
    .filter((mark, i, all) => mark.kind !== 'checkpoint' || i === 0 || Math.floor((mark.time! - start) / (end - start) * 80) !== Math.floor((all[i - 1]!.time! - start) / (end - start) * 80));
  return <div class="timeline">
    <div class="timeline-bar">{phases.map((phase, i) => <div key={i} class={`phase phase-${phase.kind}`} style={{left: place(phase.from), width: `calc(${place(phase.to - phase.from + start)} - 1px)`}}
      title={`${phase.label}: ${duration(phase.to - phase.from)}, from ${timeOfDay(phase.from)}`}><span>{/^(run|stalled)$/.test(phase.kind) && phase.to - phase.from > (end - start) * 0.08 ? phase.label : ''}</span></div>)}
      {marks.map((mark, i) => <span key={`m${i}`} class={`tick tick-${mark.kind}`} style={{left: place(mark.time!)}} title={`${timeOfDay(mark.time)} ${mark.label}`} />)}</div>
    <div class="timeline-axis quiet"><span>{dateTime(start)}</span><span class="grow" /><span>{job.finished_at ? dateTime(end) : 'now'}</span></div>
    <details class="twin-details"><summary>Phases as a table</summary><table class="numbers"><caption class="away">Phases</caption><thead><tr><th scope="col">phase</th><th scope="col">from</th><th scope="col">for</th></tr></thead>
      <tbody>{phases.map((phase, i) => <tr key={i}><th scope="row">{phase.label}</th><td>{timeOfDay(phase.from)}</td><td>{duration(phase.to - phase.from)}</td></tr>)}</tbody></table></details>
  </div>;
}

/** Every second since the submission in one of nine spans. */
export function SpanBar({job}: {job: Job}): JSX.Element | null {
  const spans = job.spans;
  if (!spans) return null;
  const total = kSpans.reduce((sum, [key]) => sum + (spans[key] ?? 0), 0);
  if (total <= 0) return null;
  const parts = kSpans.map(([key, title, what]) => ({key: key.replace('_seconds', ''), title, what, value: spans[key] ?? 0})).filter((part) => part.value > 0.0005 * total || part.key === 'productive');
  return <div class="spans"><div class="spans-bar" aria-hidden="true">{parts.map((part) => <span key={part.key} class={`span span-${part.key}`} style={{flexGrow: part.value / total}} title={`${part.title}: ${duration(part.value)}`} />)}</div>
    <ul class="legend">{parts.map((part) => <li key={part.key} title={part.what}><span class={`swatch span-${part.key}`} aria-hidden="true" />{part.title} <b>{duration(part.value)}</b> <span class="quiet">{percent(part.value / total, part.value / total < 0.1 ? 1 : 0)}</span></li>)}</ul></div>;
}

export function Overview({job, events}: JobPageProps): JSX.Element {
  const view = useView();
  const list = events.value.value;
  const names = useMetricNames(job);
  const marks = useMarks(job, list, view);
  const nonfinite = useNonfinite(job, list, view);
  const filter = query.value['metric'] ?? '';
  let pattern: RegExp | undefined;
  try {
    pattern = filter ? new RegExp(filter, 'i') : undefined;
  } catch {
    pattern = undefined;  // half a pattern while it is typed
  }
  const rest = (names ?? []).filter((name) => name !== 'loss' && (!pattern || pattern.test(name)));
  const order = (name: string) => (pinned.value.includes(name) ? -10 : 0) + (kFirstMetrics.includes(name) ? kFirstMetrics.indexOf(name) : 50);
  const charts = [...rest].sort((a, b) => order(a) - order(b) || a.localeCompare(b));
  const anomalies = anomaliesOf(list, job);
  const bad = job.cause && (job.state === 'failed' || !isOver(job)) ? job.cause : undefined;
  const before = !bad && !isOver(job) ? (job.attempts ?? []).flatMap((attempt) => attempt.generations).findLast((one) => one.cause) : undefined;
  const many = (ranksOf(job) ?? 1) > 1;
  const gone = expired(job, names);
  return <>
    {bad && <CauseBanner job={job} cause={bad} />}
    <HangBanner job={job} />
    {job.state === 'cancelled' && job.cause && <section class="banner"><p><Safe text={job.cause.message} most={240} /></p></section>}
    {job.pending_reason && !isOver(job) && job.state !== 'running' && <section class="banner"><h2>Waiting</h2><p><Safe text={job.pending_reason} most={400} />{job.expected_start && <> · the scheduler expects a start about <b>{dateTime(seconds(job.expected_start))}</b></>}</p></section>}
    {before && <section class={`banner ${isFailure(before.cause) ? 'banner-warn' : ''}`}><p><b>Restarted</b>{isFailure(before.cause) ? ' after ' : ': '}<Safe text={whyAgain(before)} most={240} /></p></section>}
    {gone ? <Expired /> : job.started_at && <Tiles job={job} events={list} names={names} />}
    {job.total_steps !== undefined && !isOver(job) && job.step !== undefined && <div class="job-progress"><progress max={job.total_steps} value={job.step} aria-label="Steps made" /><span class="quiet num">{count(job.step)} of {count(job.total_steps)} steps, {percent(job.step / job.total_steps)}</span></div>}
    {anomalies.length > 0 && <Card title="Anomalies" aside={<a href={jobHref(job.id, 'events', {kind: 'anomaly'})}>all</a>}><ul class="anomalies">{anomalies.slice(0, 5).map((event) => <li key={event.seq}><span class="chip chip-warn">{anomalyName(String(event.data?.['anomaly']))}</span>
      {event.rank !== undefined && <a href={jobHref(job.id, `ranks/${event.rank}`)}><b>rank {event.rank}</b></a>}{event.node && <span class="quiet">on <Name of={event.node} /></span>}<span><Safe text={plainly(event.data?.['message'])} most={500} /></span><span class="quiet when">{event.data?.['step'] !== undefined ? `step ${count(Number(event.data['step']))} · ` : ''}{timeOfDay(seconds(event.time))}</span></li>)}</ul></Card>}
    {job.started_at ? <>
      {!gone && <><ViewBar names={names} />
        <Card class="card-chart"><MetricChart job={job} metric="loss" marks={[...marks, ...nonfinite]} height={300} /></Card></>}
      <Card title="Phases"><Timeline job={job} events={list} /><SpanBar job={job} /></Card>
      <div class="chart-grid">{charts.map((name) => <Card key={name} class="card-chart"><MetricChart job={job} metric={name} marks={marks} height={160} small worst={many && /seconds$/.test(name) ? 2 : 0}
        aside={<button type="button" class="icon-button" aria-pressed={pinned.value.includes(name)} aria-label={`Pin ${metricTitle(name)}`} title="Keep in front" onClick={() => flip(pinned, name)}>{pinned.value.includes(name) ? '★' : '☆'}</button>} /></Card>)}</div>
      {(names?.length ?? 0) > 6 && <p class="filters"><label class="field-inline">Only metrics like <input type="search" value={filter} placeholder="regular expression" onInput={(event) => setQuery({metric: event.currentTarget.value})} /></label></p>}
    </> : <Card title="Phases"><Timeline job={job} events={list} /></Card>}
    {job.warnings && job.warnings.length > 0 && <Card title="Warnings"><ul class="plain">{job.warnings.map((text) => <li key={text}><Safe text={text} most={400} /></li>)}</ul></Card>}
  </>;
}

/** Where ranks reported a loss that is no number. */
function useNonfinite(job: Job, events: JobEvent[] | undefined, view: View): Mark[] {
  const ranks = [...new Set((events ?? []).filter((e) => e.kind === 'anomaly' && e.data?.['anomaly'] === 'nonfinite' && e.rank !== undefined).map((e) => e.rank!))].slice(0, 8);
  const {byTime} = view;
  const amount = useAmount(job, view);
  const {state} = useWork<Series>(ranks.length ? `nonfinite ${job.id} ${ranks} ${byTime}` : undefined,
    (stop) => get<Series>(`v1/jobs/${job.id}/series?metric=loss&ranks=${ranks.join(',')}&points=300${byTime ? '&x=time' : ''}`, stop), isOver(job) ? undefined : 20);
  const shift = view.x === 'rel' ? seconds(job.started_at) ?? 0 : 0;
  return useMemo(() => (state.value.value?.series ?? []).flatMap((one) => noNumbers(one).map(([x, what, more]): Mark =>
    ({x: view.amount ? (amount ? along(amount, x) : NaN) : x - shift, kind: 'nonfinite', label: `rank ${one.rank}: loss is ${what}`, more, href: jobHref(job.id, `ranks/${one.rank}`)}))), [state.value, shift, amount]);
}

