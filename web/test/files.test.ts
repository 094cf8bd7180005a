import {beforeEach, describe, expect, it, vi} from 'vitest';

vi.mock('../src/state/api', () => ({ApiError: class extends Error {
  constructor(readonly status: number, readonly problem: unknown, message: string) {
    super(message);
  }
}, good: (path: string) => answers(path)}));
const {ApiError} = await import('../src/state/api');
const {kSlice, slice, whole} = await import('../src/state/files');

let answers: (path: string) => Promise<Response>;
/** A file of `size` bytes, as lockstepd gives it. */
const file = (size: number) => {
  const content = Uint8Array.from({length: size}, (_, i) => (i * 31) % 251);
  return {content, ask: async (offset: number) => {
    const bytes = content.slice(offset, offset + kSlice);
    return {bytes, offset: Math.min(offset, size), next: Math.min(offset, size) + bytes.length, instead: null};
  }};
};
const bytesOf = async (blob: Blob) => new Uint8Array(await blob.arrayBuffer());
const waits: number[] = [];
const pause = async (milliseconds: number) => { waits.push(milliseconds); };
beforeEach(() => { waits.length = 0; });

describe('a file in slices', () => {
  it('is whole, whatever it takes', async () => {
    for (const size of [0, 1, kSlice - 1, kSlice, kSlice + 1, 3 * kSlice + 7]) {
      const {content, ask} = file(size);
      for (const wanted of [undefined, size]) expect(Buffer.compare(await bytesOf(await whole(ask, {size: wanted, pause})), content), `${size}`).toBe(0);
    }
    expect(waits).toEqual([]);
  });
  it('of more than 64 MiB has its last byte', async () => {
    let asked = 0;
    const bytes = new Uint8Array(kSlice);
    const blob = await whole(async (offset) => ({bytes: ++asked <= 70 ? bytes : bytes.subarray(0, 5), offset, next: offset + (asked <= 70 ? kSlice : 5), instead: null}));
    expect(blob.size).toBe(70 * kSlice + 5);
  });
  it('goes on after what passes, from where it was', async () => {
    const {content, ask} = file(2 * kSlice + 3);
    const troubles = [503, 0, 502, 429];
    const asked: number[] = [];
    const blob = await whole(async (offset) => {
      asked.push(offset);
      if (offset && troubles.length) throw new ApiError(troubles.shift()!, undefined, 'no');
      return ask(offset);
    }, {size: content.length, pause});
    expect(Buffer.compare(await bytesOf(blob), content)).toBe(0);
    expect(asked).toEqual([0, ...Array(5).fill(kSlice), 2 * kSlice]);
    expect(waits).toEqual([500, 1000, 2000, 4000]);
  });
  it('that nobody gives any more is not saved, and what does not pass is not tried again', async () => {
    const {ask} = file(3 * kSlice);
    const refusing = (status: number) => whole((offset) => (offset ? Promise.reject(new ApiError(status, undefined, `HTTP ${status}`)) : ask(offset)), {size: 3 * kSlice, pause});
    await expect(refusing(503)).rejects.toThrow('HTTP 503');
    expect(waits.length).toBe(5);
    await expect(refusing(404)).rejects.toThrow('HTTP 404');
    expect(waits.length).toBe(5);
  });
  it('that is not what the list said is not saved', async () => {
    const {ask} = file(kSlice + 5);
    await expect(whole(ask, {size: kSlice + 6})).rejects.toThrow(`It has ${kSlice + 5} bytes, and ${kSlice + 6} when it was listed`);
    await expect(whole(ask, {size: kSlice + 4})).rejects.toThrow('nothing was saved');
    await expect(whole(ask, {size: 0})).rejects.toThrow('nothing was saved');
  });
  it('that has become shorter is not patched together', async () => {
    const {ask} = file(kSlice);
    const shorter = file(10);
    await expect(whole((offset) => (offset ? shorter.ask(offset) : ask(offset)))).rejects.toThrow('become shorter');
  });
  it('has in a log places whose bytes are not kept: those are counted, and not there', async () => {
    const pieces = [{bytes: new Uint8Array(kSlice), offset: 0, next: 5 * kSlice, instead: null}, {bytes: new Uint8Array(9), offset: 5 * kSlice, next: 5 * kSlice + 9, instead: null}];
    expect((await whole(async () => pieces.shift()!)).size).toBe(kSlice + 9);
  });
});

it('an answer that breaks off is no answer', async () => {
  answers = async () => new Response(new ReadableStream({start: (to) => to.error(new TypeError('network'))}));
  await expect(slice('v1/x')).rejects.toMatchObject({status: 0});
  answers = async () => new Response('abc', {headers: {'Lockstep-Log-Offset': '4', 'Lockstep-Log-Next': '7'}});
  expect(await slice('v1/x')).toMatchObject({offset: 4, next: 7, instead: null, hole: NaN});
});

it('a slice that has a hole says where that begins, which may be before it', async () => {
  answers = async () => new Response('[lockstep: 90 bytes dropped]\nabc', {headers: {'Lockstep-Log-Offset': '50', 'Lockstep-Log-Next': '143', 'Lockstep-Log-Dropped': '20-140'}});
  expect(await slice('v1/x')).toMatchObject({offset: 50, next: 143, hole: 20});
});
