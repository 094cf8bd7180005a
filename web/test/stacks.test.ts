import {describe, expect, it} from 'vitest';
import {hottest, threads} from '../src/lib/stacks';

const kText = `reporter;run (report.py:9);wait (threading.py:320) 500
MainThread;<module> (train.py:40);main (train.py:31);forward (model.py:7) 310
MainThread;<module> (train.py:40);main (train.py:33);step (adam.py:12) 120
MainThread;<module> (train.py:40);main (train.py:31);load (data.py:3) 60
MainThread;<module> (train.py:40) 10
`;

describe('folded stacks', () => {
  it('become a tree for each thread, the main one first and callees by how often they were seen', () => {
    const all = threads(kText);
    expect(all.map(({name, count}) => [name, count])).toEqual([['MainThread', 500], ['reporter', 500]]);
    const module = all[0]!.callees[0]!;
    expect([module.name, module.count, module.self]).toEqual(['<module> (train.py:40)', 500, 10]);
    expect(module.callees.map(({name, count}) => [name, count])).toEqual([['main (train.py:31)', 370], ['main (train.py:33)', 120]]);
    expect(module.callees[0]!.callees.map(({name}) => name)).toEqual(['forward (model.py:7)', 'load (data.py:3)']);
  });
  it('say which lines were on top most often, however they were come to', () => {
    const twice = threads('MainThread;a (x.py:1);copy (t.py:5) 3\nMainThread;b (x.py:2);copy (t.py:5) 4\nMainThread;b (x.py:2) 5\n');
    expect(hottest(twice[0]!, 10)).toEqual([{name: 'copy (t.py:5)', self: 7}, {name: 'b (x.py:2)', self: 5}]);
    expect(hottest(twice[0]!, 1)).toHaveLength(1);
  });
  it('of anything else are nothing', () => {
    for (const text of ['', '\n\n', 'no number', 'x 0', 'x -3', 'x 1.5', ' 7', '12']) expect(threads(text)).toEqual([]);
  });
  it('a recursion of a hundred thousand frames is cut, not followed', () => {
    const deep = threads(`MainThread;${'f (r.py:1);'.repeat(100_000)}g (r.py:2) 9\n`);
    expect(hottest(deep[0]!, 3)).toEqual([{name: 'f (r.py:1)', self: 9}]);
  });
});
