import {describe, expect, it} from 'vitest';
import {bytes, clock, count, distinct, duration, loose, metricValue, number, parseRanks, rankRanges} from '../src/lib/format';
import {aboveZero, charted, align, along, countBefore, median, near, noNumbers, smooth, totals, trend, usual, withMade, zigzag} from '../src/lib/series';
import {histogram, parseMetrics, quantile} from '../src/lib/metrics';
import {jsonOf, numberOf} from '../src/lib/spec';
import {csv, grafanaLink, promQl, shellWord} from '../src/lib/export';

describe('format', () => {
  it('the median of an even number is the mean of the two in the middle', () => {
    expect([median([4, 'nan', 1, undefined]), median([3, 9, 1]), median([4, 1, 3, 2]), median([7]), median([])]).toEqual([2.5, 3, 2.5, 7, undefined]);
  });
  it('numbers', () => {
    expect([0, 0.0371234, 12.3456, 4812, 48123, 1.2e-7, 1e9].map((v) => number(v))).toEqual(['0', '0.03712', '12.35', '4812', '48\u2009123', '1.20e-7', '1.00e9']);
    expect([number('nan'), number('-inf'), number(undefined)]).toEqual(['NaN', '−∞', '–']);
    expect(loose('inf')).toBe(Infinity);
    expect(count(1234567)).toBe('1\u2009234\u2009567');
  });
  it('durations', () => {
    expect([0.000004, 0.038, 1.239, 185, 8040, 277_000].map((v) => duration(v))).toEqual(['4 µs', '38 ms', '1.24 s', '3 min 05 s', '2 h 14 min', '3 d 4 h']);
    // Rounded up it is one of the next unit.
    expect([0.00099999, 0.9996, 59.7].map((v) => duration(v))).toEqual(['1 ms', '1 s', '1 min 00 s']);
    expect([clock(42), clock(725), clock(11_049)]).toEqual(['0:42', '12:05', '3:04:09']);
    expect(bytes(1_234_567)).toBe('1.2 MB');
  });
  it('ranks', () => {
    expect(rankRanges([7, 0, 1, 2, 3, 3])).toBe('0-3,7');
    expect(parseRanks('0-3, 7,x')).toEqual([0, 1, 2, 3, 7]);
    expect(parseRanks('0-9999999').length).toBe(256);
  });
});

describe('series', () => {
  it('steps are counted in samples, and back', () => {
    // Two ranks of 64 each from step 1, one of 32 from step 11 on; columns have several steps, the second attempt made 15 again.
    const ramp = totals({x: [5, 10, 20, 15], count: [2, 2, 1, 1], mean: [64, 64, 32, 32]});
    expect(ramp).toEqual({x: [0, 5, 10, 20], y: [0, 640, 1280, 1600]});
    expect([0, 1, 10, 15, 30].map((step) => along(ramp, step))).toEqual([0, 128, 1280, 1440, 1920]);
    expect([128, 1440, 1920].map((amount) => along(ramp, amount, true))).toEqual([1, 15, 30]);
    expect(along(totals(undefined), 3)).toBeNaN();
  });
  it('a dashboard of the time the job ran', () => {
    const job = {id: 'ls-1', submitted_at: '2026-11-23T08:00:00Z', started_at: '2026-11-23T08:01:00Z'};
    expect(grafanaLink('https://g.example/base/', 'rank', job, {'var-rank': '3'})).toBe('https://g.example/base/d/lockstep-rank?var-job_id=ls-1&var-rank=3&from=1795420860000&to=now');
  });
  it('the average is debiased, and gaps stay gaps', () => {
    const out = smooth([1, 1, null, 1], 0.9);
    expect(out[2]).toBeNull();
    for (const i of [0, 1, 3]) expect(out[i]).toBeCloseTo(1, 12);
    expect(smooth([0, 10], 0.5)[1]).toBeCloseTo(20 / 3);
    // A window of (1 + 0.5) / (1 - 0.5) = 3 points, of those that are there.
    expect(smooth([0, 3, null, 6, 9], 0.5, 'mean')).toEqual([1.5, 1.5, null, 7.5, 7.5]);
    const bell = smooth([0, 0, 0, 1, 0, 0, 0], 0.5, 'gauss') as number[];
    expect(bell[3]).toBeGreaterThan(bell[2]!);
    expect(bell[2]).toBeCloseTo(bell[4]!);
    expect(bell[3]! / bell[2]!).toBeCloseTo(Math.exp(0.5 / (9 / 12)));  // sigma² of 3 points side by side: 9 / 12
    for (const kind of ['ema', 'mean', 'gauss'] as const) expect(smooth([5, 5, NaN, 5], 0.9, kind)).toEqual([5, 5, null, 5].map((v) => v && expect.closeTo(v, 9)));
  });
  it('aligns other steps', () => {
    expect(align([{x: [1, 3], y: [10, 30]}, {x: [2, 3], y: [5, 6]}])).toEqual({x: [1, 2, 3], columns: [[10, null, 30], [null, 5, 6]]});
  });
  it('draws both extremes of a bucket, its last value last', () => {
    expect(zigzag([[10, 1, 9, 8], [20, 2, 2, 2]])).toEqual({x: [10, 15, 20], y: [1, 9, 2]});
    expect(zigzag([[10, 1, 9, 2], [20, 2, 2, 2]]).y.slice(0, 2)).toEqual([9, 1]);
  });
  it('finds what is usual', () => {
    const values = [...Array.from({length: 200}, (_, i) => 1 + i / 1000), 1e6];
    expect(usual([values])!.high).toBeLessThan(2);
    expect(usual([[1, 2]])).toBeUndefined();
  });
  it('the newest value of a curve is usual, unless it is far off', () => {
    const falls = Array.from({length: 500}, (_, i) => 10 - i / 100);
    expect(usual([falls])!.low).toBe(falls.at(-1));
    expect(usual([falls.map((v) => -v)])!.high).toBe(-falls.at(-1)!);
    expect(usual([[...falls, 1e6]])!.high).toBeLessThanOrEqual(10);
    expect(usual([[...falls, NaN, null]])!.low).toBe(falls.at(-1));
  });
  it('steps that a restart makes again take the place of those that are undone', () => {
    const step = (n: number, start: number, x = n) => ({x, step: n, start});
    const run = (steps: [number, number][], last = 100, start?: number) => {
      let made: {x: number; step: number; start: number}[] = [];
      for (const [n, of] of steps) made = withMade(made, step(n, of), last, start);
      return made.map((one) => one.step);
    };
    expect(run([[100, 1], [101, 1], [103, 1], [102, 1], [103, 1]])).toEqual([101, 103]);
    // From the checkpoint at 101 on; what was on its way of the start before is undone, too.
    expect(run([[101, 1], [102, 1], [103, 1], [102, 2], [104, 1], [103, 2]])).toEqual([101, 102, 103]);
    // The checkpoint is older than what has come since: what was asked for ends before it.
    expect(run([[101, 1], [102, 1], [51, 2], [52, 2]])).toEqual([51, 52]);
    expect(run([[51, 2], [52, 2]], 100, 1)).toEqual([51, 52]);
    expect(run([[51, 2], [52, 2]], 100)).toEqual([]);
    // Over time nothing goes back but the steps.
    expect(withMade([step(60, 1, 1000), step(61, 1, 1001)], step(61, 2, 1050), 900)).toEqual([step(60, 1, 1000), step(61, 2, 1050)]);
    expect([countBefore([1, 2, 3], 3), countBefore([1, 2, 3], 0), countBefore([1, 2, 3], Infinity), countBefore([], 1)]).toEqual([2, 0, 3, 0]);
  });
  it('says how it goes', () => {
    expect(trend(Array.from({length: 80}, (_, i) => 100 - i))).toBeLessThan(-0.1);
    expect(trend([1, 2])).toBeUndefined();
  });
});

describe('the nearest of what a line was reduced to', () => {
  it('is there as long as the line is, however many others have points between', () => {
    const xs = Array.from({length: 500}, (_, i) => 14 + 25 * i);
    expect(near(xs, 117)).toBe(114);
    expect(near(xs, 1)).toBe(14);
    expect(near(xs, 12_500)).toBe(12_489);
    expect(near(xs, 12_600)).toBeUndefined();
    expect(near([300], 300)).toBe(300);
    expect(near([300], 301)).toBeUndefined();
    expect(near([], 1)).toBeUndefined();
  });
});

describe('what stands at the ticks of an axis', () => {
  it('has as many digits as it takes to tell one from the other', () => {
    const of = (metric: string, ...ticks: (number | null)[]) => distinct(ticks, (value, digits) => metricValue(metric, value, digits));
    expect(of('step_seconds', 0.5002, 0.5004)).toEqual(['500.2 ms', '500.4 ms']);
    expect(of('step_seconds', 12, 12.2, 12.4)).toEqual(['12 s', '12.2 s', '12.4 s']);
    expect(of('loss', 2.30001, 2.30002)).toEqual(['2.30001', '2.30002']);
    expect(of('loss', 0.1, null, null, 1)).toEqual(['0.1', '', '', '1']);
    expect(of('gpu_power_watts', 250.2, 250.4)).toEqual(['250 W', '250 W']);
  });
});

describe('values that are no numbers', () => {
  it('are counted beyond those that lockstepd keeps', () => {
    expect(noNumbers({nonfinite: [[61, 'nan'], [62, 'inf']], nonfinite_total: 3939})).toEqual([[61, 'nan', 0], [62, 'inf', 3937]]);
    expect(noNumbers({nonfinite: [[61, 'nan']], nonfinite_total: 1})).toEqual([[61, 'nan', 0]]);
    expect(noNumbers({})).toEqual([]);
  });
  it('are also where the last value of a point is none, behind those that lockstepd keeps', () => {
    // A loss that is NaN to its end is not to look as if it had recovered where the list ends.
    const points: [number, number | null, number | null, number | null][] = [[50, 1, 2, 2], [61, 1, 1, null], [70, null, null, null], [80, 1, 1, 1], [90, 1, 3, null]];
    expect(noNumbers({nonfinite: [[60, 'inf'], [61, 'nan']], nonfinite_total: 12, points})).toEqual([[60, 'inf', 0], [61, 'nan', 0], [70, 'nan', 4], [90, 'nan', 4]]);
    expect(noNumbers({points})).toEqual([]);
  });
});

describe('metrics', () => {
  const text = '# HELP x y\nx_bucket{le="0.1"} 50\nx_bucket{le="1"} 100\nx_bucket{le="+Inf"} 100\ny{a="b c"} 3\nz 4 1700\n';
  it('reads and sums', () => {
    const samples = parseMetrics(text);
    expect(samples.find((one) => one.name === 'y')).toEqual({name: 'y', labels: 'a="b c"', value: 3});
    expect(samples.find((one) => one.name === 'z')!.value).toBe(4);
    expect(quantile(histogram(samples, 'x'), 0.5)).toBeCloseTo(0.1);
    expect(quantile(histogram(samples, 'x'), 0.99)).toBeCloseTo(0.982);
  });
});

it('a CSV reads back', () => {
  expect(csv(['step', 'a "b", c'], [1, 2], [[0.5, null]])).toBe('step,"a ""b"", c"\r\n1,0.5\r\n2,\r\n');
  expect(shellWord("it's")).toBe(`'it'\\''s'`);
});

it('PromQL has the names that are exported, or there is none', () => {
  // step_seconds was lockstep_rank_step_seconds, which there is not.
  expect(promQl('ls-1', 'step_seconds')).toBe('quantile(0.5, lockstep_rank_step_time_seconds{job_id="ls-1"})');
  expect(promQl('ls-1', 'data_wait_seconds')).toBe('quantile(0.5, lockstep_rank_data_wait_seconds{job_id="ls-1"})');
  expect(promQl('ls-1', 'tokens')).toBe('quantile(0.5, rate(lockstep_rank_tokens_total{job_id="ls-1"}[5m]))');
  expect(promQl('ls-1', 'accuracy')).toBeUndefined();
});

it('on a logarithmic axis a run that begins with step 0 begins with its first step after that', () => {
  expect(aboveZero(0, 1000, [0, 10, 20, 1000])).toEqual([10, 1000]);
  expect(aboveZero(-5, 1000, [0, 10, 20, 1000])).toEqual([10, 1000]);
  expect(aboveZero(3, 1000, [0, 10, 1000])).toEqual([3, 1000]);
  // Never from nothing, nor of no length.
  for (const [low, high, xs] of [[0, 1, [0, 1]], [-1, 1, [0]], [0, 2, [1]], [0, 5, [0, 10]], [0, 1, []]] as [number, number, number[]][]) {
    const [from, to] = aboveZero(low, high, xs);
    expect(from, `${low} to ${high}`).toBeGreaterThan(0);
    expect(to).toBe(high);
    expect(from).toBeLessThan(to);
  }
});

it('how long a run is to be and how many reports were bad are no curves', () => {
  expect(charted(['bad_reports', 'epoch', 'loss', 'total_steps', 'total_steps_per_epoch'])).toEqual(['epoch', 'loss', 'total_steps_per_epoch']);
});

describe('a field for a number', () => {
  it('means what is typed at every letter of it', () => {
    expect(['1', '1e', '1e-', '1e-4'].map(numberOf)).toEqual([1, '1e', '1e-', 1e-4]);
    expect(['-', '-1', '-1.', '-1.5', '.', '.5', '0.0001', '+2'].map(numberOf)).toEqual(['-', -1, -1, -1.5, '.', 0.5, 1e-4, 2]);
  });
  it('means nothing when it is empty, and gives lockstepd what is no number or none that is exact', () => {
    expect(['', ' ', ' 4 '].map(numberOf)).toEqual([undefined, undefined, 4]);
    for (const text of ['four', '1,5', '0x10', 'NaN', 'Infinity', '1e999', '9007199254740993']) expect(numberOf(text)).toBe(text);
  });
});

it('a field for a list gives lockstepd what is half written, too: it is not lost when the field is left', () => {
  expect(['', ' ', '[1', '[1]'].map(jsonOf)).toEqual([undefined, undefined, '[1', [1]]);
});
