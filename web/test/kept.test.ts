import {beforeEach, describe, expect, it, vi} from 'vitest';

/** As the session's storage of a tab; `room`: characters. */
function storage(room = 1e6): Storage {
  const all = new Map<string, string>();
  return {
    get length() { return all.size; },
    key: (i: number) => [...all.keys()][i] ?? null,
    getItem: (name: string) => all.get(name) ?? null,
    setItem: (name: string, value: string) => {
      if (value.length > room) throw new Error('QuotaExceededError');
      all.set(name, value);
    },
    removeItem: (name: string) => void all.delete(name),
    clear: () => all.clear(),
  };
}
/** The page, loaded anew in the same tab. */
async function load(): Promise<typeof import('../src/lib/kept')> {
  vi.resetModules();
  return import('../src/lib/kept');
}
beforeEach(() => void vi.stubGlobal('sessionStorage', storage()));

describe('the key of a submission', () => {
  it('stays while its answer is lost, also over a reload, and is another one once it was taken', async () => {
    const {keyOf} = await load();
    const key = keyOf('ada', '{"name":"a"}');
    expect(key).toMatch(/^[0-9a-f]{32}$/);
    const again = await load();
    again.settle('ada', '{"name":"a"}', 0);
    again.settle('ada', '{"name":"a"}', 502);
    expect(again.keyOf('ada', '{"name":"a"}')).toBe(key);
    again.settle('ada', '{"name":"a"}', 201);
    expect(again.keyOf('ada', '{"name":"a"}')).not.toBe(key);
  });
  it('stays after a refusal too, whose first try may have been taken', async () => {
    const {keyOf, settle} = await load();
    const key = keyOf('ada', 'x');
    for (const status of [400, 401, 409, 412, 429, 503]) settle('ada', 'x', status);
    expect(keyOf('ada', 'x')).toBe(key);
    settle('ada', 'x', 422);
    expect(keyOf('ada', 'x')).not.toBe(key);
  });
  it('is another one for a changed specification and for another person', async () => {
    const {keyOf} = await load();
    expect(new Set([keyOf('ada', 'x'), keyOf('ada', 'y'), keyOf('bob', 'x')]).size).toBe(3);
  });
  it('needs no storage', async () => {
    for (const none of [undefined, storage(3)]) {
      vi.stubGlobal('sessionStorage', none);
      const {keyOf, settle} = await load();
      const key = keyOf('ada', 'x');
      expect(keyOf('ada', 'x')).toBe(key);
      settle('ada', 'x', 201);
      expect(keyOf('ada', 'x')).not.toBe(key);
    }
  });
});
