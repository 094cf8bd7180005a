// Ranks × steps as a picture: one column per step, the newest at the right. More ranks than pixels: the highest of those
// that share a pixel row is seen, so that one slow rank of 10,000 does not drown.
import {useSignal} from '@preact/signals';
import type {JSX} from 'preact';
import {useLayoutEffect, useRef} from 'preact/hooks';
import {byWorst, paint, span, type Heat} from '../lib/heat';
import {count, metricValue, plural} from '../lib/format';
import {dark} from '../state/prefs';
import {useWidth} from './basics';

const kNothing = {light: 0xfff3f1ef, dark: 0xff26211d};

interface Hover {row: number; column: number; value: number}

export function Heatmap({heat, metric, worstFirst, nodeOf, open, label}: {
  heat: Heat; metric: string; worstFirst?: boolean; nodeOf?: (rank: number) => string | undefined;
  open: (rank: number) => void; label: string;
}): JSX.Element {
  const height = heat.rows > 200 ? 480 : 320;
  const {ref: box, width} = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
  const hover = useSignal<Hover | null>(null);
  const order = worstFirst ? byWorst(heat) : undefined;
  const held = useRef({heat, order});
  held.current = {heat, order};
  // Colours are spread anew every tenth step, or for another picture: sorting a sample costs as much as drawing.
  const end = heat.firstStep + heat.columns * heat.stepsPerColumn;
  const ranged = useRef<{metric: string; end: number; rows: number; range: {low: number; high: number}}>(undefined as never);
  if (!ranged.current || ranged.current.metric !== metric || ranged.current.rows !== heat.rows || Math.abs(end - ranged.current.end) >= 10 * heat.stepsPerColumn) ranged.current = {metric, end, rows: heat.rows, range: span(heat.cells)};
  const {range} = ranged.current;

  useLayoutEffect(() => {
    const element = canvas.current;
    if (!element || width === 0 || heat.rows === 0) return;
    const columns = Math.max(1, heat.columns);
    const rows = Math.min(heat.rows, height);
    if (element.width !== columns) element.width = columns;
    if (element.height !== rows) element.height = rows;
    const ctx = element.getContext('2d')!;
    const image = ctx.createImageData(columns, rows);
    paint(heat, order, rows, range, dark.value ? kNothing.dark : kNothing.light, new Uint32Array(image.data.buffer));
    ctx.putImageData(image, 0, 0);
  }, [heat, order?.join(), width, height, dark.value]);

  const rankOf = (row: number) => heat.firstRank + row * heat.ranksPerRow;
  const locate = (x: number, y: number): Hover | null => {
    const element = canvas.current;
    if (!element) return null;
    const {heat: now, order: sorted} = held.current;
    const bounds = element.getBoundingClientRect();
    const column = Math.floor(((x - bounds.left) / bounds.width) * now.columns);
    const line = Math.floor(((y - bounds.top) / bounds.height) * now.rows);
    if (column < 0 || column >= now.columns || line < 0 || line >= now.rows) return null;
    // Of the rows below one pixel the highest, as it is drawn.
    const per = Math.max(1, Math.ceil(now.rows / Math.max(1, bounds.height)));
    let best = line;
    for (let r = line; r < Math.min(now.rows, line + per); r++) {
      const a = now.cells[column * now.rows + (sorted ? sorted[r]! : r)]!;
      const b = now.cells[column * now.rows + (sorted ? sorted[best]! : best)]!;
      if (a > b || Number.isNaN(b)) best = r;
    }
    const row = sorted ? sorted[best]! : best;
    return {row, column, value: now.cells[column * now.rows + row]!};
  };
  const point = useSignal({row: 0, column: -1});
  const keys = (event: KeyboardEvent) => {
    const steps: Record<string, [number, number]> = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
    const move = steps[event.key];
    if (event.key === 'Enter' && hover.value) open(rankOf(hover.value.row));
    if (!move) return;
    event.preventDefault();
    const big = event.shiftKey ? 10 : 1;
    const line = Math.max(0, Math.min(heat.rows - 1, point.value.row + move[0] * big));
    const column = Math.max(0, Math.min(heat.columns - 1, (point.value.column < 0 ? heat.columns - 1 : point.value.column) + move[1] * big));
    point.value = {row: line, column};
    const row = order ? order[line]! : line;
    hover.value = {row, column, value: heat.cells[column * heat.rows + row]!};
  };
  const h = hover.value;
  // What is there now: steps move on below the pointer.
  const value = h ? heat.cells[h.column * heat.rows + h.row] ?? -Infinity : NaN;
  const rankText = (row: number) => (heat.ranksPerRow === 1 ? `rank ${rankOf(row)}` : `ranks ${rankOf(row)}–${rankOf(row) + heat.ranksPerRow - 1}`);
  const node = h && nodeOf?.(rankOf(h.row));
  const text = h ? `${rankText(h.row)}${node ? ` on ${node}` : ''}, step ${count(heat.firstStep + h.column * heat.stepsPerColumn)}: ${
    Number.isNaN(value) ? 'nothing reported' : value === -Infinity ? 'not fetched yet' : value === Infinity ? 'not finite' : metricValue(metric, value)}` : '';
  const lastStep = heat.firstStep + Math.max(0, heat.columns - 1) * heat.stepsPerColumn;
  return <div class="heat">
    <div class="heat-legend"><span>{metricValue(metric, range.low)}</span><span class="heat-scale" aria-hidden="true" /><span>{metricValue(metric, range.high)}</span>
      <span class="grow" /><span class="quiet heat-text">{text || `${plural(heat.rows * heat.ranksPerRow, 'rank')} × ${plural(heat.columns, 'column')}`}</span></div>
    <div class="heat-box" ref={box}>
      <canvas ref={canvas} class="heat-canvas" style={{height: `${Math.max(heat.rows * 4, Math.min(height, heat.rows * 24))}px`, maxHeight: `${height}px`}} tabIndex={0} role="application" aria-roledescription="heatmap"
        aria-label={`${label}. Arrow keys read cells, Enter opens the rank; the table of ranks has the same.`}
        onMouseMove={(event) => { hover.value = locate(event.clientX, event.clientY); }} onMouseLeave={() => { hover.value = null; }}
        onClick={(event) => { const at = locate(event.clientX, event.clientY); if (at) open(rankOf(at.row)); }} onKeyDown={keys} />
    </div>
    <div class="heat-axis quiet"><span>step {count(heat.firstStep)}</span><span class="grow" /><span>{worstFirst ? 'slowest on top' : `rank ${heat.firstRank} on top`}</span><span class="grow" /><span>{count(lastStep)}</span></div>
    <span class="away" aria-live="polite">{point.value.column >= 0 ? text : ''}</span>
  </div>;
}
