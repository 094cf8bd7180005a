// Runs side by side: their curves, what was different, their values at the same steps.
import {useSignal} from '@preact/signals';
import type {JSX} from 'preact';
import {useMemo} from 'preact/hooks';
import {count, dateTime, metricTitle, metricValue, seconds} from '../lib/format';
import {diffJson} from '../lib/spec';
import {pointText} from '../lib/sweep';
import {align, charted, near, nearestIndex, smooth, along, type Ramp} from '../lib/series';
import type {Job, Page, Series} from '../types';
import {get, inTurn, parameters, type ApiError} from '../state/api';
import {isOver, useWork} from '../state/data';
import {jobHref, query, setQuery} from '../state/router';
import {Card, Empty, More, Safe, Show, State} from '../ui/basics';
import {Chart, type Line} from '../ui/chart';
import {amountOf, kFirstMetrics, setZoom, useView, ViewBar} from '../ui/metric';

const kMost = 10;
const kFields = 60;
const kDashes: (number[] | undefined)[] = [undefined, [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [10, 4], [1, 3]];

interface Run {job: Job; spec: Record<string, unknown>; metrics: string[]}

/** Runs of a sweep share a name. */
const called = ({name, sweep}: Job): string => (sweep?.parameters ? `${name} ${pointText(sweep.parameters)}` : name);

function Overlay({runs, metric}: {runs: Run[]; metric: string}): JSX.Element {
  const view = useView();
  const {byTime, amount} = view;
  const {state} = useWork<[Series, Ramp?][]>(`overlay ${metric} ${byTime} ${amount} ${runs.map((run) => run.job.id)}`, (stop) => Promise.all(runs.map(async ({job}) => [await inTurn(() => get<Series>(`v1/jobs/${job.id}/series${parameters({metric, ranks: 'all', stat: 'median', points: 500, x: byTime ? 'time' : undefined})}`, stop)),
    amount && await amountOf(job.id, amount)] as [Series, Ramp?])), runs.every(({job}) => isOver(job)) ? undefined : 5);
  const built = useMemo(() => {
    const all = state.value.value ?? [];
    // By time every run begins at 0: they did not run at the same time of day.
    const own = all.map(([one, ramp], i) => (one.bands?.x ?? []).map((at) => (byTime ? at - (seconds(runs[i]!.job.started_at) ?? 0) : ramp ? along(ramp, at) : at)));
    const {x, columns} = align(own.map((x, i) => ({x, y: all[i]![0].bands?.median ?? []})));
    return {x, own, lines: columns.map((values, i): Line => ({label: `${i + 1} ${called(runs[i]!.job)}`.slice(0, 40), values: smooth(values, view.smooth, view.by), colour: `series-${(i % 7) + 1}`, dash: kDashes[i % 7]}))};
  }, [state.value, view.smooth, view.by]);
  const steps = built.x.length ? [0.1, 0.25, 0.5, 0.75, 1].map((share) => built.x[Math.min(built.x.length - 1, Math.round(share * (built.x.length - 1)))]!) : [];
  return <Card class="card-chart"><Chart title={metricTitle(metric)} name={`compare-${metric}`} x={built.x} lines={built.lines} xKind={byTime ? 'rel' : view.x} height={metric === 'loss' ? 300 : 220} zoom={view.zoom} setZoom={setZoom} logY={view.logY} logX={view.logX && !view.byTime} clip={view.clip} format={(value, digits) => metricValue(metric, value, digits)} sync="compare" />
    {metric === 'loss' && view.x === 'step' && steps.length > 0 && <div class="twin" tabIndex={0} role="region" aria-label="At the same steps"><table class="numbers"><caption class="away">At the same steps</caption><thead><tr><th scope="col">run</th>{steps.map((step) => <th key={step} scope="col">step {count(step)}</th>)}</tr></thead>
      <tbody>{built.lines.map((line, i) => <tr key={line.label}><th scope="row"><Safe text={line.label} /></th>{steps.map((step) => { const at = near(built.own[i]!, step); return <td key={step}>{metricValue(metric, at === undefined ? at : line.values[nearestIndex(built.x, at)])}</td>; })}</tr>)}</tbody></table></div>}</Card>;
}


export function Compare(): JSX.Element {
  const ids = (query.value['jobs'] ?? '').split(',').filter((id) => /^ls-/.test(id)).slice(0, kMost);
  const adding = useSignal('');
  const over = useSignal(false);
  const {state: list} = useWork<Page<Job>>('compare list', (stop) => get(`v1/jobs?limit=100&fields=id,name,state,submitted_at,user,framework,labels,resources`, stop));
  const {state} = useWork<{runs: Run[]; gone: string[]}>(ids.length ? `compare ${ids}` : undefined, async (stop) => {
    const gone: string[] = [];
    const all = await Promise.all(ids.map((id) => Promise.all([get<Job>(`v1/jobs/${id}`, stop), get<Record<string, unknown>>(`v1/jobs/${id}/spec`, stop), get<{items: string[]}>(`v1/jobs/${id}/metrics`, stop)])
      .then(([job, spec, metrics]): Run[] => [{job, spec, metrics: charted(metrics.items)}], (error: ApiError) => {
        // The others are worth showing without it.
        if (error.status !== 404) throw error;
        gone.push(id);
        return [];
      })));
    return {runs: all.flat(), gone};
  }, over.value ? undefined : 5);
  over.value = !!state.value.value?.runs.every((run) => isOver(run.job));
  const set = (next: string[]) => setQuery({jobs: next.join(',')});
  const others = (list.value.value?.items ?? []).filter((job) => !ids.includes(job.id) && `${job.name} ${job.id}`.includes(adding.value));
  return <div class="page"><h1 class="page-title">Compare</h1>
    <div class="filters"><input type="search" placeholder="Find a run" aria-label="Find a run" value={adding.value} onInput={(event) => { adding.value = event.currentTarget.value; }} />
      <select aria-label="Add a run" value="" onChange={(event) => set([...ids, event.currentTarget.value].slice(-kMost))}><option value="">add a run ({others.length})</option>{others.slice(0, 100).map((job) => <option key={job.id} value={job.id}>{job.name} · {job.state} · {dateTime(seconds(job.submitted_at))}</option>)}</select></div>
    {ids.length === 0 ? <Empty title="Choose two runs or more">Add them above, or tick them in the list of <a href="#/jobs">jobs</a>.</Empty>
      : <Show asked={state.value} what="the runs">{({runs, gone}) => {
        const paths = runs.map((run) => diffJson(runs[0]!.spec, run.spec));
        const fields = [...new Set(paths.flat().map((one) => one.path))].sort();
        const shown = [...kFirstMetrics, ...runs.flatMap((run) => run.metrics)].filter((name, i, all) => all.indexOf(name) === i && runs.some((run) => run.metrics.includes(name))).slice(0, 12);
        return <>
          {gone.map((id) => <div key={id} class="filters"><span class="bad" role="status">There is no job <Safe text={id} most={60} />, or it is not yours to see.</span><button type="button" class="button" onClick={() => set(ids.filter((one) => one !== id))}>Leave it out</button></div>)}
          {runs.length > 0 && <><div class="table-wrap" tabIndex={0} role="region" aria-label="Runs"><table class="table"><caption class="away">Runs and what is different</caption><thead><tr><th scope="col">Run</th>{runs.map((run, i) => <th key={run.job.id} scope="col"><svg width="22" height="6" aria-hidden="true"><line x1="0" x2="22" y1="3" y2="3" stroke-width="2" class={`stroke-series-${(i % 7) + 1}`} stroke-dasharray={kDashes[i % 7]?.join(' ')} /></svg> {i + 1} <a href={jobHref(run.job.id)}><Safe text={called(run.job)} most={60} /></a> <button type="button" class="icon-button" aria-label={`Take ${run.job.name} away`} onClick={() => set(ids.filter((id) => id !== run.job.id))}>✕</button></th>)}</tr></thead>
            <tbody><tr><th scope="row">state</th>{runs.map((run) => <td key={run.job.id}><State state={run.job.state} /></td>)}</tr><tr><th scope="row">step</th>{runs.map((run) => <td key={run.job.id}>{count(run.job.step)}</td>)}</tr>
              {fields.slice(0, kFields).map((path) => <tr key={path}><th scope="row"><code>{path}</code></th>{runs.map((run, i) => { const own = paths[i]!.find((one) => one.path === path); const base = paths.flat().find((one) => one.path === path)?.a; const value = own ? own.b : base; return <td key={run.job.id} class={own ? 'plus' : ''}>{value === undefined ? <span class="quiet">not there</span> : <code class="diff"><Safe text={value} most={200} /></code>}</td>; })}</tr>)}</tbody></table></div><More of={fields.length} most={kFields} what="different field" />
          <ViewBar names={['samples', 'tokens'].filter((name) => runs.every((run) => run.metrics.includes(name)))} />{shown.map((metric) => <Overlay key={metric} runs={runs} metric={metric} />)}</>}</>;
      }}</Show>}</div>;
}
