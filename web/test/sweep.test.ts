import {describe, expect, it} from 'vitest';
import {parameterLines, parametersOf, pointText} from '../src/lib/sweep';

describe('parameters of a sweep', () => {
  it('mean what `lockstep run --sweep` would make of them', () => {
    expect(parametersOf('lr=0.1, 1e-3\nseed=1..3\n\ndown=2..-1\nmodel=small,large\namp=true,false')).toEqual({
      lr: [0.1, '1e-3'], seed: [1, 2, 3], down: [2, 1, 0, -1], model: ['small', 'large'], amp: [true, false]});
    expect(parametersOf('environment.SEED=1..2\ncommand.3=0.1')).toEqual({'environment.SEED': ['1', '2'], 'command.3': ['0.1']});
    expect(parametersOf('name=["a,b", "c", 1]')).toEqual({name: ['a,b', 'c', 1]});
    expect(parametersOf('expression=a=b')).toEqual({expression: ['a=b']});
  });
  it('mean something at every letter', () => {
    expect(['', 'l', 'lr', 'lr=', 'lr=0', 'lr=0.', 'lr=0.1,', 'seed=1.', 'seed=1..', 'a=[1', '=1'].map(parametersOf)).toEqual([
      undefined, {l: []}, {lr: []}, {lr: []}, {lr: [0]}, {lr: ['0.']}, {lr: [0.1]}, {seed: ['1.']}, {seed: ['1..']}, {a: ['[1']}, {'': [1]}]);
    expect(parametersOf('lr=0.1\nlr=0.2')).toEqual({lr: [0.1, 0.2]});
    expect(parametersOf('n=1..999999999999')!['n']).toHaveLength(1001);
  });
  it('are written so that they mean the same', () => {
    const all: Record<string, unknown[]>[] = [{lr: [0.1, '1e-3'], seed: [1, 2, 3]}, {'environment.SEED': ['1', '2', '3']}, {labels: ['1', '2']}, {name: ['a,b', ' c ']}, {n: [3, 2, 1, 0]}, {n: [1, 3]}, {empty: []}, {some: [null, {a: 1}, [2]]}, {text: ['1..3', 'true', '']}];
    for (const parameters of all) expect(parametersOf(parameterLines(parameters))).toEqual(parameters);
    expect(parameterLines({lr: [0.1, 0.01], seed: [1, 2, 3], back: [3, 2, 1]})).toBe('lr=0.1,0.01\nseed=1..3\nback=3..1');
    expect(parameterLines({'labels.try': ['1', '2']})).toBe('labels.try=["1","2"]');
  });
  it('that are no lists yet are shown, and break no form', () => {
    expect(parameterLines({lr: 0.1, none: null, map: {a: 1}} as unknown as Record<string, unknown[]>)).toBe('lr=0.1\nnone=null\nmap={"a":1}');
  });
  it('of one job are a line', () => {
    expect(pointText({lr: 0.1, model: 'small', on: true, list: [1]})).toBe('lr=0.1 model=small on=true list=[1]');
    expect(pointText()).toBe('');
  });
});
