// History as columns a chart can draw.
import type {Bands, Loose, Point, RankSeries} from '../types';
import {loose} from './format';

export type Column = (number | null)[];

export interface Lines {
  x: number[];
  columns: Column[];
}

export type Smoothing = 'ema' | 'mean' | 'gauss';

/** Gaps stay gaps; `weight` 0…0.999. ema: the debiased exponential moving average, as TensorBoard has it. mean and gauss look
 *  ahead as far as back; their windows are as wide as that average is long: (1 + weight) / (1 - weight) points, and a normal
 *  curve of the same variance. */
export function smooth(values: Column, weight: number, kind: Smoothing = 'ema'): Column {
  if (weight <= 0) return values;
  if (kind !== 'ema') {
    const half = weight / (1 - weight);
    const sigma = (2 * half + 1) / Math.sqrt(12);
    const reach = Math.ceil(kind === 'mean' ? half : 3 * sigma);
    return values.map((value, i) => {
      if (value === null || !Number.isFinite(value)) return null;
      let [sum, shares] = [0, 0];
      for (let j = Math.max(0, i - reach); j <= i + reach && j < values.length; j++) {
        const other = values[j] ?? NaN;
        const share = kind === 'mean' ? 1 : Math.exp(-(((j - i) / sigma) ** 2) / 2);
        if (Number.isFinite(other)) [sum, shares] = [sum + share * other, shares + share];
      }
      return sum / shares;
    });
  }
  let last = 0;
  let n = 0;
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return null;
    last = last * weight + (1 - weight) * value;
    n++;
    return last / (1 - weight ** n);
  });
}

/** The ordered union of xs with each series' values at them: what uPlot calls aligned data. */
export function align(series: {x: number[]; y: Column}[]): Lines {
  const all = new Set<number>();
  for (const one of series) for (const x of one.x) all.add(x);
  const x = [...all].sort((a, b) => a - b);
  const place = new Map(x.map((value, index) => [value, index]));
  const columns = series.map((one) => {
    const column: Column = new Array<number | null>(x.length).fill(null);
    one.x.forEach((value, index) => {
      column[place.get(value)!] = one.y[index] ?? null;
    });
    return column;
  });
  return {x, columns};
}

/** min and max of each bucket one after the other, so that every extreme is drawn; in the order last comes last. */
export function zigzag(points: Point[]): {x: number[]; y: Column} {
  const x: number[] = [];
  const y: Column = [];
  points.forEach((point, index) => {
    const [at, low, high, last] = point;
    if (low === null || high === null || low === high) {
      x.push(at);
      y.push(last);
      return;
    }
    const next = points[index + 1]?.[0] ?? at + (at - (points[index - 1]?.[0] ?? at - 1));
    const half = at + (next - at) / 2;
    const rising = last !== null && Math.abs(last - high) < Math.abs(last - low);
    x.push(at, half);
    y.push(rising ? low : high, rising ? high : low);
  });
  return {x, y};
}

/** Ascending xs and what stands at each: a line of straight pieces that goes on beyond its ends. */
export interface Ramp {x: number[]; y: number[]}

/** How much there was of it in all ranks up to each step, of the mean rank's share of a step. A step that a restart makes
 *  again counts once. */
export function totals(bands: Bands | undefined): Ramp {
  const out: Ramp = {x: [0], y: [0]};
  bands?.x.forEach((step, i) => {
    const before = out.x[out.x.length - 1]!;
    if (step <= before) return;
    out.x.push(step);
    out.y.push(out.y[out.y.length - 1]! + (step - before) * (bands.mean?.[i] ?? 0) * (bands.count?.[i] ?? 0));
  });
  return out;
}

/** y at x, or the other way round; NaN of less than two points. */
export function along({x, y}: Ramp, at: number, back = false): number {
  const [from, to] = back ? [y, x] : [x, y];
  let low = 0;
  let high = from.length - 1;
  if (high < 1) return NaN;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (from[middle]! <= at) low = middle;
    else high = middle;
  }
  return to[low]! + (from[high]! > from[low]! ? ((at - from[low]!) / (from[high]! - from[low]!)) * (to[high]! - to[low]!) : 0);
}

/** The p1 and p99 of what is finite, and the newest values, which are looked at first, if they are no farther off than those are
 *  from each other; undefined if there is nothing to leave out. */
export function usual(columns: Column[]): {low: number; high: number} | undefined {
  const all: number[] = [];
  for (const column of columns) for (const value of column) if (value !== null && Number.isFinite(value)) all.push(value);
  if (all.length < 20) return undefined;
  all.sort((a, b) => a - b);
  const low = all[Math.floor(all.length * 0.01)]!;
  const high = all[Math.ceil(all.length * 0.99) - 1]!;
  const newest = columns.map((column) => column.filter((value) => value !== null && Number.isFinite(value)).at(-1) ?? low).filter((value) => value >= 2 * low - high && value <= 2 * high - low);
  return low < high ? {low: Math.min(low, ...newest), high: Math.max(high, ...newest)} : undefined;
}

/** A step of the stream. Starts of the ranks are numbered, later ones higher. */
export interface Made {x: number; step: number; start: number}

/** What has come since the history was asked for, which ends at `last`, with a step more. Ranks that are started anew from a
 *  checkpoint make steps again: what was made from there on is undone. */
export function withMade<T extends Made>(made: T[], one: T, last: number, start = one.start): T[] {
  const before = made.at(-1);
  if (one.start > (before?.start ?? start)) return [...made.filter(({step}) => step < one.step), one];
  return one.start < (before?.start ?? start) || one.x <= (before?.x ?? last) ? made : [...made, one];
}

/** How many of ascending xs are before x. */
export function countBefore(xs: number[], x: number): number {
  const at = xs.findIndex((one) => one >= x);
  return at < 0 ? xs.length : at;
}

/** What of low..high a logarithmic axis can show of ascending xs: from the first that is more than 0, a decade at least. */
export function aboveZero(low: number, high: number, xs: number[]): [number, number] {
  return [low > 0 ? low : Math.min(xs.find((x) => x > 0) ?? high, high / 10), high];
}

/** Where x is in ascending xs: the index of the nearest; -1 of none. */
export function nearestIndex(xs: ArrayLike<number>, x: number): number {
  let low = 0;
  let high = xs.length - 1;
  if (high < 0) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle]! <= x) low = middle;
    else high = middle;
  }
  return x - xs[low]! <= xs[high]! - x ? low : high;
}

/** The nearest of ascending xs, which are what a line was reduced to; undefined beyond its ends, by more than twice the distance of two. */
export function near(xs: number[], x: number): number | undefined {
  const one = xs[nearestIndex(xs, x)];
  return one === undefined || Math.abs(one - x) * xs.length > 2 * (xs.at(-1)! - xs[0]!) ? undefined : one;
}

/** Where a series is no number, what it is there, and how many more it stands for. lockstepd keeps the first ones and knows how many
 *  there are; the others are where a point has no last value. */
export function noNumbers({nonfinite = [], nonfinite_total = 0, points = []}: Partial<Pick<RankSeries, 'nonfinite' | 'nonfinite_total' | 'points'>>): [at: number, what: string, more: number][] {
  const last = nonfinite.at(-1);
  const later = last ? points.filter((point) => point[0] > last[0] && point[3] === null).map(([at]): typeof last => [at, last[1]]) : [];
  const all = [...nonfinite, ...later];
  const sharers = later.length || 1;
  const first = all.length - sharers;
  const upTo = (i: number) => Math.floor((Math.max(0, nonfinite_total - all.length) * Math.max(0, i - first)) / sharers);
  return all.map(([at, what], i) => [at, what, upTo(i + 1) - upTo(i)]);
}

/** How the last tenth compares with the tenth before it: −0.12 is 12 % lower. undefined: too little to say. */
export function trend(values: Column): number | undefined {
  const finite = values.filter((v): v is number => v !== null && Number.isFinite(v));
  if (finite.length < 10) return undefined;
  const size = Math.max(3, Math.floor(finite.length / 8));
  const mean = (list: number[]) => list.reduce((sum, v) => sum + v, 0) / list.length;
  const now = mean(finite.slice(-size));
  const before = mean(finite.slice(-2 * size, -size));
  return before === 0 ? undefined : (now - before) / Math.abs(before);
}

export function median(values: (Loose | undefined)[]): number | undefined {
  const sorted = values.map((v) => loose(v)).filter((v): v is number => v !== undefined && Number.isFinite(v)).sort((a, b) => a - b);
  return sorted.length ? (sorted[(sorted.length - 1) >> 1]! + sorted[sorted.length >> 1]!) / 2 : undefined;
}

/** Metrics that are worth a chart: how long the run is to be and how many reports were bad are no curves. */
export const charted = (names: string[]): string[] => names.filter((name) => name !== 'total_steps' && name !== 'bad_reports');
