import {describe, expect, it} from 'vitest';
import {indexOf, overwritten, Tail, windowOf, type Line} from '../src/state/tail';

const bytes = (text: string) => new TextEncoder().encode(text);
const texts = (tail: Tail) => tail.lines.map((line) => line.text);
const numbers = (tail: Tail) => tail.lines.map((line) => line.number);
const after = (pieces: string[], tail = new Tail()) => {
  let next = 0;
  for (const piece of pieces) tail.push(bytes(piece), next += bytes(piece).length);
  return tail;
};
const most = {lines: 20_000, line: 1 << 20, characters: 1 << 25};

describe('lines of a log that grows', () => {
  it('come whole, also when a character is cut between chunks', () => {
    const all = bytes('eins\nzwölf\ndrei');
    const tail = new Tail();
    tail.push(all.slice(0, 8), 8);  // inside ö
    tail.push(all.slice(8), all.length);
    expect(texts(tail)).toEqual(['eins', 'zwölf', 'drei']);
    expect(tail.next).toBe(all.length);
  });
  it('whose end has not come are there, and keep their number', () => {
    const tail = after(['one\ntw']);
    expect(tail.lines).toEqual([{text: 'one', number: 1}, {text: 'tw', number: 2}]);
    after(['o\n', '\n', 'three'], tail);
    expect(tail.lines).toEqual([{text: 'one', number: 1}, {text: 'two', number: 2}, {text: '', number: 3}, {text: 'three', number: 4}]);
  });
  it('are the same, however they were cut', () => {
    const log = 'a\r\nbar 1%\rbar 20%\rbar 3\r\n\n\rlast\r\r';
    const whole = after([log]);
    expect(texts(whole)).toEqual(['a\r', 'bar 3\r', '', 'last\r']);
    for (let cut = 0; cut <= log.length; cut++) expect(after([log.slice(0, cut), log.slice(cut)]).lines, `${cut}`).toEqual(whole.lines);
    expect(after([...log]).lines).toEqual(whole.lines);
  });
  it('of a progress bar move: what follows a carriage return overwrites', () => {
    const tail = after(['begins\n']);
    for (let i = 0; i <= 100; i++) {
      after([`\rbar ${i}%|`], tail);
      expect(tail.lines.at(-1)).toEqual({text: `bar ${i}%|`, number: 2});
    }
    expect(overwritten('bar 10%\r')).toBe('bar 10%\r');
  });
  it('are numbered on when older ones go, and those are counted', () => {
    const tail = after(['1\n2\n3\n4\n5\n6', '\n7\n8'], new Tail(false, {...most, lines: 3}));
    expect([texts(tail), numbers(tail), tail.dropped]).toEqual([['6', '7', '8'], [6, 7, 8], 5]);
  });
  it('are bounded without a line end, too, and nothing is lost of one', () => {
    const tail = after(['x'.repeat(7), 'y'.repeat(5), '\nz'], new Tail(false, {...most, line: 5}));
    expect(texts(tail)).toEqual(['xxxxx', 'xxyyy', 'yy', 'z']);
    const few = after(['12345\n', '12345\n', '123456789'], new Tail(false, {...most, characters: 10}));
    expect([texts(few), few.dropped]).toEqual([['123456789'], 2]);
    after(['\n'], few);
    expect(texts(few)).toEqual(['123456789']);
  });
  it('begin with the first whole one where a piece of one is read', () => {
    const tail = after(['e of it', ' end\nfirst\n'], new Tail(true));
    expect(tail.lines).toEqual([{text: 'first', number: 1}]);
  });
});

describe('lines that exist of those there are', () => {
  const lines = (from: number, count: number): Line[] => Array.from({length: count}, (_, i) => ({text: '', number: from + i}));
  it('are around what is read, though older ones have gone', () => {
    expect(indexOf(lines(1, 2000), 501)).toBe(500);
    expect(indexOf(lines(401, 2000), 501)).toBe(100);
    expect(indexOf(lines(601, 2000), 501)).toBe(0);
    const place = {number: 501, off: 3};
    expect(windowOf(lines(1, 2000), {place, height: 190, row: 19})).toEqual([480, 531]);
    expect(windowOf(lines(401, 2000), {place, height: 190, row: 19})).toEqual([80, 131]);
  });
  it('are the last ones where the end is followed', () => {
    expect(windowOf(lines(1, 2000), {height: 190, row: 19})).toEqual([1969, 2000]);
    expect(windowOf(lines(1, 2000), {height: 190})).toEqual([1000, 2000]);
    expect(windowOf(lines(1, 5), {height: 190, row: 19})).toEqual([0, 5]);
  });
  it('are all of a selection, wherever it has gone', () => {
    expect(windowOf(lines(1, 2000), {height: 190, row: 19, selected: [100, 105]})).toEqual([99, 2000]);
    expect(windowOf(lines(1, 2000), {place: {number: 10, off: 0}, height: 190, row: 19, selected: [90, 105]})[1]).toBe(105);
  });
  it('begin with the same one while it is near, where they have other heights', () => {
    const place = (number: number) => ({number, off: 0});
    const all = lines(1, 9000);
    expect(windowOf(all, {place: place(5000), height: 190})).toEqual([3999, 6999]);
    for (const number of [4300, 5000, 5900]) expect(windowOf(all, {place: place(number), height: 190, first: 4000})).toEqual([3999, 6999]);
    expect(windowOf(all, {place: place(4100), height: 190, first: 4000})).toEqual([3099, 6099]);
    expect(windowOf(all, {place: place(7000), height: 190, first: 4000})).toEqual([5999, 8999]);
    expect(windowOf(lines(4000, 5000), {place: place(4010), height: 190, first: 4000})).toEqual([0, 3000]);
  });
});
