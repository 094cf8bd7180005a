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

describe('a draft', () => {
  it('is of a person and of what it was begun from, over a reload', async () => {
    const {keep} = await load();
    keep('draft', 'ada', {text: 'new'});
    keep('draft', 'ada', {text: 'again'}, 'ls-1');
    const {kept} = await load();
    expect(kept('draft', 'ada')).toEqual({text: 'new'});
    expect(kept('draft', 'ada', 'ls-1')).toEqual({text: 'again'});
    expect(kept('draft', 'ada', 'ls-2')).toBeUndefined();
    expect(kept('draft', 'bob', 'ls-1')).toBeUndefined();
    keep('draft', 'ada', undefined, 'ls-1');
    expect(kept('draft', 'ada', 'ls-1')).toBeUndefined();
    expect((await load()).kept('draft', 'ada')).toEqual({text: 'new'});
  });
  it('is gone once another person signs in, or nobody is', async () => {
    sessionStorage.setItem('of another page', 'x');
    for (const next of ['bob', 'ad', undefined]) {
      const {keep, keepOnly, kept, keyOf} = await load();
      keep('draft', 'ada', {text: 'secret'});
      keep('draft', 'ada lovelace', {text: 'secret'}, 'ls-1');
      keyOf('ada', 'secret');
      keepOnly('ada');
      expect(kept('draft', 'ada')).toEqual({text: 'secret'});
      expect(kept('draft', 'ada lovelace', 'ls-1')).toBeUndefined();
      keepOnly(next);
      expect(kept('draft', 'ada')).toBeUndefined();
      expect(kept('sent', 'ada')).toBeUndefined();
      expect(sessionStorage.length).toBe(1);
    }
  });
  it('that has no room in storage is there until the page is loaded anew, and no older one after', async () => {
    vi.stubGlobal('sessionStorage', storage(40));
    const {keep, kept} = await load();
    keep('draft', 'ada', {text: 'short'});
    keep('draft', 'ada', {text: 'x'.repeat(100)});
    expect(kept('draft', 'ada')).toEqual({text: 'x'.repeat(100)});
    expect((await load()).kept('draft', 'ada')).toBeUndefined();
  });
});
