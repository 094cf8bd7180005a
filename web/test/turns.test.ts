import {describe, expect, it} from 'vitest';
import {inTurn} from '../src/state/api';

/** Questions that are answered when the test says so. */
function questions(): {ask: (name: string, hasTime?: boolean) => void; begun: string[]; answer: (name: string) => Promise<void>} {
  const begun: string[] = [];
  const open = new Map<string, () => void>();
  const whole = new Map<string, Promise<void>>();
  return {
    begun,
    ask: (name, hasTime) => void whole.set(name, inTurn(() => new Promise<void>((resolve) => {
      begun.push(name);
      open.set(name, resolve);
    }), hasTime)),
    answer: async (name) => {
      open.get(name)!();
      await whole.get(name);
    },
  };
}

describe('questions in turn', () => {
  it('of what needs a look come one at a time, and never before a row of the list', async () => {
    const {ask, begun, answer} = questions();
    for (const name of ['look 1', 'look 2', 'look 3']) ask(name, true);
    for (const name of ['row 1', 'row 2', 'row 3', 'row 4']) ask(name);
    await Promise.resolve();
    expect(begun).toEqual(['look 1', 'row 1', 'row 2', 'row 3']);
    await answer('look 1');
    expect(begun.at(-1)).toBe('row 4');
    await answer('row 1');
    expect(begun.at(-1)).toBe('look 2');
    await answer('row 2');
    expect(begun).toHaveLength(6);
    await answer('look 2');
    expect(begun.at(-1)).toBe('look 3');
    for (const name of ['row 3', 'row 4', 'look 3']) await answer(name);
  });
  it('go on after one that failed', async () => {
    await expect(inTurn(() => Promise.reject(new Error('no')), true)).rejects.toThrow('no');
    await expect(Promise.all([1, 2, 3, 4, 5, 6].map((one) => inTurn(() => Promise.resolve(one), one > 3)))).resolves.toEqual([1, 2, 3, 4, 5, 6]);
  });
});
