// The rank × step matrix: decoding what lockstepd sends and folding it to what a screen has room for.
//
// A cell is one byte: 0 nothing, 255 only values that are not finite, else low + (cell − 1) / 253 × (high − low).

export interface Heat {
  rows: number;
  columns: number;
  firstRank: number;
  ranksPerRow: number;
  firstStep: number;
  stepsPerColumn: number;
  /** Values column by column (value of row r in column c: c × rows + r); NaN nothing, Infinity not finite, -Infinity not asked for yet. */
  cells: Float32Array;
}

const kMagic = 0x3148534c;
const kHeader = 56;

/** Throws an Error that says what is wrong with the bytes. */
export function decodeHeat(buffer: ArrayBuffer): Heat {
  const view = new DataView(buffer);
  if (buffer.byteLength < kHeader || view.getUint32(0, true) !== kMagic) throw new Error('not a heatmap');
  const rows = view.getUint32(8, true);
  const columns = view.getUint32(12, true);
  const low = view.getFloat64(40, true);
  const high = view.getFloat64(48, true);
  if (buffer.byteLength < kHeader + rows * columns) throw new Error('the heatmap is cut off');
  const bytes = new Uint8Array(buffer, kHeader);
  const table = values(low, high);
  const cells = new Float32Array(rows * columns);
  for (let r = 0; r < rows; r++) {
    const base = r * columns;
    for (let c = 0; c < columns; c++) cells[c * rows + r] = table[bytes[base + c]!]!;
  }
  return {rows, columns, firstRank: view.getUint32(16, true), ranksPerRow: Math.max(1, view.getUint32(20, true)),
    firstStep: Number(view.getBigInt64(24, true)), stepsPerColumn: Math.max(1, Number(view.getBigInt64(32, true))), cells};
}

const kOnTheWay = 32;  // columns: what a fast rank does between two of its agent's messages

/** Ranks of different nodes are heard at different times: of one that has reported until a moment ago the newest steps are
 *  not known to be empty. Changes the heatmap and returns it. */
export function leaveOpen(heat: Heat): Heat {
  for (let r = 0; r < heat.rows; r++) {
    let c = heat.columns;
    while (c > 0 && Number.isNaN(heat.cells[(c - 1) * heat.rows + r]!)) c--;
    if (c > 0 && heat.columns - c <= kOnTheWay) for (; c < heat.columns; c++) heat.cells[c * heat.rows + r] = -Infinity;
  }
  return heat;
}

/** What each of the 256 bytes stands for. */
function values(low: number, high: number): Float32Array {
  const table = new Float32Array(256);
  for (let b = 1; b < 255; b++) table[b] = low + ((b - 1) / 253) * (high - low);
  table[0] = NaN;
  table[255] = Infinity;
  return table;
}

/** One step of every rank, as the stream tells it, folded to `rows` rows by the highest. A rank that is far behind the others
 *  may report the step yet: it is not known to be empty. */
export function decodeColumn(base64: string, low: number, high: number, rows: number, ranksPerRow: number): Float32Array {
  const table = values(low, high);
  const text = atob(base64);
  table[0] = -Infinity;
  const out = new Float32Array(rows).fill(-Infinity);
  for (let rank = 0; rank < text.length; rank++) {
    const row = Math.floor(rank / ranksPerRow);
    if (row >= rows) break;
    const value = table[text.charCodeAt(rank)]!;
    if (value > out[row]!) out[row] = value;
  }
  return out;
}

/** The heatmap with one more column; the oldest goes once there are `most`. A step that is there already is replaced; those
 *  that were skipped are not known to be empty. */
export function append(heat: Heat, step: number, column: Float32Array, most: number): Heat {
  const {rows} = heat;
  const index = Math.floor((step - heat.firstStep) / heat.stepsPerColumn);
  if (index < 0 || rows !== column.length) return heat;
  if (index < heat.columns) {
    const at = index * rows;
    for (let r = 0; r < rows; r++) {
      const before = heat.cells[at + r]!;
      const value = column[r]!;
      if (value > before || (value > -Infinity && (Number.isNaN(before) || heat.stepsPerColumn === 1))) heat.cells[at + r] = value;
    }
    return {...heat};
  }
  const drop = Math.max(0, index + 1 - most);
  if (drop > heat.columns) return heat;  // a hole longer than the picture: it is asked for anew
  const columns = index + 1 - drop;
  const cells = new Float32Array(columns * rows).fill(-Infinity);
  cells.set(heat.cells.subarray(drop * rows));
  cells.set(column, (index - drop) * rows);
  return {...heat, columns, cells, firstStep: heat.firstStep + drop * heat.stepsPerColumn};
}

const kLeastSpan = 0.3;

/** The low and high that colours are spread over: the 2nd and 99th percentile of a sample of the finite cells, so that one
 *  stalled step does not wash out the rest. */
export function span(cells: Float32Array): {low: number; high: number} {
  const sample: number[] = [];
  const stride = Math.max(1, Math.floor(cells.length / 20000));
  for (let i = 0; i < cells.length; i += stride) if (Number.isFinite(cells[i]!)) sample.push(cells[i]!);
  if (!sample.length) return {low: 0, high: 1};
  sample.sort((a, b) => a - b);
  const low = sample[Math.floor(sample.length * 0.02)]!;
  const high = sample[Math.min(sample.length - 1, Math.floor(sample.length * 0.995))]!;
  // Ranks that are alike look alike: a spread of some per cent is not stretched over all colours.
  return {low, high: Math.max(high, low + Math.abs(low) * kLeastSpan, low + 1e-9)};
}

/** The rows' order with the highest mean of the last `last` columns first. */
export function byWorst(heat: Heat, last = 50): number[] {
  const from = Math.max(0, heat.columns - last);
  const score = Array.from({length: heat.rows}, (_, row) => {
    let sum = 0;
    let n = 0;
    for (let c = from; c < heat.columns; c++) {
      const value = heat.cells[c * heat.rows + row]!;
      if (Number.isFinite(value)) {
        sum += value;
        n++;
      }
    }
    return n ? sum / n : -Infinity;
  });
  return score.map((_, row) => row).sort((a, b) => score[b]! - score[a]! || a - b);
}

/** cividis, 256 RGBA words as an ImageData has them: told apart without colour vision, and in grey. */
export const kScale: Uint32Array = (() => {
  const stops = [[0, 34, 78], [33, 60, 108], [77, 84, 109], [108, 110, 114], [140, 136, 120], [174, 163, 113], [212, 194, 95], [254, 232, 56]];
  const out = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (stops.length - 1);
    const a = stops[Math.floor(at)]!;
    const b = stops[Math.min(stops.length - 1, Math.floor(at) + 1)]!;
    const mix = at - Math.floor(at);
    const [r, g, bl] = [0, 1, 2].map((k) => Math.round(a[k]! + (b[k]! - a[k]!) * mix)) as [number, number, number];
    out[i] = (255 << 24) | (bl << 16) | (g << 8) | r;
  }
  return out;
})();

const kNotFinite = 0xff2f2fd0;  // red, as ABGR

/** The picture, `rows` pixels high, a pixel a column, into `out`: each pixel row shows the highest of the rows that fall on it.
 *  A step that the stream has left out and that is not fetched yet looks as the one before it: a stripe would say more than is known. */
export function paint(heat: Heat, order: number[] | undefined, rows: number, {low, high}: {low: number; high: number}, none: number, out: Uint32Array): void {
  const {cells, columns} = heat;
  const scale = 255 / (high - low);
  const first = Int32Array.from({length: rows + 1}, (_, y) => Math.floor((y * heat.rows) / rows));
  const hole = new Int32Array(rows).fill(-1);  // where it begins
  for (let c = 0; c < columns; c++) {
    const base = c * heat.rows;
    for (let y = 0; y < rows; y++) {
      let best = NaN;
      for (let r = first[y]!; r < first[y + 1]!; r++) {
        const value = cells[base + (order ? order[r]! : r)]!;
        if (value > best || best !== best) best = value;
      }
      const at = y * columns + c;
      out[at] = !(best > -Infinity) ? none : best === Infinity ? kNotFinite : kScale[Math.max(0, Math.min(255, Math.round((best - low) * scale)))]!;
      if (best === -Infinity) {
        if (hole[y]! < 0) hole[y] = c;
      } else if (hole[y]! >= 0) {
        if (hole[y]! > 0 && best === best) out.fill(out[y * columns + hole[y]! - 1]!, y * columns + hole[y]!, at);
        hole[y] = -1;
      }
    }
  }
}
