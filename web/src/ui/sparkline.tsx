import type {JSX} from 'preact';
import type {Column} from '../lib/series';

/** A line without axes: how a value went. */
export function Sparkline({values, label, width = 96, height = 22, most}: {values: Column; label: string; width?: number; height?: number; most?: number}): JSX.Element {
  const finite = values.filter((v): v is number => v !== null && Number.isFinite(v));
  if (finite.length < 2) return <span class="quiet" />;
  // With `most` from 0 to that, so that pictures beside each other compare.
  const low = most === undefined ? Math.min(...finite) : 0;
  const high = most ?? Math.max(...finite);
  const points = values.map((v, i) => (v === null || !Number.isFinite(v) ? null
    : `${((i / (values.length - 1)) * (width - 2) + 1).toFixed(1)},${(height - 2 - ((v - low) / (high - low || 1)) * (height - 4)).toFixed(1)}`)).filter(Boolean);
  return <svg class="spark" width={width} height={height} role="img" aria-label={label}><polyline points={points.join(' ')} /></svg>;
}
