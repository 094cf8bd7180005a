// A metric of a job's ranks over steps or time: the median, what 90 % of the ranks are within, the outermost, the worst
// ranks by name. New steps are added as they are made.
import {useComputed, useSignal} from '@preact/signals';
import type {ComponentChildren, JSX} from 'preact';
import {useEffect, useMemo} from 'preact/hooks';
import {metricTitle, metricValue, seconds} from '../lib/format';
import {promQl, seriesCommand} from '../lib/export';
import {align, smooth, zigzag, type Column} from '../lib/series';
import type {Job, Series, StepsEvent} from '../types';
import {getText, inTurn, parameters} from '../state/api';
import {isOver, useSteps, useWork} from '../state/data';
import {query, setQuery} from '../state/router';
import {Segments, Toggle} from './basics';
import {Chart, type Fill, type Line, type Mark, type XKind} from './chart';

export interface View {
  x: XKind;
  zoom?: {min: number; max: number};
  smooth: number;
  logY: boolean;
  logX: boolean;
  clip: boolean;
}

export function parseZoom(text: string | undefined): {min: number; max: number} | undefined {
  const match = /^(-?[\d.e+-]+?)~(-?[\d.e+-]+)$/.exec(text ?? '');
  if (!match) return undefined;
  const [min, max] = [Number(match[1]), Number(match[2])];
  return min < max ? {min, max} : undefined;
}

export function useView(): View {
  const q = query.value;
  const x = q.x === 'time' || q.x === 'rel' ? q.x : 'step';
  const weight = Number(q.smooth);
  const zoomText = q.zoom;
  const zoom = useMemo(() => parseZoom(zoomText), [zoomText]);
  return {x, zoom, smooth: weight > 0 && weight < 1 ? weight : 0, logY: q.logy === '1', logX: q.logx === '1', clip: q.clip === '1'};
}

export function setZoom(zoom?: {min: number; max: number}): void {
  const digits = (v: number) => (Math.abs(v) > 1e8 ? v.toFixed(1) : Number(v.toPrecision(7)).toString());
  setQuery({zoom: zoom ? `${digits(zoom.min)}~${digits(zoom.max)}` : undefined});
}

/** What is above every page with charts: x axis, smoothing, axes, zoom. */
export function ViewBar(): JSX.Element {
  const view = useView();
  return <div class="view-bar" role="group" aria-label="How charts are drawn">
    <Segments label="Horizontal axis" value={view.x} options={[['step', 'Step'], ['time', 'Time of day'], ['rel', 'Since start']]} set={(one) => setQuery({x: one === 'step' ? undefined : one, zoom: undefined})} />
    <label class="slider"><span>Smoothing</span><input type="range" min="0" max="0.99" step="0.01" value={view.smooth}
      onInput={(event) => setQuery({smooth: Number(event.currentTarget.value) || undefined})} /><output>{view.smooth.toFixed(2)}</output></label>
    <Toggle on={view.logY} set={(on) => setQuery({logy: on ? 1 : undefined})}>log y</Toggle>
    <Toggle on={view.logX} set={(on) => setQuery({logx: on ? 1 : undefined})}>log x</Toggle>
    <Toggle on={view.clip} set={(on) => setQuery({clip: on ? 1 : undefined})}>without outliers</Toggle>
    {view.zoom && <button type="button" class="toggle pressed" onClick={() => setZoom(undefined)}>Reset zoom</button>}
  </div>;
}

interface Live {x: number[]; min: Column; p5: Column; median: Column; p95: Column; max: Column}
const nothing = (): Live => ({x: [], min: [], p5: [], median: [], p95: [], max: []});

export interface Slow {rank: number; node?: string; score?: number}

/** The history of a metric with its quantiles, and what has come since. */
export function useMetric(job: Job, metric: string, view: View, options: {points?: number; worst?: number; ranks?: number[]} = {}) {
  const byTime = view.x !== 'step';
  const start = seconds(job.started_at) ?? 0;
  const shift = view.x === 'rel' ? start : 0;
  const zoom = view.zoom;
  const path = `v1/jobs/${job.id}/series${parameters({metric, ranks: 'all', stat: 'min,p5,median,p95,max', worst: options.worst || undefined,
    x: byTime ? 'time' : undefined, points: options.points ?? 600,
    from: zoom ? zoom.min + shift - (zoom.max - zoom.min) * 0.02 : undefined, to: zoom ? zoom.max + shift + (zoom.max - zoom.min) * 0.02 : undefined})}`;
  const chosen = options.ranks?.length ? `v1/jobs/${job.id}/series${parameters({metric, ranks: options.ranks.join(','), x: byTime ? 'time' : undefined, points: options.points ?? 600,
    from: zoom ? zoom.min + shift : undefined, to: zoom ? zoom.max + shift : undefined})}` : '';
  const live = useSignal<Live>(nothing());
  const over = isOver(job);
  const {state, again} = useWork<{all: Series; ranks?: Series}>(`${path} ${chosen} ${over}`, async (stop) => {
    const ask = async (from: string) => JSON.parse((await inTurn(() => getText(from, stop))).text) as Series;
    const [all, ranks] = await Promise.all([ask(path), chosen ? ask(chosen) : undefined]);
    live.value = nothing();
    return {all, ranks};
  }, over ? undefined : zoom ? 10 : 20);
  useSteps(job.id, [metric], (event) => take(event), again, !over && !zoom);
  // Steps may come ten times a second; the picture changes four times at most.
  const pending = useMemo(() => ({list: [] as StepsEvent[], timer: undefined as ReturnType<typeof setTimeout> | undefined}), []);
  const take = (event: StepsEvent) => {
    pending.list.push(event);
    pending.timer ??= setTimeout(() => {
      pending.timer = undefined;
      const before = live.peek();
      const next: Live = {x: [...before.x], min: [...before.min], p5: [...before.p5], median: [...before.median], p95: [...before.p95], max: [...before.max]};
      const known = state.peek().value?.all.bands?.x ?? [];
      for (const one of pending.list.splice(0)) {
        const x = byTime ? (one.time ?? Date.now() / 1000) : one.step;
        const lastX = next.x[next.x.length - 1] ?? known[known.length - 1] ?? -Infinity;
        if (!one.quantiles || x <= lastX) continue;
        next.x.push(x);
        for (const name of ['min', 'p5', 'median', 'p95', 'max'] as const) next[name].push(one.quantiles[name]);
      }
      if (next.x.length !== before.x.length) live.value = next;
    }, 100);
  };
  useEffect(() => () => clearTimeout(pending.timer), []);
  const bands = useComputed(() => {
    const answer = state.value.value?.all;
    const base = answer?.bands ?? {x: []};
    const more = live.value;
    const join = (a: (number | null)[] | undefined, b: Column): Column => [...(a ?? []), ...b];
    return {x: [...base.x, ...more.x], min: join(base.min, more.min), p5: join(base.p5, more.p5), median: join(base.median, more.median),
      p95: join(base.p95, more.p95), max: join(base.max, more.max), count: base.count};
  });
  return {state, bands, shift, again};
}

const kDashes = [[6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [10, 4], [1, 3]];

export function MetricChart({job, metric, marks, height, worst = 0, ranks, aside, title, sync = 'job', small, children}: {
  job: Job; metric: string; marks?: Mark[]; height?: number; worst?: number; ranks?: number[]; aside?: ComponentChildren; title?: string; sync?: string;
  small?: boolean; children?: ComponentChildren;
}): JSX.Element {
  const view = useView();
  const {state, bands, shift} = useMetric(job, metric, view, {worst, ranks});
  const b = bands.value;
  const answer = state.value.value;
  const built = useMemo(() => {
    const many = b.max.some((v, i) => v !== null && v !== b.min[i]) && (answer?.all.worst !== undefined || job.resources.nodes !== 1 || job.resources.ranks_per_node !== 1);
    const named = [...(answer?.ranks?.series.map((one) => ({rank: one.rank, points: one.points})) ?? []),
      ...(answer?.all.worst?.filter((one) => one.points?.length).map((one) => ({rank: one.rank, points: one.points!})) ?? [])];
    const extra = named.map((one) => zigzag(one.points));
    const {x, columns} = extra.length ? align([{x: b.x, y: b.median}, {x: b.x, y: b.p5}, {x: b.x, y: b.p95}, {x: b.x, y: b.min}, {x: b.x, y: b.max}, ...extra])
      : {x: b.x, columns: [b.median, b.p5, b.p95, b.min, b.max]};
    const [medians, p5, p95, min, max, ...rest] = columns as [Column, Column, Column, Column, Column, ...Column[]];
    const lines: Line[] = [{label: many ? 'median' : 'value', values: view.smooth ? smooth(medians, view.smooth) : medians, colour: 'series-1'}];
    const fills: Fill[] = [];
    if (many) {
      lines.push({label: 'p5', values: p5, colour: 'band-edge', faint: true}, {label: 'p95', values: p95, colour: 'band-edge', faint: true},
        {label: 'min', values: min, colour: 'band-edge', faint: true}, {label: 'max', values: max, colour: 'band-edge', faint: true});
      fills.push({low: 1, high: 2, colour: 'band'}, {low: 3, high: 4, colour: 'band-outer'});
    }
    if (view.smooth) lines.push({label: 'raw', values: medians, colour: 'series-1', faint: true});
    rest.forEach((values, i) => {
      const label = `rank ${named[i]!.rank}`;
      if (lines.some((line) => line.label === label)) return;
      lines.push({label, values: view.smooth ? smooth(values, view.smooth) : values, colour: `series-${(i % 6) + 2}`, dash: kDashes[i % kDashes.length]});
    });
    return {x: shift ? x.map((at) => at - shift) : x, lines, fills};
  }, [b, answer, view.smooth, shift]);
  return <>
    <Chart title={title ?? metricTitle(metric)} name={`${job.name}-${metric}`} x={built.x} lines={built.lines} fills={built.fills} marks={marks} xKind={view.x} height={height}
      zoom={view.zoom} setZoom={setZoom} logY={view.logY} logX={view.logX} clip={view.clip} format={(value) => metricValue(metric, value)} small={small}
      command={seriesCommand(job.id, metric)} promQl={promQl(job.id, metric)} sync={sync} aside={aside}
      empty={state.value.loading ? 'Loading…' : state.value.error ? state.value.error.message : 'Nothing was reported yet.'} />{children}</>;
}

/** The metrics that are shown first, in this order, where a job has them. */
export const kFirstMetrics = ['loss', 'step_seconds', 'busy_seconds', 'comm_wait_seconds', 'data_wait_seconds', 'grad_norm'];
