// Every rank: a picture over the steps, the spread, and a table of where each is now.
import {useSignal} from '@preact/signals';
import type {JSX} from 'preact';
import {useEffect, useMemo, useRef} from 'preact/hooks';
import {count, duration, loose, metricTitle, metricValue, number, plural} from '../lib/format';
import {append, decodeColumn, decodeHeat, leaveOpen, type Heat} from '../lib/heat';
import {heatPath, kColumns, kHeatOrder} from '../lib/paths';
import type {Rank, RankPage, StepsEvent} from '../types';
import {get, getBytes, parameters} from '../state/api';
import {isOver, throttled, useSteps, useWork} from '../state/data';
import {jobHref, query, setQuery} from '../state/router';
import {Card, Empty, Name, Safe, Show, State} from '../ui/basics';
import {Heatmap} from '../ui/heatmap';
import {Expired, expired, MetricChart, useMetricNames, useView, ViewBar} from '../ui/metric';
import {Table, type ColumnOf} from '../ui/table';
import {useMarks} from './overview';
import type {JobPageProps} from './job';

const kPage = 200;
const kRemembered = 100;
const kRefill = 5000;  // milliseconds
const kLate = 1500;

function withStep(heat: Heat, event: StepsEvent): Heat {
  return heat.columns === 0 ? heat : append(heat, event.step, decodeColumn(event.cells, event.low, event.high, heat.rows, heat.ranksPerRow), kColumns);
}

function HeatCard({job, metric, names, answered}: {job: JobPageProps['job']; metric: string; names: string[]; answered: () => void}): JSX.Element {
  const over = isOver(job);
  const live = useSignal<Heat | undefined>(undefined);
  const newest = useRef<StepsEvent[]>([]);
  const worst = query.value['order'] === 'worst';
  const {state, again} = useWork<Heat>(`heat ${job.id} ${metric} ${over}`, async (stop) => {
    let heat = decodeHeat(await getBytes(heatPath(job.id, metric), stop));
    if (!over) leaveOpen(heat);
    // Steps that came while it was on its way.
    for (const event of newest.current) if (event.metric === metric) heat = withStep(heat, event);
    live.value = undefined;
    return heat;
  }, over ? undefined : 30);
  const frame = useRef(0);
  const waiting = useRef<StepsEvent[]>([]);
  const start = useRef('');

  // Of a fast job the stream has some steps only; the others are asked for.
  const refill = useMemo(() => throttled(again, kRefill), []);
  useSteps(job.id, [metric], (event) => {
    const of = `${event.attempt} ${event.generation}`;
    if (start.current !== of) {
      // Steps that ranks started anew have not come to are undone; who began to look while they hung has those, too.
      if (start.current || state.peek().value) again();
      start.current = of;
      newest.current = [];
      waiting.current = [];
    }
    newest.current = [...newest.current.slice(1 - kRemembered), event];
    waiting.current.push(event);
    frame.current ||= requestAnimationFrame(() => {
      frame.current = 0;
      let heat = live.peek() ?? state.peek().value;
      for (const one of waiting.current.splice(0)) {
        if (!heat) continue;
        if (one.step > heat.firstStep + heat.columns * heat.stepsPerColumn) refill();
        heat = withStep(heat, one);
      }
      live.value = heat;
    });
  }, again, !over);
  useEffect(() => () => cancelAnimationFrame(frame.current), []);
  const {loading} = state.value;
  useEffect(() => { if (!loading) answered(); }, [loading]);
  return <Card title="Ranks × steps" aside={<>
    <label class="field-inline"><span class="away">Metric</span><select value={metric} onChange={(event) => setQuery({metric: event.currentTarget.value})}>{names.map((name) => <option key={name} value={name}>{metricTitle(name)}</option>)}</select></label>
    <button type="button" class="toggle" aria-pressed={worst} onClick={() => setQuery({order: worst ? undefined : 'worst'})}>highest on top</button></>}>
    <Show asked={state.value} what="the heatmap" again={again}>{(first) => {
      const heat = live.value ?? first;
      return heat.rows * heat.columns === 0 ? <Empty title={`No rank has reported ${metricTitle(metric).toLowerCase()}${over ? '' : ' yet'}`} />
        : <Heatmap heat={heat} metric={metric} worstFirst={worst} label={`${metricTitle(metric)} of every rank over the steps`} open={(rank) => { location.hash = jobHref(job.id, `ranks/${rank}`); }} />;
    }}</Show></Card>;
}

const ratioBar = (value: number, most: number, tone: string) => <span class="bar" aria-hidden="true"><span class={`bar-fill bar-${tone}`} style={{width: `${Math.max(0, Math.min(100, (value / (most || 1)) * 100)).toFixed(1)}%`}} /></span>;

/** The table of ranks: lockstepd sorts, the rows that are seen are asked for. */
function RankTable({job}: {job: JobPageProps['job']}): JSX.Element {
  const over = isOver(job);
  const sort = query.value['sort'] ?? 'rank';
  const want = useSignal(0);
  const rows = useRef(new Map<number, Rank>());
  const key = `ranks ${job.id} ${sort}`;
  const keyBefore = useRef(key);
  if (keyBefore.current !== key) {
    keyBefore.current = key;
    rows.current = new Map();
  }
  const first = Math.max(0, Math.floor(want.value / kPage) * kPage);
  const {state, again} = useWork<RankPage>(`${key} ${first}`, async (stop) => {
    const page = await get<RankPage>(`v1/jobs/${job.id}/ranks${parameters({sort, offset: first, limit: kPage * 2})}`, stop);
    page.items.forEach((one, i) => rows.current.set(first + i, one));
    return page;
  }, over ? undefined : 2);
  const before = useRef<RankPage | undefined>(undefined);
  if (state.value.value) before.current = state.value.value;
  const page = before.current;
  const has = (name: keyof Rank) => [...rows.current.values()].slice(0, 64).some((one) => one[name] !== undefined);
  const most = Math.max(...[...rows.current.values()].map((one) => loose(one.busy_seconds) ?? 0), 0);
  const plain = (name: 'loss' | 'step_seconds' | 'comm_wait_seconds' | 'data_wait_seconds', title: string): ColumnOf<Rank>[] => (has(name) ? [{key: name, title, right: true, sortable: true, wide: name !== 'step_seconds', cell: (one) => metricValue(name, one[name])}] : []);
  const columns: ColumnOf<Rank>[] = [
    {key: 'rank', title: 'Rank', sortable: true, cell: (one) => <a class="row-link" href={jobHref(job.id, `ranks/${one.rank}`)}><b>{one.rank}</b></a>},
    {key: 'state', title: 'State', cell: (one) => <State state={one.state} />},
    {key: 'node', title: 'Node', cell: (one) => <Name of={one.node} />},
    ...(has('role') ? [{key: 'role', title: 'Role', wide: true, cell: (one: Rank) => one.role}] : []),
    {key: 'step', title: 'Step', right: true, sortable: true, cell: (one) => count(one.step)},
    ...plain('loss', 'Loss'), ...plain('step_seconds', 'Step time'),
    ...(has('busy_seconds') ? [{key: 'busy_seconds', title: 'Compute', right: true, sortable: true, hint: 'Step time without waiting for other ranks or data', cell: (one: Rank) => <>{ratioBar(loose(one.busy_seconds) ?? 0, most, 'busy')}<span class="beside-bar">{metricValue('busy_seconds', one.busy_seconds)}</span></>}] : []),
    ...plain('comm_wait_seconds', 'Wait for others'), ...plain('data_wait_seconds', 'Wait for data'),
    ...(has('gpus') ? [{key: 'gpu', title: 'GPU', wide: true, cell: (one: Rank) => one.gpus?.map((g) => `${g.gpu}${g.utilization_ratio !== undefined ? ` ${Math.round(g.utilization_ratio * 100)} %` : ''}`).join(', ') ?? ''}] : []),
    {key: 'report_age_seconds', title: 'Last report', right: true, sortable: true, wide: true, cell: (one) => (one.report_age_seconds === undefined ? '' : over ? '' : `${duration(one.report_age_seconds)} ago`)},
    {key: 'exit', title: 'Exit', right: true, cell: (one) => (one.signal !== undefined ? `signal ${one.signal}` : one.exit_code !== undefined ? String(one.exit_code) : '')},
  ];
  return <Card title="Now" aside={<span class="quiet">{page ? `${plural(page.total ?? page.items.length, 'rank')}${page.ranks_reporting !== undefined ? `, ${count(page.ranks_reporting)} reporting` : ''}${loose(page.samples_per_second) ? `, ${number(page.samples_per_second)} samples/s` : ''}` : ''}</span>}>
    <Show asked={page ? {value: page, loading: false} : state.value} what="ranks" again={again}>{(shown) => {
      const total = shown.total ?? shown.items.length;
      return <Table label="Ranks" columns={columns} total={total} row={(i) => rows.current.get(i)} rowKey={(one) => one.rank} sort={sort} setSort={(next) => setQuery({sort: next === 'rank' ? undefined : next})}
        seen={(from) => { want.value = from; }} height={Math.min(560, 36 + 34 * Math.max(1, total))} href={(one) => jobHref(job.id, `ranks/${one.rank}`)} rowClass={(one) => (one.state === 'failed' || one.state === 'lost' ? 'row-bad' : '')} />;
    }}</Show></Card>;
}

export function Ranks({job, events}: JobPageProps): JSX.Element {
  const view = useView();
  const names = useMetricNames(job);
  const marks = useMarks(job, events.value.value, view);
  const sorted = useMemo(() => [...(names ?? [])].sort((a, b) => (kHeatOrder.indexOf(a) + 1 || 99) - (kHeatOrder.indexOf(b) + 1 || 99) || a.localeCompare(b)), [names]);
  const metric = query.value['metric'] && names?.includes(query.value['metric']) ? query.value['metric'] : sorted[0];
  // The picture first: ten thousand ranks in a table and their quantiles are work as well. They do not wait for long.
  const pictured = useSignal(false);
  useEffect(() => {
    const late = setTimeout(() => { pictured.value = true; }, kLate);
    return () => clearTimeout(late);
  }, []);
  if (!job.started_at) return <Empty title="No rank has been started yet">{job.pending_reason && <Safe text={job.pending_reason} most={300} />}</Empty>;
  return <>
    {expired(job, names) && <Expired />}
    {metric && <HeatCard job={job} metric={metric} names={sorted} answered={() => { pictured.value = true; }} />}
    {metric && pictured.value && <><ViewBar names={names} /><Card class="card-chart"><MetricChart key={metric} job={job} metric={metric} marks={marks} worst={4} title={`${metricTitle(metric)}: median, 5–95 %, extremes, highest ranks`} /></Card></>}
    {(pictured.value || (names && !metric)) && <RankTable job={job} />}
  </>;
}
