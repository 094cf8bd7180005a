import {describe, expect, it} from 'vitest';
import {ansi, clipped, levelOf, visible} from '../src/lib/text';
import {searchPattern, searchQuery} from '../src/lib/search';

describe('text of strangers', () => {
  it('writes out control, direction and invisible characters', () => {
    expect(visible('a\u0000b\u001b[31m\u007f')).toBe('a␀b␛[31m␡');
    expect(visible('abc\u202edcba')).toBe('abc‹U+202E›dcba');
    expect(visible('zero\u200bwidth\u2066x\u2069')).toBe('zero‹U+200B›width‹U+2066›x‹U+2069›');
    expect(visible('lone \ud800 surrogate, whole 😀')).toBe('lone ‹U+D800› surrogate, whole 😀');
  });
  it('keeps tabs, line ends and every script', () => {
    expect(visible('a\tb\nжш 漢 שלום')).toBe('a\tb\nжш 漢 שלום');
  });
  it('says how much a long text lacks', () => {
    expect(clipped('x'.repeat(100_000), 10)).toBe(`${'x'.repeat(10)}… (+99990 characters)`);
  });
});

describe('ansi', () => {
  it('keeps colours', () => {
    expect(ansi('\u001b[1;31mbad\u001b[0m ok')).toEqual([{text: 'bad', style: 'a-bold a-red'}, {text: ' ok', style: ''}]);
  });
  it('knows 256 colours and RGB by the nearest of eight', () => {
    expect(ansi('\u001b[38;5;196mx')[0]!.style).toBe('a-red');
    expect(ansi('\u001b[38;2;0;200;0mx')[0]!.style).toBe('a-green');
  });
  it('leaves every other escape out: titles, links, cursor moves', () => {
    expect(ansi('\u001b]0;title\u0007a\u001b[2Jb\u001b]8;;http://x\u001b\\c').map((s) => s.text).join('')).toBe('abc');
  });
  it('shows what a progress bar ended with', () => {
    expect(ansi('10%\r50%\r100%').map((s) => s.text).join('')).toBe('100%');
    expect(ansi('windows line\r').map((s) => s.text).join('')).toBe('windows line');
  });
  it('takes no time for an escape that never ends', () => {
    const start = performance.now();
    ansi(`\u001b[${'1;'.repeat(50_000)}`);
    ansi(`\u001b]${'x'.repeat(100_000)}`);
    expect(performance.now() - start).toBeLessThan(500);
  });
});

it('a line knows its level', () => {
  expect(levelOf('KeyError: labels')).toBe('error');
  expect(levelOf('WARNING: slow')).toBe('warning');
  expect(levelOf('step 3 loss 0.2')).toBe('plain');
});

describe('what is searched for', () => {
  it('is found by lockstepd as it is here: whatever the case, and as it stands unless it is a regular expression', () => {
    const text = 'Loss (mean) [0.1] = $2 * a|b ^ c? {d} \\d+ e/f';
    expect(text.toUpperCase().match(searchPattern(text, false)!)).toHaveLength(1);
    const [, flag, asked] = /^(\(\?i\))(.*)$/.exec(searchQuery(text, false))!;
    expect([flag, text.match(new RegExp(`^${asked}$`))?.[0]]).toEqual(['(?i)', text]);
    // RE2 takes backslashes before punctuation alone for themselves.
    expect(asked!.replace(/\\[^\w\s]/g, '')).toBe('Loss mean 01 = 2  ab  c d d ef');
    expect([searchQuery('n.edle|x', true), searchQuery('\\pN+\\z', true), searchQuery('(', true)]).toEqual(['(?i)n.edle|x', '(?i)\\pN+\\z', '(?i)(']);
    expect(searchPattern('', false)).toBeUndefined();
  });
});
