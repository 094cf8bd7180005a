import {describe, expect, it} from 'vitest';
import {formatYaml, parseYaml} from '../src/lib/yaml';

describe('specifications in YAML', () => {
  it('read as the command line reads them', () => {
    expect(parseYaml('name: 4711\nframework: pytorch\ncommand: [python3, train.py, --lr, 0.10, 1e-3]\nenvironment:\n  DEBUG: 1\n  ON: true\n  EMPTY: ""\n'
      + 'resources: {nodes: 2, time_limit: 04:00:00}\nrecovery:\n  on: [hang]\nlabels: {run: 007}\n# why\ntrain:\n  learning_rate: 1e-3\n')).toEqual({
      name: '4711', framework: 'pytorch', command: ['python3', 'train.py', '--lr', '0.10', '1e-3'], environment: {DEBUG: '1', ON: 'true', EMPTY: ''},
      resources: {nodes: 2, time_limit: '04:00:00'}, recovery: {on: ['hang']}, labels: {run: '007'}, train: {learning_rate: 0.001}});
    // JSON is YAML.
    expect(parseYaml('{"name": "a", "environment": {"A": 1}}')).toEqual({name: 'a', environment: {A: '1'}});
  });
  // The command line makes the same of each of these.
  it.each<[string, unknown]>([
    ['a: ~\nb: null\nc:\nname: ~\nenvironment: {A: , B: null, C: "null"}\n', {a: null, b: null, c: null, name: '', environment: {A: '', B: '', C: 'null'}}],
    ['a: [yes, no, on, off, True, FALSE, "true", !!str true, ! 5, !!int "5"]\n', {a: ['yes', 'no', 'on', 'off', true, false, 'true', 'true', '5', 5]}],
    ['a: [0x1F, 0o17, 007, +5, -5, .5, 5., 1e3, 1_000, .inf, .nan, 4:00:00, 2024-01-01, a-, +]\n',
      {a: ['0x1F', '0o17', 7, 5, -5, 0.5, 5, 1000, '1_000', '.inf', '.nan', '4:00:00', '2024-01-01', 'a-', '+']}],
    ['setup: |\n  module load cuda\n\n    deeper\nname: >-\n  folded\n  text\nk: |+\n  kept\n\n', {setup: 'module load cuda\n\n  deeper\n', name: 'folded text', k: 'kept\n\n'}],
    ["a: 'it''s'\nb: \"tab\\tA\\u00e9\\x41\"\n\"quoted key\": 1\n? complex\n: 2\n", {a: "it's", b: 'tab\tA\u00e9A', 'quoted key': 1, complex: 2}],
    ['base: &base {nodes: 2, gpus: 1}\nresources: {<<: *base, nodes: 4}\nmany: {<<: [{a: 1, b: 1}, {b: 2, c: 2}]}\n"<<": text\n',
      {base: {nodes: 2, gpus: 1}, resources: {nodes: 4, gpus: 1}, many: {a: 1, b: 1, c: 2}, '<<': 'text'}],
    // Whether it is text is said by where it stands, not by where it was written.
    ['lr: &lr 0.10\nenvironment: {LR: *lr}\n', {lr: 0.1, environment: {LR: '0.10'}}],
    ['a: &x 1\nb: *x\nc: &x 2\nd: *x\n', {a: 1, b: 1, c: 2, d: 2}],
    ['---\n# only a comment before\nlist:\n- a\n-   - b\n    - c\n- k: v\n  l: w\n...\n', {list: ['a', ['b', 'c'], {k: 'v', l: 'w'}]}],
    ['__proto__: {polluted: 1}\n', JSON.parse('{"__proto__": {"polluted": 1}}')],
  ])('%j', (text, value) => {
    const read = parseYaml(text);
    expect(JSON.stringify(read)).toBe(JSON.stringify(value));
    expect(({} as {polluted?: number}).polluted).toBeUndefined();
  });
  it.each([
    ['name: [a\n', /^line 2, column 1: /],
    ['a: 1\nb: "open\n', /^line 3, column 1: /],
    ['a: 1\na: 2\n', /^line 2, column 1: "a" is here twice$/],
    ['a:\n\tb: 1\n', /^line 2, column \d: .*tab/],
    ['a: 1\n b: 2\n', /^line 2, column \d/],
    ['x: 1\na: *nowhere\n', /^line 2, column 5: nothing is called nowhere before$/],
    ['? [a]\n: 1\n', /^line 1, column 3: the name of a field must be a word$/],
    ['a: {<<: 5}\n', /^line 1, column 9: << takes a map/],
    ['a: 1\n---\nb: 2\n', /^one document is wanted, there are 2$/],
    ['', /^one document is wanted, there are 0$/],
  ])('%j is refused where it is wrong', (text, message) => {
    expect(() => parseYaml(text)).toThrow(SyntaxError);
    expect(() => parseYaml(text)).toThrow(message);
  });
  it.each([
    ['aliases of aliases', ['a: &a [x,x,x,x,x,x,x,x,x]', ...'bcdefghi'.split('').map((name, i) => `${name}: &${name} [${Array(9).fill(`*${'abcdefghi'[i]}`).join(',')}]`)].join('\n')],
    ['an alias in itself', 'a: &a [*a]\n'],
    ['a map merged into itself twice', 'a: &a\n  <<: [*a, *a]\n'],
    ['lists in lists', '['.repeat(5000)],
  ])('%s do not become gigabytes', (_name, text) => {
    const from = performance.now();
    expect(() => parseYaml(text)).toThrow(/too large|nesting|nested|depth|<< takes/i);
    expect(performance.now() - from).toBeLessThan(5000);
  });
  it('written and read they are the same', () => {
    const spec = {name: 'a', command: ['python3', '-c', 'print("1")\nprint(2)', '1', 'true', '~'], environment: {A: '1', B: 'no', C: ''}, resources: {nodes: 1}};
    expect(parseYaml(formatYaml(spec))).toEqual(spec);
  });
  const strange = ['', ' ', ' a', 'a ', 'a: b', 'a #b', '#a', '-', '--', '---', '--lr', '- a', '? a', '! a', '&a', '*a', '%a', '@a', '`a', '"', "'", '[', '{', '}', ',', 'a,b', '=', '<<', '.', '..', './run.sh', '.inf', '.NaN', 'y', 'No', 'on',
    'null', '~', 'TRUE', '0', '-1', '+1', '1e3', '0x1F', '0o17', '1_000', '4:00:00', '2024-01-01', 'http://host:80/a?b=c', 'a\nb', 'a\nb\n', 'a\n\n', '\na', ' a\nb', 'a\n  b\n\n\tc\n', 'a\n ', 'a\r\nb', '\t', 'é', '日本', '🚀\n🚀', '\u0085', '\u2028',
    '\ufeffa', '\u007f', 'a\u0000', '\u001b[0m', 'a\\nb', '...', 'a\n---\nb', 'a\n...\nb'];
  it('any text is written so that it is read as it was, as a value, in a list, as a name', () => {
    for (const text of strange) {
      // No reader of YAML takes a zero byte as it is; escaped it may be.
      const spec = {free: text, name: text, command: [text, text], labels: {[text]: text}, deep: [[text], {a: text}, [], {}], last: text};
      expect(parseYaml(formatYaml(spec)), JSON.stringify(text)).toEqual(spec);
    }
    const numbers = {a: 0, b: -1.5, c: 1e21, d: 5e-324, e: true, f: null, g: [], h: {}, i: [[1, [2]], [{j: 3}]]};
    expect(parseYaml(formatYaml(numbers))).toEqual(numbers);
  });
  it('is written as a person writes it', () => {
    expect(formatYaml({name: 'first', command: ['python3', 'train.py', '--lr', '0.1'], setup: 'module load cuda/12\nulimit -c 0\n', resources: {nodes: 2}, environment: {A: '1', B: 'no'}, labels: {}})).toBe(
      'name: first\ncommand:\n  - python3\n  - train.py\n  - --lr\n  - "0.1"\nsetup: |\n  module load cuda/12\n  ulimit -c 0\nresources:\n  nodes: 2\nenvironment:\n  A: "1"\n  B: "no"\nlabels: {}\n');
  });
});
