// One line chart: uPlot draws, this adds what a training run needs. Marks of what happened, values that are no numbers,
// a readout by mouse and keyboard, a table in place of the picture, files and commands. Zoom and cursor are shared by
// every chart of a page.
import {signal, useSignal} from '@preact/signals';
import type {ComponentChildren, JSX} from 'preact';
import {useEffect, useLayoutEffect, useRef} from 'preact/hooks';
import uPlot from 'uplot';
import {columnsJson, copy, csv, download, fileName} from '../lib/export';
import {count, dateTime, distinct, duration, kNone, number, timeOfDay} from '../lib/format';
import {aboveZero, usual, type Column} from '../lib/series';
import {dark, flip, folded} from '../state/prefs';
import {say, useNear, useWidth} from './basics';
import {Menu} from './menu';

export interface Line {
  label: string;
  values: Column;
  /** A CSS variable without its dashes: series-1, quiet. */
  colour: string;
  dash?: number[];
  /** Drawn, but in no readout and no legend: the raw line behind a smoothed one. */
  faint?: boolean;
}

/** The space between two of the lines, by their place in the list. */
export interface Fill {low: number; high: number; colour: string}

export interface Mark {
  x: number;
  kind: 'restart' | 'checkpoint' | 'anomaly' | 'failure' | 'nonfinite';
  label: string;
  href?: string;
  /** How many further ones it stands for. */
  more?: number;
}

export type XKind = 'step' | 'samples' | 'tokens' | 'time' | 'rel';
const timed = (kind: XKind) => kind === 'time' || kind === 'rel';

export interface ChartProps {
  title: string;
  name: string;
  x: number[];
  lines: Line[];
  fills?: Fill[];
  marks?: Mark[];
  xKind: XKind;
  height?: number;
  zoom?: {min: number; max: number};
  setZoom?: (zoom?: {min: number; max: number}) => void;
  logY?: boolean;
  /** Not of time. */
  logX?: boolean;
  clip?: boolean;
  format: (value: number | null | undefined, digits?: number) => string;
  command?: string;
  promQl?: string;
  sync?: string;
  /** Beside the title. */
  aside?: ComponentChildren;
  /** Its height is kept free for what is on its way. */
  loading?: boolean;
  /** Said when there is no point. */
  empty?: string;
  small?: boolean;
  /** Under this name it is remembered to be folded. */
  fold?: string;
}

const kMarkSigns: Record<Mark['kind'], string> = {restart: '↻', checkpoint: '◆', anomaly: '!', failure: '✕', nonfinite: 'NaN'};
const kGroupPixels = 18;

export function formatX(kind: XKind, x: number | undefined): string {
  if (x === undefined) return kNone;
  if (kind === 'time') return `${dateTime(x).replace(/\d\d:\d\d$/, '')}${timeOfDay(x)}`;
  return kind === 'rel' ? duration(x) : kind === 'step' ? `step ${number(Math.floor(x), 12)}` : `${number(Math.round(x), 15)} ${kind}`;
}

/** A tick's time of day, and its date where another day begins. */
function clock(at: number, before: number | undefined, step: number): string {
  const day = dateTime(at, 0).slice(0, -6);
  const time = timeOfDay(at, step < 1);
  return `${step < 86400 ? time.slice(0, step < 60 ? undefined : -3) : ''}${before === undefined || day !== dateTime(before, 0).slice(0, -6) ? `\n${day}` : ''}`.trim();
}

function cssColour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || '#888';
}

function options(props: ChartProps, width: number, hooks: {cursor: (index: number | null) => void; drawn: (u: uPlot) => void}): uPlot.Options {
  const text = cssColour('quiet');
  const grid = {stroke: cssColour('grid'), width: 1};
  const font = '11px system-ui, sans-serif';
  return {
    width, height: props.height ?? 220, legend: {show: false}, padding: [16, 18, 0, 0],
    cursor: {
      drag: {x: !!props.setZoom, y: false, setScale: false},
      sync: props.sync ? {key: props.sync, setSeries: false} : undefined,
      points: {show: true, size: 6},
      bind: {dblclick: () => () => {
        props.setZoom?.(undefined);
        return null;
      }},
    },
    scales: {
      x: {time: props.xKind === 'time', distr: props.logX ? 3 : 1,
        range: (_u, low, high) => {
          const {zoom} = props;
          const [from, to] = zoom ? [zoom.min, zoom.max] : low === null || high === null ? [0, 1] : low === high ? [low - 1, high + 1] : [low, high];
          return props.logX ? aboveZero(from, to, props.x) : [from, to];
        }},
      y: {distr: props.logY ? 3 : 1,
        range: props.logY ? undefined : (_u, low, high) => {
          if (low === null || high === null) return [0, 1];
          // Of what is drawn now: a picture stays while its lines grow.
          const bounds = props.clip && usual(props.lines.map((line) => line.values));
          const from = bounds ? Math.max(low, bounds.low) : low;
          const to = bounds ? Math.min(high, bounds.high) : high;
          // One value in other roundings is one value.
          const space = to - from > Math.abs(to) * 1e-5 ? (to - from) * 0.06 : Math.abs(to) * 0.1 || 1;
          return [from - space, to + space];
        }},
    },
    axes: [
      {stroke: text, grid: {...grid, show: false}, ticks: {...grid, size: 4}, font, size: props.xKind === 'time' ? 42 : 30, gap: 4, space: 70,
        values: (_u, ticks, _axis, _space, step) => ticks.map((v, i) => (props.xKind === 'rel' ? duration(v) : props.xKind === 'time' ? clock(v, ticks[i - 1], step) : v % 1 ? '' : number(v, 9)))},
      {stroke: text, grid, ticks: {show: false}, font, size: (_u, labels) => Math.max(62, ...(labels ?? []).map((label) => 7 * label.length + 8)), gap: 4, space: 34,
        values: (_u, ticks) => distinct(ticks, props.format)},
    ],
    series: [{}, ...props.lines.map((line, i): uPlot.Series => ({
      // Wider than 1 leaves uPlot's fast path: one line that is not long may.
      label: line.label, stroke: cssColour(line.colour), width: i === 0 && props.x.length < 2500 ? 1.8 : 1, dash: line.dash, spanGaps: true,
      alpha: line.faint ? 0.35 : 1, points: {show: props.x.length < 3, size: 5},
    }))],
    bands: props.fills?.map((fill) => ({series: [fill.high + 1, fill.low + 1] as [number, number], fill: cssColour(fill.colour)})),
    hooks: {
      setCursor: [(u) => hooks.cursor(u.cursor.idx ?? null)],
      setSelect: [(u) => {
        if (u.select.width < 6) return;
        const min = u.posToVal(u.select.left, 'x');
        const max = u.posToVal(u.select.left + u.select.width, 'x');
        u.setSelect({left: 0, top: 0, width: 0, height: 0}, false);
        props.setZoom?.({min, max});
      }],
      draw: [(u) => {
        // Values beyond the picture: a triangle at the edge they are behind.
        const {ctx} = u;
        const scale = u.scales['y']!;
        const ratio = devicePixelRatio;
        ctx.save();
        props.lines.forEach((line) => {
          if (line.faint || !props.clip) return;
          ctx.fillStyle = cssColour(line.colour);
          line.values.forEach((value, i) => {
            if (value === null || scale.max === undefined || (value <= scale.max! && value >= scale.min!)) return;
            const left = u.valToPos(props.x[i]!, 'x', true);
            if (left < u.bbox.left || left > u.bbox.left + u.bbox.width) return;
            const edge = value > scale.max! ? u.bbox.top : u.bbox.top + u.bbox.height;
            const base = edge + (value > scale.max! ? 5 : -5) * ratio;
            ctx.beginPath();
            ctx.moveTo(left, edge);
            ctx.lineTo(left - 3 * ratio, base);
            ctx.lineTo(left + 3 * ratio, base);
            ctx.fill();
          });
        });
        let lastCheckpoint = -Infinity;
        for (const mark of props.marks ?? []) {
          const left = u.valToPos(mark.x, 'x', true);
          if (mark.kind === 'checkpoint') {
            if (left - lastCheckpoint < 14 * ratio) continue;  // a row of diamonds says no more than some of them
            lastCheckpoint = left;
          }
          if (left < u.bbox.left - 1 || left > u.bbox.left + u.bbox.width + 1) continue;
          ctx.strokeStyle = cssColour(`mark-${mark.kind}`);
          ctx.lineWidth = ratio;
          if (mark.kind === 'checkpoint') {
            const bottom = u.bbox.top + u.bbox.height;
            const size = 4 * ratio;
            ctx.fillStyle = cssColour('mark-checkpoint');
            ctx.beginPath();
            ctx.moveTo(left, bottom - 2 * size);
            ctx.lineTo(left + size, bottom - size);
            ctx.lineTo(left, bottom);
            ctx.lineTo(left - size, bottom - size);
            ctx.fill();
          } else {
            ctx.setLineDash(mark.kind === 'anomaly' || mark.kind === 'failure' ? [3 * ratio, 3 * ratio] : []);
            ctx.beginPath();
            ctx.moveTo(left, u.bbox.top);
            // There may be hundreds of values that are no number: a short stroke each.
            ctx.lineTo(left, u.bbox.top + (mark.kind === 'nonfinite' ? 9 * ratio : u.bbox.height));
            ctx.stroke();
          }
        }
        ctx.restore();
        hooks.drawn(u);
      }],
    },
  };
}

interface PlacedMark {left: number; mark: Mark; more: number}

/** Signs at the top of the plot; those on top of each other become one. */
function placeMarks(u: uPlot, marks: Mark[]): PlacedMark[] {
  const out: PlacedMark[] = [];
  const width = u.bbox.width / devicePixelRatio;
  const offset = u.bbox.left / devicePixelRatio;
  const rank: Mark['kind'][] = ['checkpoint', 'nonfinite', 'anomaly', 'restart', 'failure'];
  for (const mark of [...marks].filter((one) => one.kind !== 'checkpoint').sort((a, b) => a.x - b.x)) {
    const left = u.valToPos(mark.x, 'x');
    if (left < -1 || left > width + 1) continue;
    const last = out[out.length - 1];
    if (last && left + offset - last.left < (mark.kind === 'nonfinite' ? 3 : 1) * kGroupPixels) {
      last.more += 1 + (mark.more ?? 0);
      if (rank.indexOf(mark.kind) > rank.indexOf(last.mark.kind)) last.mark = mark;
    } else {
      out.push({left: left + offset, mark, more: mark.more ?? 0});
    }
  }
  return out;
}

const kTableRows = 100;

function TableTwin({props, page, setPage}: {props: ChartProps; page: number; setPage: (page: number) => void}): JSX.Element {
  const shown = props.lines;
  const pages = Math.max(1, Math.ceil(props.x.length / kTableRows));
  const from = page * kTableRows;
  return <div class="twin" tabIndex={0} role="region" aria-label={`${props.title}, values`}><table class="numbers"><caption class="away">{props.title}</caption>
    <thead><tr><th scope="col">{timed(props.xKind) ? 'time' : props.xKind}</th>{shown.map((line) => <th key={line.label} scope="col">{line.label}</th>)}</tr></thead>
    <tbody>{props.x.slice(from, from + kTableRows).map((x, i) => <tr key={x}>
      <th scope="row">{formatX(props.xKind, x).replace(/^step | (samples|tokens)$/, '')}</th>{shown.map((line) => <td key={line.label}>{props.format(line.values[from + i])}</td>)}</tr>)}</tbody></table>
    {pages > 1 && <p class="row"><button type="button" class="button" disabled={page === 0} onClick={() => setPage(page - 1)}>Earlier</button>
      <span class="quiet">{page + 1} of {pages}</span>
      <button type="button" class="button" disabled={page + 1 >= pages} onClick={() => setPage(page + 1)}>Later</button></p>}</div>;
}

/** Somebody selects a range on a chart. All of them stay as they are until that is done: what is under the mouse is what is meant. */
const dragging = signal(false);
function drag(event: MouseEvent): void {
  if (event.button !== 0) return;
  dragging.value = true;
  // On the window: uPlot, which listens on the document, has read its axis by then.
  const done = () => {
    dragging.value = false;
    removeEventListener('mouseup', done);
    removeEventListener('blur', done);
  };
  addEventListener('mouseup', done);
  addEventListener('blur', done);
}

export function Chart(given: ChartProps): JSX.Element {
  const still = useRef(given);
  if (!dragging.value) still.current = given;
  const props = still.current;
  const {ref: nearRef, near} = useNear();
  const {ref: boxRef, width} = useWidth();
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  const index = useSignal<number | null>(null);
  const marks = useSignal<PlacedMark[]>([]);
  const table = useSignal(false);
  const page = useSignal(0);
  const menu = useSignal(false);
  const spoken = useSignal(false);
  // uPlot reads props through this object, which stays while the picture does.
  const held = useRef<ChartProps>({...props});
  const shut = props.fold !== undefined && folded.value.includes(props.fold);
  Object.assign(held.current, {zoom: undefined, promQl: undefined}, props);
  latest.current = props;
  const height = props.height ?? 220;
  const shape = JSON.stringify([props.lines.map((l) => [l.label, l.colour, l.dash, l.faint]), props.fills, props.xKind, props.logY, props.logX,
    props.clip, props.sync, height, props.x.length < 3, dark.value, width > 0, props.x.length > 0]);

  useLayoutEffect(() => {
    if (!near || !boxRef.current || table.value || shut || width === 0 || props.x.length === 0) return;
    const u = new uPlot(options(held.current, width, {
      cursor: (at) => { index.value = at; },
      drawn: (drawn) => {
        const placed = placeMarks(drawn, held.current.marks ?? []);
        if (JSON.stringify(placed) !== JSON.stringify(marks.peek())) queueMicrotask(() => { marks.value = placed; });
      },
    }), [props.x, ...props.lines.map((line) => line.values)] as uPlot.AlignedData, boxRef.current);
    plot.current = u;
    return () => {
      u.destroy();
      plot.current = null;
    };
  }, [shape, near, table.value, shut]);
  useEffect(() => {
    plot.current?.setSize({width, height});
  }, [width, height]);
  useEffect(() => {
    plot.current?.setData([props.x, ...props.lines.map((line) => safeFor(line.values, props))] as uPlot.AlignedData);
  }, [props.x, props.lines, props.zoom?.min, props.zoom?.max, shape]);
  useEffect(() => {
    plot.current?.redraw(false);
  }, [props.marks]);

  const at = index.value ?? -1;
  const shown = props.lines.filter((line) => !line.faint);
  const pointed = at >= 0 && at < props.x.length;
  // Where nobody points at anything, the newest of every line: one run may be longer than another.
  const last = Math.max(-1, ...shown.map((line) => lastIndex(line.values)));
  const where = pointed ? at : last;
  const readout = where >= 0 ? shown.map((line) => ({line, value: line.values[pointed ? at : lastIndex(line.values)]})) : [];
  if (at >= 0) readout.sort((a, b) => (b.value ?? -Infinity) - (a.value ?? -Infinity));
  const move = (event: KeyboardEvent) => {
    const u = plot.current;
    if (!u || !['ArrowLeft', 'ArrowRight', 'Home', 'End', 'Escape'].includes(event.key)) return;
    event.preventDefault();
    const n = props.x.length;
    if (event.key === 'Escape') {
      u.setCursor({left: -10, top: -10});
      return;
    }
    const big = event.shiftKey ? Math.max(1, Math.round(n / 20)) : 1;
    const now = index.value ?? last;
    const next = event.key === 'Home' ? 0 : event.key === 'End' ? n - 1 : Math.max(0, Math.min(n - 1, now + (event.key === 'ArrowLeft' ? -big : big)));
    spoken.value = true;
    u.setCursor({left: u.valToPos(props.x[next]!, 'x'), top: u.bbox.height / devicePixelRatio / 2});
  };
  const names = [timed(props.xKind) ? 'time' : props.xKind, ...props.lines.map((line) => line.label)];
  const columns = props.lines.map((line) => line.values);
  const summary = last >= 0 && shown[0] ? `${props.title}: ${props.x.length} points, last ${props.format(shown[0].values[lastIndex(shown[0].values)])} at ${formatX(props.xKind, props.x[last])}` : `${props.title}: no values yet`;
  return <figure class={`chart ${props.small ? 'chart-small' : ''}`} ref={nearRef as never} aria-label={summary}>
    <figcaption class="chart-head">{props.fold && <button type="button" class="icon-button fold" aria-expanded={!shut} aria-label={`${shut ? 'Unfold' : 'Fold'} ${props.title}`} title={shut ? 'Unfold' : 'Fold'} onClick={() => flip(folded, props.fold!)}>{shut ? '▸' : '▾'}</button>}<h2>{props.title}</h2>
      <span class="readout" aria-hidden="true">
        {where >= 0 && <span class="readout-x">{formatX(props.xKind, props.x[where])}</span>}
        {readout.slice(0, 6).map(({line, value}) => <span key={line.label} class="readout-item">
          <svg width="16" height="6" aria-hidden="true"><line x1="0" x2="16" y1="3" y2="3" class={`stroke-${line.colour}`} stroke-width="2" stroke-dasharray={line.dash?.join(' ')} /></svg>
          {line.label} <b>{props.format(value)}</b></span>)}</span>
      <span class="grow" />{!props.small && where >= 0 && props.marks?.some((mark) => mark.kind === 'checkpoint') && <span class="readout-x quiet">{kMarkSigns.checkpoint} checkpoint</span>}{props.aside}
      <span class="menu-box"><button type="button" class="icon-button" aria-haspopup="true" aria-expanded={menu.value} aria-label={`${props.title}: table, files and commands`} title="Table, files, commands" onClick={() => { menu.value = !menu.value; }}>⋯</button>
        {menu.value && <Menu close={() => { menu.value = false; }} items={[
          {label: table.value ? 'Picture' : 'Table', act: () => { table.value = !table.value; }},
          {label: 'CSV', act: () => download(`${fileName(props.name)}.csv`, csv(names, props.x, columns), 'text/csv')},
          {label: 'JSON', act: () => download(`${fileName(props.name)}.json`, columnsJson(names, props.x, columns), 'application/json')},
          {label: 'PNG', act: () => savePng(plot.current, props)},
          ...(props.command ? [{label: 'Copy command', act: () => tell(props.command!)}] : []),
          ...(props.promQl ? [{label: 'Copy PromQL', act: () => tell(props.promQl!)}] : []),
        ]} />}</span>
    </figcaption>
    {table.value ? !shut && <TableTwin props={props} page={page.value} setPage={(p) => { page.value = p; }} />
      : <div class="plot" hidden={shut} style={{minHeight: props.loading || props.x.length ? `${height}px` : '28px'}} ref={boxRef} onMouseDown={props.setZoom && drag} tabIndex={0} role="application" aria-roledescription="chart" aria-label={`${summary}. Arrow keys read values, the menu has a table.`} onKeyDown={move}
        onBlur={() => { spoken.value = false; }}>
        {props.x.length === 0 && <p class="plot-empty quiet">{props.empty ?? 'Nothing was reported yet.'}</p>}
        {marks.value.map(({left, mark, more}) => <MarkSign key={`${mark.kind}${mark.x}`} left={left} mark={mark} more={more} />)}
      </div>}
    <span class="away" aria-live="polite">{spoken.value && at >= 0 ? `${formatX(props.xKind, props.x[at])}: ${readout.map(({line, value}) => `${line.label} ${props.format(value)}`).join(', ')}` : ''}</span>
  </figure>;
}

function MarkSign({left, mark, more}: PlacedMark): JSX.Element {
  const label = `${mark.label}${more ? `, and ${count(more)} more` : ''}`;
  return <a class={`mark mark-${mark.kind}`} style={{left: `${left}px`}} href={mark.href} title={label} aria-label={label}>
    {kMarkSigns[mark.kind]}{more ? <sup>{count(more + 1)}</sup> : null}</a>;
}

/** uPlot cannot draw nothing or less on a logarithmic axis. */
function safeFor(values: Column, {logX, logY, x}: ChartProps): Column {
  return values.map((value, i) => (value !== null && (!logY || value > 0) && (!logX || x[i]! > 0) ? value : null));
}

const lastIndex = (values: Column): number => values.findLastIndex((value) => value !== null && value !== undefined);

async function tell(text: string): Promise<void> {
  say((await copy(text)) ? `Copied: ${text}` : 'This browser does not let the page copy');
}

/** The picture with its title on the page's own ground. */
function savePng(u: uPlot | null, props: ChartProps): void {
  if (!u) return;
  const source = u.ctx.canvas;
  const head = 28 * devicePixelRatio;
  const canvas = document.createElement('canvas');
  canvas.width = source.width;
  canvas.height = source.height + head;
  const ctx = canvas.getContext('2d')!;
  ctx.fillStyle = cssColour('surface');
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.fillStyle = cssColour('text');
  ctx.font = `${14 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.fillText(props.title, 8 * devicePixelRatio, 19 * devicePixelRatio);
  ctx.drawImage(source, 0, head);
  canvas.toBlob((blob) => blob && download(`${fileName(props.name)}.png`, blob), 'image/png');
}
