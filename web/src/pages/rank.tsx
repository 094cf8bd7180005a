// One rank beside all: where its time goes, its curves against the median, what it printed, what happened to it.
import type {JSX} from 'preact';
import {bytes, count, duration, kNone, loose, metricValue, number, percent, seconds, timeOfDay} from '../lib/format';
import {grafanaLink} from '../lib/export';
import {describe} from '../lib/story';
import type {Rank, RankPage, Series} from '../types';
import {get, parameters} from '../state/api';
import {isOver, useAsk, useWork} from '../state/data';
import {jobHref} from '../state/router';
import {identity} from '../state/session';
import {Card, Empty, Name, Safe, Show, State, Tile} from '../ui/basics';
import {Expired, expired, kFirstMetrics, MetricChart, useMetricNames, useView, ViewBar} from '../ui/metric';
import {GpuHistory} from './gpus';
import {LogView} from './logs';
import {CauseBanner, HangBanner, useMarks} from './overview';
import type {JobPageProps} from './job';

const kParts: [keyof Rank & string, string, string][] = [['busy_seconds', 'Compute', 'productive'], ['comm_wait_seconds', 'Wait for other ranks', 'rendezvous'], ['data_wait_seconds', 'Wait for data', 'lost']];

const kNewest = 30;  // steps

function Split({one, label}: {one: Partial<Rank>; label: string}): JSX.Element | null {
  const parts = kParts.map(([key, title, look]) => ({title, look, value: loose(one[key] as number) ?? 0})).filter((part) => part.value > 0);
  const total = parts.reduce((sum, part) => sum + part.value, 0);
  if (!total) return null;
  return <div class="split"><span class="quiet">{label}</span><div><div class="spans-bar" aria-hidden="true">{parts.map((part) => <span key={part.title} class={`span span-${part.look}`} style={{flexGrow: part.value / total}} />)}</div>
    <ul class="legend">{parts.map((part) => <li key={part.title}><span class={`swatch span-${part.look}`} aria-hidden="true" />{part.title} <b>{duration(part.value)}</b> <span class="quiet">{percent(part.value / total)}</span></li>)}</ul></div></div>;
}

export function RankView({job, events, rest}: JobPageProps): JSX.Element {
  const rank = Number(rest[0]);
  const over = isOver(job);
  const view = useView();
  const marks = useMarks(job, events.value.value, view);
  const names = useMetricNames(job);
  const {state, again} = useAsk<RankPage>(`v1/jobs/${job.id}/ranks?offset=${rank}&limit=1`, over ? undefined : 2);
  // Of every rank's last value in the newest steps.
  const {state: middles} = useWork<{items: Series[]}>(`medians ${job.id}`, (stop) => get(`v1/jobs/${job.id}/series${parameters({metric: [...kParts.map(([key]) => key), 'step_seconds'].join(),
    ranks: 'all', stat: 'median', points: 1, from: job.step && job.step - kNewest})}`, stop), over ? undefined : 5);
  const charts = [...kFirstMetrics, ...(names ?? [])].filter((name, i, all) => names?.includes(name) && all.indexOf(name) === i).slice(0, 6);
  const own = (events.value.value ?? []).filter((event) => event.rank === rank).slice(-12).reverse();
  return <Show asked={state.value} what={`rank ${rank}`} again={again}>{(page) => {
    const one = page.items.find((each) => each.rank === rank);
    if (!one) return <Empty title={`This job has no rank ${rank}`}>{page.total !== undefined && <a href={jobHref(job.id, 'ranks')}>It has {count(page.total)}</a>}</Empty>;
    const middle = (key: 'busy_seconds' | 'step_seconds' | 'comm_wait_seconds' | 'data_wait_seconds') => middles.value.value?.items.find((each) => each.metric === key)?.bands?.median?.[0] ?? undefined;
    const busy = loose(one.busy_seconds);
    const ratio = busy !== undefined && middle('busy_seconds') ? busy / middle('busy_seconds')! : undefined;
    const total = page.total ?? rank + 1;
    return <>
      <div class="rank-head"><h2>Rank {rank}</h2><State state={one.state} /><span class="quiet">{one.node && <>on <a href={`#/nodes?node=${encodeURIComponent(one.node)}`}><Name of={one.node} /></a>, </>}local rank {one.local_rank}{one.role ? `, ${one.role}` : ''}{one.pid !== undefined && `, pid ${one.pid}`}{one.exit_code !== undefined && `, exit code ${one.exit_code}`}{one.signal !== undefined && `, signal ${one.signal}`}</span>
        <span class="grow" />{identity.value?.grafana_url && job.started_at && <a class="button" href={grafanaLink(identity.value.grafana_url, 'rank', job, {'var-rank': String(rank), ...(one.node ? {'var-node': one.node} : {})})} target="_blank" rel="noopener">Rank {rank} in Grafana</a>}{!over && <a class="button" href={jobHref(job.id, 'profiles', {ranks: rank})}>Profile</a>}<span class="pair">{rank > 0 && <a class="button" href={jobHref(job.id, `ranks/${rank - 1}`)}>← Rank {rank - 1}</a>}{rank + 1 < total && <a class="button" href={jobHref(job.id, `ranks/${rank + 1}`)}>Rank {rank + 1} →</a>}</span></div>
      {job.hang?.rank === rank && <HangBanner job={job} />}
      {job.state === 'failed' && job.cause?.rank === rank && <CauseBanner job={job} cause={job.cause} />}
      {expired(job, names) ? <Expired /> : <div class="tiles">
        <Tile label="Step" value={<span class="num">{count(one.step)}</span>} note={one.report_age_seconds !== undefined && !over ? `reported ${duration(one.report_age_seconds)} ago` : undefined} />
        <Tile label="Loss" value={<span class="num">{number(one.loss)}</span>} />
        <Tile label="Step time" value={<span class="num">{metricValue('step_seconds', one.step_seconds)}</span>} note={middle('step_seconds') !== undefined && `median of all ${metricValue('step_seconds', middle('step_seconds'))}`} />
        <Tile label="Compute" tone={ratio !== undefined && ratio > 1.25 ? 'warn' : undefined} value={<span class="num">{busy === undefined ? kNone : duration(busy)}</span>} note={busy === undefined ? 'not reported' : ratio === undefined ? '' : ratio > 1.05 ? `${ratio.toFixed(2)} × the median of all` : 'as the others'} />
      </div>}
      {busy !== undefined && <Card title="Where a step goes"><Split one={one} label={`rank ${rank}`} /><Split one={{busy_seconds: middle('busy_seconds'), comm_wait_seconds: middle('comm_wait_seconds'), data_wait_seconds: middle('data_wait_seconds')}} label="median" /></Card>}
      {one.gpus && one.gpus.length > 0 && <Card title="GPUs"><ul class="legend">{one.gpus.map((g) => <li key={g.gpu}><b>GPU {g.gpu}</b> {g.utilization_ratio !== undefined && percent(g.utilization_ratio)} {g.memory_bytes !== undefined && bytes(g.memory_bytes)}{g.memory_total_bytes !== undefined && ` of ${bytes(g.memory_total_bytes)}`} {g.power_watts !== undefined && `${Math.round(g.power_watts)} W`} {g.temperature_celsius !== undefined && `${g.temperature_celsius} °C`}</li>)}</ul></Card>}
      {own.length > 0 && <Card title="What happened to it"><ul class="plain">{own.map((event) => <li key={event.seq} class={`weight-${describe(event).weight}`}><span class="quiet num">{timeOfDay(seconds(event.time))}</span> <Safe text={describe(event).text} most={400} /></li>)}</ul></Card>}
      {charts.length > 0 && <ViewBar names={names} />}
      <div class="chart-grid">{charts.map((name) => <Card key={name} class="card-chart"><MetricChart job={job} metric={name} ranks={[rank]} marks={marks} height={160} small /></Card>)}</div>
      <GpuHistory job={job} events={events.value.value} ranks={[rank]} />
      <Card title="Last lines" aside={<a href={jobHref(job.id, 'logs', {rank})}>whole log</a>}><LogView job={job} rank={rank} tail={200} height={300} follow /></Card>
    </>;
  }}</Show>;
}
