// Whether lockstepd answers, or something before it.
import {afterEach, expect, test, vi} from 'vitest';
import {ask, reach} from '../src/state/api';

afterEach(() => vi.unstubAllGlobals());

async function reachedBy(status: number, type: string): Promise<boolean> {
  reach.value = {ok: true, since: 0};
  vi.stubGlobal('fetch', async () => new Response('x', {status, headers: {'Content-Type': type}}));
  await ask('GET', 'v1/whoami');
  return reach.value.ok;
}

test('a proxy that says 503 in a page of its own for a lockstepd that is down is no answer of it', async () => {
  expect(await reachedBy(503, 'text/html; charset=iso-8859-1')).toBe(false);
  expect(await reachedBy(502, 'text/html')).toBe(false);
  expect(await reachedBy(504, 'application/problem+json')).toBe(false);
});

test('lockstepd that is at a limit answers', async () => {
  for (const [status, type] of [[503, 'application/problem+json'], [200, 'application/json'], [500, 'text/html']] as const) expect(await reachedBy(status, type), `${status}`).toBe(true);
});
