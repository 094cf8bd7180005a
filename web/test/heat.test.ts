import {describe, expect, it} from 'vitest';
import {append, byWorst, decodeColumn, decodeHeat, kScale, leaveOpen, paint, span} from '../src/lib/heat';

function packed(rows: number, columns: number, cells: number[], low = 0, high = 253, step = 100, width = 1, perRow = 1): ArrayBuffer {
  const buffer = new ArrayBuffer(56 + cells.length);
  const view = new DataView(buffer);
  view.setUint32(0, 0x3148534c, true);
  view.setUint16(4, 1, true);
  [rows, columns, 0, perRow].forEach((value, i) => view.setUint32(8 + 4 * i, value, true));
  view.setBigInt64(24, BigInt(step), true);
  view.setBigInt64(32, BigInt(width), true);
  view.setFloat64(40, low, true);
  view.setFloat64(48, high, true);
  new Uint8Array(buffer, 56).set(cells);
  return buffer;
}

describe('heatmap', () => {
  it('decodes row by row into columns', () => {
    const heat = decodeHeat(packed(2, 3, [1, 2, 0, 254, 255, 3]));
    expect([heat.rows, heat.columns, heat.firstStep]).toEqual([2, 3, 100]);
    expect([...heat.cells]).toEqual([0, 253, 1, Infinity, NaN, 2]);
  });
  it('refuses what is none or cut off', () => {
    expect(() => decodeHeat(new ArrayBuffer(10))).toThrow('not a heatmap');
    expect(() => decodeHeat(packed(9, 9, [1]))).toThrow('cut off');
  });
  it('appends steps, forgets the oldest', () => {
    let heat = decodeHeat(packed(1, 2, [1, 2]));
    heat = append(heat, 103, Float32Array.of(7), 4);
    expect([...heat.cells]).toEqual([0, 1, -Infinity, 7]);
    heat = append(heat, 104, Float32Array.of(8), 4);
    expect([heat.firstStep, ...heat.cells]).toEqual([101, 1, -Infinity, 7, 8]);
    expect([...append(heat, 104, Float32Array.of(9), 4).cells]).toEqual([1, -Infinity, 7, 9]);
    expect(append(heat, 5, Float32Array.of(9), 4)).toBe(heat);
  });
  it('a step that the stream skipped is not said to be empty', () => {
    let heat = decodeHeat(packed(2, 1, [2, 0]));
    heat = append(heat, 103, Float32Array.of(7, -Infinity), 9);
    const known = (c: number) => [...heat.cells.subarray(c * 2, c * 2 + 2)];
    expect([known(0), known(1), known(2), known(3)]).toEqual([[1, NaN], [-Infinity, -Infinity], [-Infinity, -Infinity], [7, -Infinity]]);
    // Once it comes, it is; also where steps share a column.
    heat = append({...heat, stepsPerColumn: 2, firstStep: 100}, 102, Float32Array.of(5, -Infinity), 9);
    expect(known(1)).toEqual([5, -Infinity]);
    expect(span(Float32Array.of(-Infinity, 1, 2)).low).toBe(1);
  });
  it('a rank that is too far behind to be waited for is not said to have reported nothing', () => {
    const column = decodeColumn(btoa(String.fromCharCode(0, 2)), 0, 253, 2, 1);
    expect([...column]).toEqual([-Infinity, 1]);
    // Neither is what was known of it taken back.
    const heat = append(decodeHeat(packed(2, 1, [8, 0])), 100, column, 9);
    expect([...heat.cells]).toEqual([7, 1]);
    expect([...append(heat, 100, Float32Array.of(3, -Infinity), 9).cells]).toEqual([3, 1]);
  });
  it('the newest steps of a rank that was heard a moment ago are not said to be empty', () => {
    // Rank 0 has all, rank 1 all but the newest, rank 2 never reported, rank 3 not for 33 steps.
    const row = (none: number) => Array.from({length: 40}, (_, c) => (c < 40 - none ? 5 : 0));
    const heat = leaveOpen(decodeHeat(packed(4, 40, [row(0), row(1), row(40), row(33)].flat())));
    const last = (c: number) => [...heat.cells.subarray(c * 4, c * 4 + 4)];
    expect([last(38), last(39)]).toEqual([[4, 4, NaN, NaN], [4, -Infinity, NaN, NaN]]);
  });
  it('a column of the stream keeps the highest of the ranks that share a row', () => {
    const base64 = btoa(String.fromCharCode(1, 254, 0, 128));
    expect([...decodeColumn(base64, 0, 253, 2, 2)]).toEqual([253, 127]);
  });
  it('appends one of 10,000 ranks within 40 ms', () => {
    const cells = btoa(String.fromCharCode(...Array.from({length: 10_000}, (_, i) => 1 + (i % 250))));
    let heat = decodeHeat(packed(1000, 600, Array.from({length: 600_000}, () => 9), 0, 1, 0, 1, 10));
    const start = performance.now();
    for (let i = 0; i < 20; i++) heat = append(heat, 600 + i, decodeColumn(cells, 0, 1, 1000, 10), 600);
    expect((performance.now() - start) / 20).toBeLessThan(40);
  });
  it('one stall does not wash out the rest; the slowest comes first', () => {
    const cells = Float32Array.from({length: 1000}, (_, i) => 1 + (i % 10) / 100);
    cells[500] = 1e6;
    expect(span(cells).high).toBeLessThan(2);
    expect(byWorst(decodeHeat(packed(3, 2, [1, 1, 200, 200, 5, 5])))).toEqual([1, 2, 0]);
  });
  it('a step that is not fetched yet looks as the one before it, not as an empty one, and at the end as none', () => {
    const cells = Float32Array.from([1, 0, -Infinity, 0, 1, -Infinity, NaN, 0, -Infinity, 0, Infinity, -Infinity]);
    const out = new Uint32Array(12);
    paint({rows: 2, columns: 6, firstRank: 0, ranksPerRow: 1, firstStep: 0, stepsPerColumn: 1, cells}, undefined, 2, {low: 0, high: 1}, 7, out);
    const [low, high, red] = [kScale[0], kScale[255], 0xff2f2fd0];
    expect([...out.subarray(0, 6)]).toEqual([high, high, high, 7, 7, red]);
    expect([...out.subarray(6)]).toEqual([low, low, low, low, low, 7]);
    const one = new Uint32Array(6);
    paint({rows: 2, columns: 6, firstRank: 0, ranksPerRow: 1, firstStep: 0, stepsPerColumn: 1, cells}, [1, 0], 1, {low: 0, high: 1}, 7, one);
    expect([...one]).toEqual([high, low, high, low, low, red]);  // two ranks in a pixel: the highest
  });
  it('the scale rises in lightness', () => {
    const light = (c: number) => 0.2126 * (c & 255) + 0.7152 * ((c >> 8) & 255) + 0.0722 * ((c >> 16) & 255);
    for (let i = 8; i < 256; i += 8) expect(light(kScale[i]!)).toBeGreaterThan(light(kScale[i - 8]!));
  });
});
