// A log that is followed where streams do not come through: it is asked for instead.
import {afterEach, beforeEach, expect, test, vi} from 'vitest';

// What a tab has; without locks it has its streams for itself.
vi.stubGlobal('navigator', {});
vi.stubGlobal('location', {pathname: '/'});
vi.stubGlobal('document', {hidden: false, addEventListener: () => undefined});
vi.stubGlobal('addEventListener', () => undefined);
const {cut} = await import('../src/state/live');
const {followLog} = await import('../src/state/follow');

let streams: {send: (text: string) => void; end: () => void; gone: () => boolean}[] = [];
let took = '';
const take = (chunk: Uint8Array) => { took += new TextDecoder().decode(chunk); };

beforeEach(() => {
  vi.useFakeTimers();
  streams = [];
  took = '';
  cut.value = false;
  vi.stubGlobal('fetch', async (_path: string, {signal}: {signal: AbortSignal}) => {
    signal.throwIfAborted();
    let to: ReadableStreamDefaultController;
    const body = new ReadableStream({start: (one) => { to = one; }});
    signal.addEventListener('abort', () => to.error(signal.reason));
    streams.push({send: (text) => to.enqueue(new TextEncoder().encode(text)), end: () => to.close(), gone: () => signal.aborted});
    return new Response(body);
  });
});
afterEach(() => vi.useRealTimers());

/** Follows; `pause` is what it gave, if it has ended. */
function following(stop = new AbortController().signal) {
  const state: {pause?: number; error?: unknown} = {};
  void followLog('v1/x', stop, take).then((pause) => { state.pause = pause; }, (error) => { state.error = error; });
  return state;
}

test('a log that is silent for 45 s is asked for at once: its stream may be dead', async () => {
  const state = following();
  await vi.advanceTimersByTimeAsync(44_000);
  streams[0]!.send('a');
  await vi.advanceTimersByTimeAsync(44_000);
  expect([state.pause, took, streams[0]!.gone()]).toEqual([undefined, 'a', false]);
  await vi.advanceTimersByTimeAsync(1_000);
  expect([state.pause, streams[0]!.gone()]).toEqual([0, true]);
});

test('a log is not followed while streams are held back, but asked for every five seconds', async () => {
  const state = following();
  await vi.advanceTimersByTimeAsync(100);
  cut.value = true;
  await vi.advanceTimersByTimeAsync(0);
  expect([state.pause, streams[0]!.gone()]).toEqual([0, true]);
  const later = following();
  await vi.advanceTimersByTimeAsync(0);
  expect([later.pause, streams.length]).toEqual([5000, 1]);
});

test('a log that nobody looks at any more is followed no longer, also if that was so before it began', async () => {
  const stop = new AbortController();
  const state = following(stop.signal);
  await vi.advanceTimersByTimeAsync(100);
  stop.abort();
  await vi.advanceTimersByTimeAsync(0);
  expect([state.pause, streams[0]!.gone()]).toEqual([0, true]);
  const late = following(stop.signal);
  await vi.advanceTimersByTimeAsync(0);
  expect([late.pause, streams.length]).toEqual([0, 1]);
  expect(vi.getTimerCount()).toBe(0);
});

test('a stream that lockstepd ends is begun again after a while, and a failure is told', async () => {
  const state = following();
  await vi.advanceTimersByTimeAsync(0);
  streams[0]!.end();
  await vi.advanceTimersByTimeAsync(0);
  expect(state.pause).toBe(5000);
  vi.stubGlobal('fetch', async () => new Response('{"title": "gone"}', {status: 404}));
  const gone = following();
  await vi.advanceTimersByTimeAsync(0);
  expect(gone.error).toMatchObject({status: 404});
  expect(vi.getTimerCount()).toBe(0);
});
