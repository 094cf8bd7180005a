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
    expect(() => parseYaml('name: [a\n')).toThrow(/line/);
    expect(() => parseYaml('a: 1\na: 2\n')).toThrow(/unique/);
  });
  it('a few aliases do not become gigabytes', () => {
    const laughs = ['a: &a [x,x,x,x,x,x,x,x,x]', ...'bcdefghi'.split('').map((name, i) => `${name}: &${name} [${Array(9).fill(`*${'abcdefghi'[i]}`).join(',')}]`)].join('\n');
    expect(() => parseYaml(laughs)).toThrow(/alias/i);
  });
  it('written and read they are the same', () => {
    const spec = {name: 'a', command: ['python3', '-c', 'print("1")\nprint(2)', '1', 'true', '~'], environment: {A: '1', B: 'no', C: ''}, resources: {nodes: 1}};
    expect(parseYaml(formatYaml(spec))).toEqual(spec);
  });
});
