// The scheduler's side: what waits and why, nodes and what they were blamed for, and lockstepd about itself.
import type {JSX} from 'preact';
import {useMemo} from 'preact/hooks';
import {ago, bytes, clock, count, dateTime, duration, metricValue, number, plural, seconds} from '../lib/format';
import {histogram, parseMetrics, quantile, type Sample} from '../lib/metrics';
import {kListFields} from '../lib/paths';
import {anomalyName, ranksOf} from '../lib/story';
import type {Cluster, Job, NodeInfo, Page, Use} from '../types';
import {get, getText, parameters} from '../state/api';
import {now} from '../state/clock';
import {useAsk, useWork} from '../state/data';
import {jobHref, query, setQuery} from '../state/router';
import {Card, Code, CopyButton, Empty, Grid, More, Name, Safe, Segments, Show, State, Tile, ofSweep} from '../ui/basics';

const kNodes = 5000;
const kNewest = 200;  // of each state
const kWaiting = ['queued', 'accepted', 'held', 'requeued', 'starting'];

function UseBar({use, what}: {use?: Use; what: string}): JSX.Element | null {
  if (!use?.usable) return null;
  return <span class="use"><progress max={use.usable} value={use.used ?? 0} aria-label={`${what} in use`} /><span class="num quiet">{count(use.used)} / {count(use.usable)} {what}</span></span>;
}

function ClusterCard({cluster}: {cluster: Cluster}): JSX.Element {
  return <Card title={cluster.name ? `${cluster.name} (${cluster.scheduler})` : cluster.scheduler} aside={<span class="quiet">{cluster.seen_at && `seen ${ago(seconds(cluster.seen_at), now.value)}`}</span>}>
    {!cluster.reachable && <p class="bad" role="alert">The scheduler does not answer: <Safe text={cluster.problem ?? ''} most={300} /></p>}
    <div class="row"><span>{cluster.nodes && <><b>{count(cluster.nodes.usable)}</b> of {plural(cluster.nodes.total ?? 0, 'node')} usable, <b>{count(cluster.nodes.idle)}</b> idle</>}</span><UseBar use={cluster.cpus} what="CPUs" /><UseBar use={cluster.gpus} what="GPUs" /></div>
    {cluster.partitions.length > 0 && <Grid label="Partitions" heads={['Partition', 'State', '>Idle nodes', 'CPUs', 'GPUs', '>?Longest']} rows={cluster.partitions.map((one) =>
      [<><Safe text={one.name} />{one.default && <span class="quiet"> default</span>}</>, one.state, `${count(one.nodes?.idle)} / ${count(one.nodes?.total)}`, <UseBar use={one.cpus} what="" />, <UseBar use={one.gpus} what="" />, one.max_time ?? 'unlimited'])} />}</Card>;
}

export function Queue(): JSX.Element {
  const {state: cluster} = useAsk<Cluster>('v1/cluster', 5);
  const {state} = useWork<{jobs: Job[]; cut: string[]}>('queue', async (stop) => {
    const pages = await Promise.all(kWaiting.map((one) => get<Page<Job>>(`v1/jobs${parameters({state: one, limit: kNewest, fields: kListFields})}`, stop)));
    return {jobs: pages.flatMap((page) => page.items), cut: kWaiting.filter((_, i) => pages[i]!.next_cursor)};
  }, 4);
  const {state: recent} = useAsk<Page<Job>>(`v1/jobs?limit=200&fields=id,state,submitted_at,started_at`, 30);
  const waits = (recent.value.value?.items ?? []).map((job) => (seconds(job.started_at) ?? NaN) - (seconds(job.submitted_at) ?? NaN)).filter((wait) => wait >= 0);
  const classes: [string, number][] = [['under 10 s', 10], ['under 1 min', 60], ['under 10 min', 600], ['under 1 h', 3600], ['under 6 h', 21_600], ['longer', Infinity]];
  let below = 0;
  const bars = classes.map(([label, limit]) => { const upTo = waits.filter((wait) => wait < limit).length; const n = upTo - below; below = upTo; return {label, n}; });
  return <div class="page"><h1 class="page-title">Queue</h1>
    {cluster.value.value && <ClusterCard cluster={cluster.value.value} />}
    <Show asked={state.value} what="the queue">{({jobs, cut}) => (jobs.length === 0 ? <Card><Empty title="Nothing waits">Every job that was submitted runs or is over.</Empty></Card>
      : <>{cut.map((one) => <p key={one} class="quiet">Of those that are {one} only the {kNewest} newest are here: <a href={`#/jobs?state=${one}`}>all</a></p>)}<Grid framed label="Jobs that wait" heads={['Job', 'State', '?User', '>?Ranks', '>Waits', '?Expected', 'Why']} rows={[...jobs].sort((a, b) => a.submitted_at.localeCompare(b.submitted_at) || (a.sweep?.index ?? 0) - (b.sweep?.index ?? 0)).map((job) =>
        [<a class="row-link" href={jobHref(job.id)}><b><Safe text={job.name} most={60} /></b>{ofSweep(job)}</a>, <State state={job.state} />, <bdi>{job.user}</bdi>, count(ranksOf(job)), clock(now.value - (seconds(job.submitted_at) ?? now.value)),
          job.expected_start ? dateTime(seconds(job.expected_start)) : <span class="quiet">not known</span>, <Safe text={job.pending_reason ?? ''} most={300} />])} /></>)}</Show>
    {waits.length > 0 && <Card title="How long jobs waited" aside={<span class="quiet">the last {waits.length}</span>}><table class="bars"><caption class="away">How long jobs waited</caption><thead class="away"><tr><th scope="col">Time</th><td /><th scope="col">Jobs</th></tr></thead><tbody>{bars.map((bar) => <tr key={bar.label}><th scope="row">{bar.label}</th><td><span class="bar-long"><span class="bar-fill" style={{width: `${(bar.n / waits.length) * 100}%`}} /></span></td><td class="right num">{bar.n}</td></tr>)}</tbody></table></Card>}
  </div>;
}

function NodeDetail({name}: {name: string}): JSX.Element {
  const {state, again} = useAsk<NodeInfo>(`v1/nodes/${encodeURIComponent(name)}`, 10);
  return <Card title={name} aside={<button type="button" class="icon-button" aria-label="Close" onClick={() => setQuery({node: undefined})}>✕</button>}>
    {state.value.error?.status === 404 ? <p class="quiet">The scheduler knows no node of that name; a local job names its parts so (vm-n0 is on vm).</p> : <Show asked={state.value} what="the node" again={again}>{(node) => <>
      <p class="row"><span class={`chip ${node.usable ? 'chip-good' : 'chip-bad'}`}>{node.state}</span>{node.reason && <Safe text={node.reason} most={200} />}<span class="quiet">{count(node.cpus_used)} of {plural(node.cpus, 'CPU')}, {count(node.gpus_used)} of {plural(node.gpus, 'GPU')} in use{node.memory_mb !== undefined && `, ${bytes(node.memory_mb * 1048576)} memory`}</span></p>
      {node.jobs.length > 0 && <p>Runs {node.jobs.map((id) => <a key={id} class="chip" href={jobHref(id)}>{id}</a>)}</p>}
      {node.history && <p class="quiet">Since {dateTime(seconds(node.history.since))}: {plural(node.history.attempts, 'attempt')}, {plural(node.history.faults, 'fault')}, slow {plural(node.history.slow, 'time')}, left out {plural(node.history.excluded, 'time')}{node.history.healthy_at && `, last well ${ago(seconds(node.history.healthy_at), now.value)}`}</p>}
      {node.faults?.length ? <ol class="events">{node.faults.map((fault, i) => <li key={i} class="event"><span class="event-time num quiet">{dateTime(seconds(fault.time))}</span><span class="event-text"><span class="chip chip-warn">{anomalyName(fault.kind)}</span>{fault.gpu !== undefined && `GPU ${fault.gpu} `}<Safe text={fault.message ?? ''} most={300} /></span>{fault.job && <a href={jobHref(fault.job)}>job</a>}</li>)}</ol> : <p class="quiet">It was blamed for nothing in the last 90 days.</p>}</>}</Show>}</Card>;
}

export function Nodes(): JSX.Element {
  const q = query.value;
  const {state} = useWork<NodeInfo[]>(`nodes ${q['state'] ?? ''}`, async (stop) => {
    const all: NodeInfo[] = [];
    let cursor: string | undefined;
    do {
      const page: Page<NodeInfo> = await get<Page<NodeInfo>>(`v1/nodes${parameters({limit: 1000, cursor, state: q['state']})}`, stop);
      all.push(...page.items);
      cursor = page.next_cursor;
    } while (cursor && all.length < 20_000);
    return all;
  }, 5);
  const words = (q['q'] ?? '').toLowerCase();
  return <div class="page"><h1 class="page-title">Nodes</h1>
    <div class="filters" role="search"><input type="search" placeholder="Filter: name, partition, reason" aria-label="Filter nodes" value={q['q'] ?? ''} onInput={(event) => setQuery({q: event.currentTarget.value})} />
      <Segments label="State" value={q['state'] ?? ''} options={['', 'usable', 'unusable', 'idle']} set={(state) => setQuery({state})} /></div>
    {q['node'] && <NodeDetail key={q['node']} name={q['node']} />}
    <Show asked={state.value} what="nodes">{(all) => {
      const nodes = all.filter((node) => !words || `${node.name} ${node.partitions.join(' ')} ${node.reason ?? ''} ${node.state}`.toLowerCase().includes(words));
      const score = (node: NodeInfo) => (node.history ? node.history.faults_7d * 3 + node.history.faults + node.history.slow : 0);
      const offenders = nodes.filter((node) => score(node) > 0).sort((a, b) => score(b) - score(a)).slice(0, 20);
      if (!nodes.length) return <Empty title="No node is like that" />;
      return <>
        <Card title={plural(nodes.length, 'node')} aside={<span class="quiet">filled: in use · red: not usable · corner: blamed this week</span>}><div class="node-grid">{nodes.slice(0, kNodes).map((node) => <a key={node.name} href={`#/nodes?node=${encodeURIComponent(node.name)}`} title={`${node.name}: ${node.state}${node.reason ? `, ${node.reason}` : ''}`} aria-label={`${node.name}: ${node.state}`}
          class={`node ${node.usable ? (node.cpus_used || node.gpus_used ? 'node-used' : 'node-idle') : 'node-down'} ${node.history?.faults_7d ? 'node-blamed' : ''}`}>{nodes.length <= 60 ? <Name of={node.name} /> : null}</a>)}</div><More of={nodes.length} most={kNodes} what="node">; the filter finds them</More></Card>
        {offenders.length > 0 && <Card title="Blamed most, over all jobs"><Grid label="Nodes that were blamed" heads={['Node', '>Faults, 7 days', '>90 days', '>Slow', 'For', '>?Last']} rows={offenders.map((node) =>
          [<a class="row-link" href={`#/nodes?node=${encodeURIComponent(node.name)}`}><Name of={node.name} /></a>, node.history!.faults_7d, node.history!.faults, node.history!.slow, Object.entries(node.history!.by_kind).map(([kind, n]) => <span key={kind} class="chip">{n} × {anomalyName(kind)}</span>), ago(seconds(node.history!.last_fault_at), now.value)])} /></Card>}</>;
    }}</Show></div>;
}

const kLoops: [string, string][] = [['lockstep_event_loop_lag_seconds', 'Control thread is late by'], ['lockstep_store_fsync_duration_seconds', 'A write to disk takes'], ['lockstep_ingest_lag_seconds', 'Reports are this old when read'], ['lockstep_http_request_duration_seconds', 'An answer takes']];

export function System(): JSX.Element {
  const {state, again} = useWork<Sample[]>('metrics', async (stop) => parseMetrics(await getText('metrics?jobs=none', stop)), 5);
  const {state: ready} = useAsk<{status: string; version?: string}>('healthz', 10);
  const origin = location.origin + location.pathname.replace(/\/$/, '');
  const scrape = useMemo(() => `scrape_configs:\n  - job_name: lockstep\n    authorization: {credentials_file: /etc/prometheus/lockstep.token}\n    http_sd_configs:\n      - url: ${origin}/v1/prometheus/targets\n        authorization: {credentials_file: /etc/prometheus/lockstep.token}\n`, []);
  return <div class="page"><h1 class="page-title">System</h1><Show asked={state.value} what="lockstepd's own numbers" again={again}>{(samples) => {
    const value = (name: string, label?: string) => samples.filter((one) => one.name === name && (!label || one.labels.includes(label))).reduce((sum, one) => sum + one.value, 0);
    const at = value('process_start_time_seconds');
    const troubles = samples.filter((one) => /dropped|turned_away|violations|rejected|damaged|disconnects_total\{.*slow|slow/.test(`${one.name}{${one.labels}`) && /_total$/.test(one.name));
    return <>
      <div class="tiles">
        <Tile label="lockstepd" value={/version="([^"]*)"/.exec(samples.find((one) => one.name === 'lockstep_build_info')?.labels ?? '')?.[1] ?? ready.value.value?.version ?? ''} note={at ? `up for ${duration(now.value - at)}` : undefined} />
        <Tile label="Memory" value={bytes(value('process_resident_memory_bytes'))} note={`${number(value('process_cpu_seconds_total'), 3)} s of CPU, ${count(value('process_open_fds'))} files open`} />
        <Tile label="Agents" value={count(value('lockstep_agents_connected'))} note={`${count(value('lockstep_sse_clients'))} browsers and programs watch`} />
        <Tile label="History" value={bytes(value('lockstep_store_bytes', 'disk'))} note={`${count(value('lockstep_store_series'))} series in memory, ${count(value('lockstep_ingest_samples_total'))} samples taken`} />
      </div>
      <Card title="How long things take"><Grid label="Durations" heads={['What', '>median', '>99 %', '>count']} rows={kLoops.flatMap(([name, text]) => {
        const buckets = histogram(samples, name);
        const total = buckets[buckets.length - 1]?.[1];
        return total ? [[text, metricValue(name, quantile(buckets, 0.5)), metricValue(name, quantile(buckets, 0.99)), count(total)]] : [];
      })} /></Card>
      <Card title="Dropped, turned away, broken" aside={<span class="quiet">{count(troubles.filter((one) => one.value === 0).length)} of {count(troubles.length)} counters are 0</span>}>{troubles.some((one) => one.value > 0) && <Grid label="Counters of trouble" heads={['Counter', '>since the start']} rows={troubles.filter((one) => one.value > 0).map((one) => [<><code>{one.name.replace('lockstep_', '')}</code> <span class="quiet">{one.labels.replace(/"/g, '')}</span></>, <span class="warn">{count(one.value)}</span>])} />}</Card>
      <Card title="Prometheus" aside={<CopyButton text={scrape} label="Copy the configuration">Copy</CopyButton>}><Code text={scrape} label="Prometheus configuration" /><p class="quiet">Dashboards are in deploy/grafana, alerts in deploy/prometheus. A token for it: <code>lockstep token create prometheus --role viewer --scope metrics --expires 365d</code></p></Card></>;
  }}</Show></div>;
}

