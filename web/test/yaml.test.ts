import {readFileSync} from 'node:fs';
import path from 'node:path';
import {describe, expect, it} from 'vitest';
import {asTyped, formatYaml, parseYaml} from '../src/lib/yaml';

const texts = JSON.parse(readFileSync(path.join(__dirname, 'yaml_texts.json'), 'utf8')) as {
  same: {text: string; value: unknown}[]; refused: {text: string; line?: number; column?: number; words: string}[]};

describe('specifications in YAML', () => {
  it('read as the command line reads them', () => {
    expect(parseYaml('name: 4711\nframework: pytorch\ncommand: [python3, train.py, --lr, 0.10, 1e-3]\nenvironment:\n  DEBUG: 1\n  ON: true\n  EMPTY: ""\n'
      + 'resources: {nodes: 2, time_limit: 04:00:00}\nrecovery:\n  on: [hang]\nlabels: {run: 007}\n# why\ntrain:\n  learning_rate: 1e-3\n')).toEqual({
      name: '4711', framework: 'pytorch', command: ['python3', 'train.py', '--lr', '0.10', '1e-3'], environment: {DEBUG: '1', ON: 'true', EMPTY: ''},
      resources: {nodes: 2, time_limit: '04:00:00'}, recovery: {on: ['hang']}, labels: {run: '007'}, train: {learning_rate: 0.001}});
    // JSON is YAML.
    expect(parseYaml('{"name": "a", "environment": {"A": 1}}')).toEqual({name: 'a', environment: {A: '1'}});
  });
  // So does the command line (tests/unit/cli/document_test.cpp), with the same texts.
  it.each(texts.same)('$text is what it is on the command line', ({text, value}) => {
    const read = parseYaml(text);
    expect(JSON.stringify(read)).toBe(JSON.stringify(value));
    expect(({} as {polluted?: number}).polluted).toBeUndefined();
  });
  it.each(texts.refused)('$text is refused as on the command line', ({text, line, column, words}) => {
    const from = performance.now();
    expect(() => parseYaml(text)).toThrow(SyntaxError);
    expect(() => parseYaml(text)).toThrow(words);
    expect(() => parseYaml(text)).toThrow(new RegExp(`^line ${line ?? '\\d+'}, column ${column ?? '\\d+'}: `));
    // No alias makes gigabytes of it.
    expect(performance.now() - from).toBeLessThan(5000);
  });
  it.each([
    ['name: [a\n', /^line 2, column 1: /],
    ['a: 1\nb: "open\n', /^line 3, column 1: /],
    ['a:\n\tb: 1\n', /^line 2, column \d: .*tab/],
    ['a: 1\n b: 2\n', /^line 2, column \d/],
    ['x: 1\na: *nowhere\n', /^line 2, column 5: nothing is called nowhere before$/],
    ['a: 1\n---\nb: 2\n', /^one document is wanted, there are 2$/],
    ['', /^one document is wanted, there are 0$/],
    ['['.repeat(5000), /^line 1, column 34: the document is too large or nested too deeply/],
    // Where what is empty would be.
    ['a: 1\nb:\n  <<: # nothing\nc: 1\n', /^line 3, column 7: << takes a map/],
    ['a: [b, "c"]\nb:\n  <<:\n', /^line 3, column 6: << takes a map/],
    ['a: {<<: [{b: }, {c}, [ ]]}\nb:\n- <<:\n', /^line 3, column 6: << takes a map/],
    ['a: {<<: [\n  { b: 1 }, !!null ,\n ]}\n', /^line 2, column 13: << takes a map/],
    ['"": 1\n"": 2\n', /^line 2, column 1: "" is here twice$/],
    // Only a double is there for it.
    ['a: 1\nb: 9007199254740992\n', /^line 2, column 4: 9007199254740992: whole numbers go to 2\^53 - 1 here/],
    ['a: [1, -12345678901234567890]\n', /^line 1, column 8: -12345678901234567890: whole numbers/],
    ['a: +9007199254740993\n', /^line 1, column 4: \+9007199254740993: whole numbers/],
  ])('%j is refused where it is wrong', (text, message) => {
    expect(() => parseYaml(text)).toThrow(SyntaxError);
    expect(() => parseYaml(text)).toThrow(message);
  });
  it('a map has no more fields than lockstepd takes', () => {
    const fields = (count: number): string => Array.from({length: count}, (_, i) => `k${i}: x`).join(', ');
    expect(Object.keys(parseYaml(`{${fields(1024)}}`) as object)).toHaveLength(1024);
    for (const many of [`{${fields(1025)}}`, `a: &a {${fields(1024)}}\nb: {<<: *a, c: 1}\n`]) expect(() => parseYaml(many)).toThrow(/too large/);
  });
  it('a text that is long is not a thousand times there', () => {
    const text = 'x'.repeat(400_000);
    for (const many of [`a: &a ${text}\nb: [${'*a,'.repeat(1000)}]\n`, `"${text}": [${'1,'.repeat(1000)}]\n`]) expect(() => parseYaml(many)).toThrow(/too large/);
    expect(parseYaml(`a: ${text}\nb: [${'1,'.repeat(50_000)}]\n`)).toHaveProperty('a', text);
  });
  it('numbers that are no whole ones are what is nearest, texts what they are', () => {
    expect(parseYaml('a: [1e19, 9007199254740993.0, "9007199254740993"]\nenvironment: {A: 9007199254740993}\n')).toEqual(
      {a: [1e19, 9007199254740992, '9007199254740993'], environment: {A: '9007199254740993'}});
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
    const numbers = {a: 0, b: -1.5, c: 1e21, big: 1e16, least: -123456789012345680000, exact: 9007199254740991, d: 5e-324, e: true, f: null, g: [], h: {}, i: [[1, [2]], [{j: 3}]]};
    expect(parseYaml(formatYaml(numbers))).toEqual(numbers);
  });
  it('is written as a person writes it', () => {
    expect(formatYaml({name: 'first', command: ['python3', 'train.py', '--lr', '0.1'], setup: 'module load cuda/12\nulimit -c 0\n', resources: {nodes: 2}, environment: {A: '1', B: 'no'}, labels: {}})).toBe(
      'name: first\ncommand:\n  - python3\n  - train.py\n  - --lr\n  - "0.1"\nsetup: |\n  module load cuda/12\n  ulimit -c 0\nresources:\n  nodes: 2\nenvironment:\n  A: "1"\n  B: "no"\nlabels: {}\n');
  });
});

describe('a specification as it was typed', () => {
  const typed = {text: '# mine\nname: a\nresources: {nodes: 1}\n', yaml: true};
  const value = {name: 'a', resources: {nodes: 1}};
  it('keeps its comments in its own language while it says the same', () => {
    expect(asTyped(value, typed, true)).toBe(typed);
    expect(asTyped(value, typed)).toBe(typed);
    expect(asTyped(value, {text: '{"name": "a", // mine\n"resources": {"nodes": 1}}', yaml: false}, false).text).toContain('// mine');
  });
  it('is written anew in the other language, and once it says something else', () => {
    expect(asTyped(value, typed, false)).toEqual({text: JSON.stringify(value, null, 2), yaml: false});
    expect(asTyped({...value, name: 'b'}, typed, true)).toEqual({text: 'name: b\nresources:\n  nodes: 1\n', yaml: true});
    expect(asTyped({...value, name: 'b'}, typed)).toEqual({text: JSON.stringify({...value, name: 'b'}, null, 2), yaml: false});
    expect(asTyped(value, {text: '{ half', yaml: true}, true).text).toBe('name: a\nresources:\n  nodes: 1\n');
  });
});
