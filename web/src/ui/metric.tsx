// A metric of a job's ranks over steps or time: the median, what 90 % of the ranks are within, the outermost, the worst
// ranks by name. New steps are added as they are made.
import {useComputed, useSignal} from '@preact/signals';
import type {ComponentChildren, JSX} from 'preact';
import {useEffect, useMemo, useRef} from 'preact/hooks';
import {loose, metricTitle, metricValue, seconds} from '../lib/format';
import {promQl, seriesCommand} from '../lib/export';
import {allPath, namesPath} from '../lib/paths';
import {align, along, charted, countBefore, noNumbers, smooth, totals, withMade, zigzag, type Column, type Made, type Ramp, type Smoothing} from '../lib/series';
import type {Job, RankSeries, Series, StepsEvent, WorstRank} from '../types';
import {get, good, inTurn, parameters, together} from '../state/api';
import {isOver, useAsk, useSteps, useWork} from '../state/data';
import {query, setQuery} from '../state/router';
import {Segments, Toggle} from './basics';
import {Chart, type Fill, type Line, type Mark, type XKind} from './chart';

export interface View {
  x: XKind;
  byTime: boolean;
  /** Steps are counted in this metric of theirs. */
  amount?: Amount;
  zoom?: {min: number; max: number};
  smooth: number;
  by?: Smoothing;
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

type Amount = 'samples' | 'tokens';
/** The last two need ranks that report how much of it a step is. */
const kAxes: [XKind, string][] = [['step', 'Step'], ['time', 'Time of day'], ['rel', 'Since start'], ['samples', 'Samples'], ['tokens', 'Tokens']];

const kSmoothings: [Smoothing, string][] = [['ema', 'moving average'], ['mean', 'running mean'], ['gauss', 'Gaussian']];

export function useView(): View {
  const q = query.value;
  const x = kAxes.find(([one]) => one === q.x)?.[0] ?? 'step';
  const amount = x === 'samples' || x === 'tokens' ? x : undefined;
  const weight = Number(q.smooth);
  const zoomText = q.zoom;
  const zoom = useMemo(() => parseZoom(zoomText), [zoomText]);
  return {x, byTime: x === 'time' || x === 'rel', amount, zoom, smooth: weight > 0 && weight < 1 ? weight : 0, by: kSmoothings.find(([one]) => one === q.by)?.[0], logY: q.logy === '1', logX: q.logx === '1', clip: q.clip === '1'};
}

/** How many samples or tokens all ranks had taken in up to each step; undefined: not known yet, or not asked for. */
export function useAmount(job: Job, {amount}: View): Ramp | undefined {
  const {state} = useWork<Ramp>(amount && `amount ${job.id} ${amount}`, () => amountOf(job.id, amount!), isOver(job) ? undefined : 20);
  const ramp = amount && state.value.value;
  return ramp && ramp.x.length > 1 ? ramp : undefined;
}

let asked: {key: string; at: number; answer: Promise<Ramp>} | undefined;
/** Every chart of a page asks; lockstepd is asked once. */
export function amountOf(id: string, amount: Amount): Promise<Ramp> {
  const key = `${id} ${amount}`;
  if (asked?.key !== key || Date.now() - asked.at > 10_000) {
    asked = {key, at: Date.now(), answer: inTurn(() => get<Series>(`v1/jobs/${id}/series?metric=${amount}&ranks=all&stat=mean&points=600`)).then((one) => totals(one.bands))};
    asked.answer.catch(() => { asked = undefined; });
  }
  return asked.answer;
}

export function setZoom(zoom?: {min: number; max: number}): void {
  const digits = (v: number) => (Math.abs(v) > 1e8 ? v.toFixed(1) : Number(v.toPrecision(7)).toString());
  setQuery({zoom: zoom ? `${digits(zoom.min)}~${digits(zoom.max)}` : undefined});
}

/** What is above every page with charts: x axis, smoothing, axes, zoom. */
export function ViewBar({names}: {names?: string[]}): JSX.Element {
  const view = useView();
  const axes = kAxes.filter(([one], i) => i < 3 || one === view.x || names?.includes(one));
  return <div class="view-bar" role="group" aria-label="How charts are drawn">
    <Segments label="Horizontal axis" value={view.x} options={axes} set={(one) => setQuery({x: one === 'step' ? undefined : one, zoom: undefined})} />
    <label class="slider"><span>Smoothing</span><input type="range" min="0" max="0.99" step="0.01" value={view.smooth}
      onInput={(event) => setQuery({smooth: Number(event.currentTarget.value) || undefined})} /><output>{view.smooth.toFixed(2)}</output></label>
    {view.smooth > 0 && <select aria-label="Kind of average" value={view.by ?? 'ema'} onChange={(event) => setQuery({by: event.currentTarget.value === 'ema' ? undefined : event.currentTarget.value})}>{kSmoothings.map(([one, text]) => <option key={one} value={one}>{text}</option>)}</select>}
    <Toggle on={view.logY} set={(on) => setQuery({logy: on ? 1 : undefined})}>log y</Toggle>
    <Toggle on={view.logX} set={(on) => setQuery({logx: on ? 1 : undefined})}>log x</Toggle>
    <Toggle on={view.clip} set={(on) => setQuery({clip: on ? 1 : undefined})}>without outliers</Toggle>
    {view.zoom && <button type="button" class="toggle pressed" onClick={() => setZoom(undefined)}>Reset zoom</button>}
  </div>;
}

const kQuantiles = ['min', 'p5', 'median', 'p95', 'max'] as const;
/** `cells` has every rank's value of a step. */
interface Step extends Made {event: StepsEvent; cells: string}

const kLive = 600;
const kDraw = 90;
const kOld = 5;  // so many may have been on their way while lockstepd answered

/** The history of a metric with its quantiles, and what has come since. */
export function useMetric(job: Job, metric: string, view: View, options: {points?: number; worst?: number; ranks?: number[]; amount?: Ramp; gpus?: boolean} = {}) {
  const {byTime} = view;
  const shift = view.x === 'rel' ? seconds(job.started_at) ?? 0 : 0;
  const {amount} = options;
  const zoom = view.zoom && view.amount ? amount && {min: along(amount, view.zoom.min, true), max: along(amount, view.zoom.max, true)} : view.zoom;
  const entity = options.gpus ? {entity: 'gpu'} : {};
  const path = allPath(job.id, metric, {...(options.gpus ? {...entity, ranks: undefined, gpus: 'all'} : {}), worst: options.worst || undefined, x: byTime ? 'time' : undefined, points: options.points ?? 600,
    from: zoom ? zoom.min + shift - (zoom.max - zoom.min) * 0.02 : undefined, to: zoom ? zoom.max + shift + (zoom.max - zoom.min) * 0.02 : undefined});
  const chosen = options.ranks?.length ? `v1/jobs/${job.id}/series${parameters({metric, ...entity, ranks: options.ranks.join(','), x: byTime ? 'time' : undefined, points: options.points ?? 600,
    from: zoom ? zoom.min + shift : undefined, to: zoom ? zoom.max + shift : undefined})}` : '';
  const live = useSignal<Step[]>([]);
  const over = isOver(job);
  // Steps may come ten times a second; a picture does not change more often.
  const pending = useMemo(() => ({list: [] as StepsEvent[], old: 0, timer: undefined as ReturnType<typeof setTimeout> | undefined}), []);
  // Steps and seconds do not compare: what has come since starts anew with the axis. In what is zoomed on it has no place.
  const axis = useRef(byTime);
  const start = useRef<number | undefined>(undefined);  // the newest of the ranks that is known
  useEffect(() => {
    axis.current = byTime;
    live.value = [];
    pending.list = [];
  }, [byTime, !zoom]);
  const {state, again} = useWork<{all: Series; ranks?: Series}>(`${path} ${chosen} ${over}`, async (stop) => {
    const asked = start.current;
    const ask = async (from: string, until?: AbortSignal) => (await inTurn(() => good(from, until))).json() as Promise<Series>;
    // The whole history is shown in two places of a page; who has zoomed on does not wait for where that was.
    const [all, ranks] = await Promise.all([zoom ? ask(path, stop) : together(path, () => ask(path)), chosen ? ask(chosen, stop) : undefined]);
    // What came while the answer was on its way, or is newer than what is stored, stays; so does all of a start that it may not know of.
    const last = all.bands?.x.at(-1) ?? -Infinity;
    live.value = live.peek().filter((one) => one.x > last || one.start > (asked ?? one.start));
    return {all, ranks};
  }, over ? undefined : options.gpus ? 5 : zoom ? 10 : 20);
  useSteps(job.id, [metric], (event) => take(event), again, !over && !zoom && !options.gpus);
  const take = (event: StepsEvent) => {
    pending.list.push(event);
    pending.timer ??= setTimeout(() => {
      pending.timer = undefined;
      let next = live.peek();
      const last = state.peek().value?.all.bands?.x.at(-1) ?? -Infinity;
      for (const event of pending.list.splice(0)) {
        if (!event.quantiles) continue;
        const one = {x: axis.current ? (event.time ?? Date.now() / 1000) : event.step, step: event.step, start: (event.attempt ?? 0) * 1e6 + (event.generation ?? 0), event, cells: atob(event.cells)};
        next = withMade(next, one, last, start.current);
        // Steps that are made again: what lockstepd has of them is asked for. Whoever begins to look then sees that they go on and are not new.
        if (one.start > (start.current ?? one.start) || (one.x <= last && ++pending.old === kOld)) again();
        start.current = Math.max(start.current ?? 0, one.start);
      }
      live.value = next.slice(-kLive);
    }, kDraw);
  };
  useEffect(() => () => clearTimeout(pending.timer), []);
  const bands = useComputed(() => {
    const answer = state.value.value?.all;
    const base = answer?.bands ?? {x: []};
    const more = live.value;
    const before = countBefore(base.x, more[0]?.x ?? Infinity);
    const out = {x: [...base.x.slice(0, before), ...more.map((one) => one.x)]} as {x: number[]} & Record<(typeof kQuantiles)[number], Column>;
    for (const name of kQuantiles) out[name] = [...(base[name]?.slice(0, before) ?? []), ...more.map((one) => loose(one.event.quantiles![name]) ?? null)];
    return out;
  });
  return {state, bands, shift, live};
}

/** What one rank reported in a step of the stream. */
function valueOf({event, cells}: Step, rank: number): number | null {
  const cell = cells.charCodeAt(rank);
  return cell > 0 && cell < 255 ? event.low + ((cell - 1) / 253) * (event.high - event.low) : null;
}

const kDashes = [[6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [10, 4], [1, 3]];

export function MetricChart({job, metric, marks, height, worst = 0, ranks, aside, title, sync = 'job', small, gpus, children}: {
  job: Job; metric: string; marks?: Mark[]; height?: number; worst?: number; ranks?: number[]; aside?: ComponentChildren; title?: string; sync?: string;
  small?: boolean; children?: ComponentChildren;
  /** Of the job's GPUs; ranks: of theirs. */
  gpus?: boolean;
}): JSX.Element {
  const view = useView();
  const amount = useAmount(job, view);
  const {state, bands, shift, live} = useMetric(job, metric, view, {worst, ranks, amount, gpus});
  const made = live.value;
  const b = bands.value;
  const answer = state.value.value;
  const built = useMemo(() => {
    const called = (one: RankSeries | WorstRank) => (gpus ? `${one.node} GPU ${one.gpu}` : `rank ${one.rank}`);
    const many = b.max.some((v, i) => v !== null && v !== b.min[i]) && (answer?.all.worst !== undefined || job.resources.nodes !== 1 || job.resources.ranks_per_node !== 1);
    const named = [...(answer?.ranks?.series.map((one) => ({rank: one.rank, label: called(one), points: one.points})) ?? []),
      ...(answer?.all.worst?.filter((one) => one.points?.length).map((one) => ({rank: one.rank, label: called(one), points: one.points!})) ?? [])];
    const extra = named.map((one) => {
      const line = zigzag(one.points);
      const before = countBefore(line.x, made[0]?.x ?? Infinity);
      return {x: [...line.x.slice(0, before), ...made.map((step) => step.x)], y: [...line.y.slice(0, before), ...made.map((step) => valueOf(step, one.rank))]};
    });
    const {x, columns} = extra.length ? align([{x: b.x, y: b.median}, {x: b.x, y: b.p5}, {x: b.x, y: b.p95}, {x: b.x, y: b.min}, {x: b.x, y: b.max}, ...extra])
      : {x: b.x, columns: [b.median, b.p5, b.p95, b.min, b.max]};
    const [medians, p5, p95, min, max, ...rest] = columns as [Column, Column, Column, Column, Column, ...Column[]];
    const lines: Line[] = [{label: many ? 'median' : 'value', values: view.smooth ? smooth(medians, view.smooth, view.by) : medians, colour: 'series-1'}];
    const fills: Fill[] = [];
    if (many) {
      lines.push({label: 'p5', values: p5, colour: 'band-edge', faint: true}, {label: 'p95', values: p95, colour: 'band-edge', faint: true},
        {label: 'min', values: min, colour: 'band-edge', faint: true}, {label: 'max', values: max, colour: 'band-edge', faint: true});
      fills.push({low: 1, high: 2, colour: 'band'}, {low: 3, high: 4, colour: 'band-outer'});
    }
    if (view.smooth) lines.push({label: 'raw', values: medians, colour: 'series-1', faint: true});
    rest.forEach((values, i) => {
      const {label} = named[i]!;
      if (lines.some((line) => line.label === label)) return;
      lines.push({label, values: view.smooth ? smooth(values, view.smooth, view.by) : values, colour: `series-${(i % 6) + 2}`, dash: kDashes[i % kDashes.length]});
    });
    const place = (at: number) => (view.amount ? (amount ? along(amount, at) : NaN) : at - shift);
    const nothing = (answer?.ranks?.series ?? []).flatMap((one) => noNumbers(one).map(([at, what, more]): Mark => ({x: place(at), kind: 'nonfinite', label: `${called(one)}: ${metricTitle(metric)} is ${what}`, more})));
    return {x: view.amount && !amount ? [] : x.map(place), lines, fills, nothing};
  }, [b, answer, view.smooth, view.by, shift, view.amount, amount]);
  return <>
    <Chart title={title ?? metricTitle(metric)} name={`${job.name}-${metric}`} x={built.x} lines={built.lines} fills={built.fills} marks={built.nothing.length ? [...marks ?? [], ...built.nothing] : marks} xKind={view.x} height={height}
      zoom={view.zoom} setZoom={setZoom} logY={view.logY} logX={view.logX && !view.byTime} clip={view.clip} format={(value, digits) => metricValue(metric, value, digits)} small={small}
      command={gpus ? undefined : seriesCommand(job.id, metric)} promQl={promQl(job.id, metric)} sync={sync} aside={aside} fold={metric} loading={state.value.loading}
      empty={state.value.loading ? 'Loading…' : state.value.error ? state.value.error.message : isOver(job) ? `Nothing was reported.${metric === 'loss' && job.state === 'succeeded' ? ' See lockstep explain capture' : ''}` : 'Nothing was reported yet.'} />{children}</>;
}

/** Names of what the ranks of a job report, as far as it is shown as charts; undefined: not known yet. */
export function useMetricNames(job: Job): string[] | undefined {
  const names = useAsk<{items: string[]}>(job.started_at ? namesPath(job.id) : undefined, isOver(job) ? undefined : 15).state.value.value?.items;
  return useMemo(() => names && charted(names), [names]);
}

/** Its ranks made steps, and what they reported has been removed: curves that are not there are no sign that nothing was reported. */
export const expired = (job: Job, names: string[] | undefined): boolean => isOver(job) && job.step !== undefined && names?.length === 0;

export function Expired(): JSX.Element {
  return <section class="banner"><h2>What its ranks reported is no longer kept</h2>
    <p>lockstepd keeps histories for <code>--history-days</code>, up to <code>--history-mb</code>.</p></section>;
}

/** The metrics that are shown first, in this order, where a job has them. */
export const kFirstMetrics = ['loss', 'step_seconds', 'busy_seconds', 'comm_wait_seconds', 'data_wait_seconds', 'grad_norm'];
