// Numbers, durations and times as people read them. Unknown is an en dash, never 0.
import type {Loose} from '../types';

export const kNone = '–';

/** A value of the API as a number: NaN and infinities are words there. */
export function loose(value: Loose | null | undefined): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'number') return value;
  return value === 'nan' ? NaN : value === 'inf' ? Infinity : -Infinity;
}

/** About four significant digits: 0.03712, 12.35, 4 812, 1.2e-7. */
export function number(value: Loose | null | undefined, digits = 4): string {
  const v = loose(value);
  if (v === undefined) return kNone;
  if (Number.isNaN(v)) return 'NaN';
  if (!Number.isFinite(v)) return v > 0 ? '∞' : '−∞';
  if (v === 0) return '0';
  const size = Math.abs(v);
  if (size < 1e-4 || size >= 1e7) return v.toExponential(2).replace('e+', 'e');
  if (size >= 10 ** (digits - 1)) return count(Math.round(v));
  return v.toPrecision(digits).replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '');
}

/** A whole number with thin spaces between thousands from five digits on. */
export function count(value: number | null | undefined): string {
  if (value === undefined || value === null || Number.isNaN(value)) return kNone;
  const text = String(Math.abs(Math.round(value)));
  const grouped = text.length < 5 ? text : text.replace(/\B(?=(\d{3})+$)/g, '\u2009');
  return (value < 0 ? '−' : '') + grouped;
}

/** Seconds as 38 ms, 1.24 s, 3 min 05 s, 2 h 14 min, 3 d 4 h; with `digits` as many of what is below a minute. */
export function duration(seconds: Loose | null | undefined, digits?: number): string {
  const s = loose(seconds);
  if (s === undefined || Number.isNaN(s)) return kNone;
  if (!Number.isFinite(s)) return '∞';
  const size = Math.abs(s);
  const sign = s < 0 ? '−' : '';
  if (size === 0) return '0 s';
  // In each what it is once it is rounded: never 1000 µs.
  if (size < 0.9995e-3) return `${sign}${number(size * 1e6, digits ?? 3)} µs`;
  if (size < 0.9995) return `${sign}${number(size * 1e3, digits ?? 3)} ms`;
  if (size < 59.5) return `${sign}${size < 10 || digits ? number(size, digits ?? 3) : size.toFixed(0)} s`;
  const whole = Math.round(size);
  const two = (n: number) => String(n).padStart(2, '0');
  if (whole < 3600) return `${sign}${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${sign}${Math.floor(whole / 3600)} h ${two(Math.floor(whole / 60) % 60)} min`;
  return `${sign}${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
}

/** A length of time that is counted up each second: 0:42, 12:05, 3:04:09. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (n: number) => String(n).padStart(2, '0');
  const h = Math.floor(whole / 3600);
  const rest = `${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  if (h === 0) return rest.replace(/^0/, '');
  return h < 48 ? `${h}:${rest}` : duration(whole);
}

export function bytes(value: number | null | undefined): string {
  if (value === undefined || value === null) return kNone;
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let v = value;
  let unit = 0;
  while (v >= 1000 && unit < units.length - 1) {
    v /= 1000;
    unit++;
  }
  return `${unit === 0 || v >= 100 ? Math.round(v) : v.toFixed(1)} ${units[unit]}`;
}

export function percent(ratio: number | null | undefined, digits = 0): string {
  return ratio === undefined || ratio === null || Number.isNaN(ratio) ? kNone : `${(ratio * 100).toFixed(digits)} %`;
}

/** Seconds since the epoch of an RFC 3339 time. */
export function seconds(time: string | undefined): number | undefined {
  if (!time) return undefined;
  const ms = Date.parse(time);
  return Number.isNaN(ms) ? undefined : ms / 1000;
}

const pad = (n: number, width = 2) => String(n).padStart(width, '0');

/** The local time of day, to the millisecond if asked. */
export function timeOfDay(at: number | undefined, milliseconds = false): string {
  if (at === undefined) return kNone;
  const d = new Date(at * 1000);
  const base = `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
  return milliseconds ? `${base}.${pad(d.getMilliseconds(), 3)}` : base;
}

/** Local date and time, the date only when it is not today's. */
export function dateTime(at: number | undefined, now = Date.now() / 1000): string {
  if (at === undefined) return kNone;
  const d = new Date(at * 1000);
  const today = new Date(now * 1000);
  const time = `${pad(d.getHours())}:${pad(d.getMinutes())}`;
  if (d.toDateString() === today.toDateString()) return time;
  return `${d.getFullYear() === today.getFullYear() ? '' : `${d.getFullYear()}-`}${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${time}`;
}

export function ago(at: number | undefined, now: number): string {
  if (at === undefined) return kNone;
  const passed = now - at;
  if (passed < 5) return 'now';
  if (passed < 60) return `${Math.floor(passed)} s ago`;
  if (passed < 3600) return `${Math.floor(passed / 60)} min ago`;
  if (passed < 86400) return `${Math.floor(passed / 3600)} h ago`;
  return `${Math.floor(passed / 86400)} d ago`;
}

/** 0-3,7 of [0, 1, 2, 3, 7]. */
export function rankRanges(ranks: number[]): string {
  const sorted = [...new Set(ranks)].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let i = 0; i < sorted.length;) {
    let j = i;
    while (j + 1 < sorted.length && sorted[j + 1] === sorted[j]! + 1) j++;
    parts.push(i === j ? `${sorted[i]}` : `${sorted[i]}-${sorted[j]}`);
    i = j + 1;
  }
  return parts.join(',');
}

/** Ranks of "0-3,7"; what is no number is left out; at most `most`. */
export function parseRanks(text: string, most = 256): number[] {
  const out: number[] = [];
  for (const part of text.split(',')) {
    const [low, high] = part.trim().split('-').map((word) => (/^\d{1,7}$/.test(word.trim()) ? Number(word) : NaN));
    if (low === undefined || Number.isNaN(low)) continue;
    const end = high === undefined || Number.isNaN(high) ? low : high;
    for (let rank = low; rank <= end && out.length < most; rank++) out.push(rank);
  }
  return out;
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** What a metric's values are measured in, from its name: step_seconds → s. */
export function unitOf(metric: string): 'seconds' | 'bytes' | 'ratio' | 'W' | '°C' | 'GHz' | 'plain' {
  if (/watts$/.test(metric)) return 'W';
  if (/celsius$/.test(metric)) return '°C';
  if (/hertz$/.test(metric)) return 'GHz';
  if (/seconds$/.test(metric)) return 'seconds';
  if (/bytes$/.test(metric)) return 'bytes';
  return /ratio$/.test(metric) ? 'ratio' : 'plain';
}

export function metricValue(metric: string, value: Loose | null | undefined, digits?: number): string {
  const v = loose(value);
  if (v === undefined) return kNone;
  if (!Number.isFinite(v)) return number(v);
  const unit = unitOf(metric);
  return unit === 'seconds' ? duration(v, digits) : unit === 'bytes' ? bytes(v) : unit === 'ratio' ? percent(v, 1) : unit === 'plain' ? number(v, digits) : `${number(unit === 'GHz' ? v / 1e9 : Math.round(v), 3)} ${unit}`;
}

/** What stands at the ticks of an axis: with as many digits as it takes to tell one from the other. */
export function distinct(ticks: (number | null)[], format: (value: number, digits?: number) => string): string[] {
  for (let digits: number | undefined; ; digits = (digits ?? 3) + 1) {
    const all = ticks.map((v) => (v === null ? '' : format(v, digits)));
    const shown = all.filter(Boolean);
    if (digits === 9 || new Set(shown).size === shown.length) return all;
  }
}

/** step_seconds → Step time; grad_norm → Grad norm. */
export function metricTitle(metric: string): string {
  const known: Record<string, string> = {
    loss: 'Loss', step_seconds: 'Step time', busy_seconds: 'Compute time', comm_wait_seconds: 'Wait for other ranks',
    nccl_collectives: 'NCCL calls', nccl_lag: 'NCCL lag',
    data_wait_seconds: 'Wait for data', grad_norm: 'Gradient norm', lr: 'Learning rate', samples: 'Samples per step',
    tokens: 'Tokens per step', gpu_utilization_ratio: 'GPU utilization', gpu_memory_used_bytes: 'GPU memory in use', gpu_power_watts: 'GPU power',
    gpu_temperature_core_celsius: 'GPU temperature', gpu_sm_active_ratio: 'SMs active', gpu_tensor_active_ratio: 'Tensor cores active', gpu_dram_active_ratio: 'DRAM active',
    gpu_clock_sm_hertz: 'SM clock',
  };
  const words = metric.replace(/_/g, ' ');
  return known[metric] ?? words.charAt(0).toUpperCase() + words.slice(1);
}
