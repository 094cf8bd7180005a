// A command whose answer was lost: the next try has the same key, so lockstepd does it once.
import {webcrypto} from 'node:crypto';
import {afterEach, beforeEach, expect, test, vi} from 'vitest';
import {ApiError, sendOnce} from '../src/state/api';

let keys: (string | undefined)[] = [];
let answers: (() => Response)[] = [];

beforeEach(() => {
  keys = [];
  vi.stubGlobal('crypto', webcrypto);
  vi.stubGlobal('fetch', async (_path: string, options: {headers: Record<string, string>}) => {
    keys.push(options.headers['Idempotency-Key']);
    return answers.shift()!();
  });
});
afterEach(() => vi.unstubAllGlobals());

const done = () => new Response('{"id":"ls-1"}', {status: 200});
const lost = (): Response => { throw new TypeError('connection reset'); };
const status = (code: number) => () => new Response('{"title":"t","detail":"d"}', {status: code});
const cut = () => new Response('{"id":', {status: 200});

test('each command that is answered has a key of its own', async () => {
  answers = [done, done];
  await sendOnce('v1/jobs/a/restart');
  await sendOnce('v1/jobs/a/restart');
  expect(keys[0]).toMatch(/^[0-9a-f]{32}$/);
  expect(keys[1]).not.toBe(keys[0]);
});

test('after answers that were lost it is asked for again under the same key', async () => {
  answers = [lost, status(502), status(503), status(504), cut, done, done];
  for (let i = 0; i < 5; i++) await expect(sendOnce('v1/jobs/b/restart')).rejects.toThrow();
  await sendOnce('v1/jobs/b/restart');
  await sendOnce('v1/jobs/b/restart');
  expect(new Set(keys.slice(0, 6)).size).toBe(1);
  expect(keys[6]).not.toBe(keys[0]);
});

test('a refusal ends the key, and another command has another one', async () => {
  answers = [status(409), lost, done, done];
  await expect(sendOnce('v1/jobs/c/restart')).rejects.toThrow(ApiError);
  await expect(sendOnce('v1/jobs/c/restart')).rejects.toThrow(ApiError);
  await sendOnce('v1/jobs/c/checkpoint');
  await sendOnce('v1/jobs/c/restart');
  expect(keys[1]).not.toBe(keys[0]);
  expect(keys[2]).not.toBe(keys[1]);
  expect(keys[3]).toBe(keys[1]);
});

test('who asks again much later wants it once more', async () => {
  const clock = vi.spyOn(Date, 'now').mockReturnValue(1e12);
  answers = [lost, lost, done];
  await expect(sendOnce('v1/jobs/d/restart')).rejects.toThrow();
  clock.mockReturnValue(1e12 + 299_000);
  await expect(sendOnce('v1/jobs/d/restart')).rejects.toThrow();
  clock.mockReturnValue(1e12 + 301_000);
  await sendOnce('v1/jobs/d/restart');
  clock.mockRestore();
  expect(keys[1]).toBe(keys[0]);
  expect(keys[2]).not.toBe(keys[0]);
});
