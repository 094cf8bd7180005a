// What every GPU of a job does now, by node, with the last minutes of it while the page is open; what all of them did,
// after the job's end too; and what their drivers reported.
import type {JSX} from 'preact';
import {useRef} from 'preact/hooks';
import {bytes, count, duration, kNone, percent, seconds, timeOfDay} from '../lib/format';
import {median} from '../lib/series';
import {describe} from '../lib/story';
import type {GpuList, Job, JobEvent, RankPage} from '../types';
import {isOver, useAsk} from '../state/data';
import {jobHref, query, setQuery} from '../state/router';
import {Card, Empty, More, Name, Safe, Segments, Show} from '../ui/basics';
import {MetricChart, useView, ViewBar} from '../ui/metric';
import {Sparkline} from '../ui/sparkline';
import {useMarks} from './overview';
import type {JobPageProps} from './job';

type Gpu = NonNullable<RankPage['items'][number]['gpus']>[number];

const kEvery = 2;  // seconds
const kKept = 150;  // looks: five minutes
const kShown = 256;  // GPUs of a node
const kReports = 100;
const kWhat = {
  use: {title: 'Utilization', of: (g: Gpu) => g.utilization_ratio, text: (v: number) => percent(v)},
  memory: {title: 'Memory', of: (g: Gpu) => (g.memory_used_bytes !== undefined && g.memory_total_bytes ? g.memory_used_bytes / g.memory_total_bytes : undefined), text: (v: number) => percent(v)},
  power: {title: 'Power', of: (g: Gpu) => g.power_watts, text: (v: number) => `${Math.round(v)} W`},
  heat: {title: 'Temperature', of: (g: Gpu) => g.temperature_celsius, text: (v: number) => `${Math.round(v)} °C`},
};
type What = keyof typeof kWhat;

/** Shown where the driver knows them, in this order. Counters that only grow are left to `series` and exports. */
const kHistory = ['utilization_ratio', 'memory_used_bytes', 'power_watts', 'temperature_core_celsius', 'sm_active_ratio', 'tensor_active_ratio', 'dram_active_ratio', 'clock_sm_hertz'].map((name) => `gpu_${name}`);

/** Charts of the GPUs of a job, or of some of its ranks beside all. */
export function GpuHistory({job, events, ranks}: {job: Job; events: JobEvent[] | undefined; ranks?: number[]}): JSX.Element | null {
  const {state} = useAsk<GpuList>(job.started_at ? `v1/jobs/${job.id}/gpus?limit=1` : undefined, isOver(job) ? undefined : 20);
  const marks = useMarks(job, events, useView());
  const {total = 0, metrics} = state.value.value ?? {};
  const shown = kHistory.filter((name) => metrics?.includes(name));
  if (!shown.length) return null;
  return <>{!ranks && <ViewBar />}<div class="chart-grid">{shown.map((name) => <Card key={name} class="card-chart"><MetricChart job={job} metric={name} gpus ranks={ranks} worst={!ranks && total > 1 ? 2 : 0} marks={marks} height={160} small /></Card>)}</div></>;
}

export function Gpus({job, events}: JobPageProps): JSX.Element {
  const over = isOver(job);
  const {state, again} = useAsk<RankPage>(`v1/jobs/${job.id}/ranks?limit=1000`, over ? undefined : kEvery);
  const recent = useRef(new Map<string, Gpu[]>());
  const seen = useRef<RankPage | undefined>(undefined);
  const what: What = (query.value['show'] ?? '') in kWhat ? query.value['show'] as What : 'use';
  const xids = (events.value.value ?? []).filter((event) => event.kind === 'gpu_xid').reverse();
  const trouble = xids.length > 0 && <Card title="What drivers reported"><ol class="events">{xids.slice(0, kReports).map((event) => <li key={event.seq} class="event weight-bad"><span class="event-time num quiet">{timeOfDay(seconds(event.time))}</span><span class="event-text"><Safe text={describe(event).text} most={300} /></span></li>)}</ol><More of={xids.length} most={kReports} what="report">, earlier ones: <a href={jobHref(job.id, 'events')}>all events</a></More></Card>;
  const history = <GpuHistory job={job} events={events.value.value} />;
  return <>{trouble}<Show asked={state.value} what="GPUs" again={again}>{(page) => {
    const all = page.items.flatMap((rank) => (rank.gpus ?? []).map((gpu) => ({key: `${rank.node} ${gpu.gpu}`, node: rank.node ?? '', rank: rank.rank, gpu})));
    if (seen.current !== page) {
      seen.current = page;
      for (const {key, gpu} of all) recent.current.set(key, [...(recent.current.get(key) ?? []).slice(1 - kKept), gpu]);
    }
    if (!all.length) {
      return <Empty title={over ? 'Nothing runs on a GPU any more' : 'No rank has a process on a GPU'}>{job.resources.gpus_per_node ? 'Numbers come from NVIDIA’s driver while ranks run.' : 'The job asked for none.'}</Empty>;
    }
    const {title, of, text} = kWhat[what];
    const values = all.map((one) => of(one.gpu)).filter((v): v is number => v !== undefined).sort((a, b) => a - b);
    const middle = median(values);
    const top = Math.max(what === 'use' || what === 'memory' ? 1 : 0, ...[...recent.current.values()].flat().map((one) => of(one) ?? 0));
    const nodes = [...new Set(all.map((one) => one.node))];
    return <Card title={title} aside={<><span class="quiet">{middle !== undefined && `${(page.total ?? 0) > page.items.length ? `of the first ${count(page.items.length)} of ${count(page.total)} ranks: ` : ''}median ${text(middle)}, from ${text(values[0]!)} to ${text(values[values.length - 1]!)}`}</span>
      <Segments label="Show" value={what} options={Object.entries(kWhat).map(([key, one]): [What, string] => [key as What, one.title])} set={(show) => setQuery({show: show === 'use' ? undefined : show})} /></>}>
      {nodes.map((node) => [node, all.filter((one) => one.node === node)] as const).map(([node, own]) => <section key={node} class="gpu-node" aria-label={node}><h3><Name of={node} /></h3><ul class="gpu-grid">{own.slice(0, kShown).map(({key, rank, gpu}) => {
        const value = of(gpu);
        const past = (recent.current.get(key) ?? []).map((one) => of(one) ?? null);
        return <li key={key} class="gpu"><a href={jobHref(job.id, `ranks/${rank}`)}>GPU {gpu.gpu}<span class="quiet"> rank {rank}</span></a><b class="num">{value === undefined ? kNone : text(value)}</b>
          <Sparkline values={past} label={`${title} of the last ${duration(past.length * kEvery)}`} width={150} height={26} most={top} />
          <span class="quiet">{gpu.memory_used_bytes !== undefined && bytes(gpu.memory_used_bytes)}{gpu.power_watts !== undefined && ` · ${Math.round(gpu.power_watts)} W`}{gpu.temperature_celsius !== undefined && ` · ${Math.round(gpu.temperature_celsius)} °C`}</span></li>;
      })}</ul><More of={own.length} most={kShown} what="GPU" /></section>)}</Card>;
  }}</Show>{history}</>;
}
