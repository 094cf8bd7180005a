import {execFileSync} from 'node:child_process';
import {mkdtempSync, readdirSync, readFileSync, rmSync, statSync} from 'node:fs';
import {tmpdir} from 'node:os';
import path from 'node:path';
import {afterAll, beforeAll, describe, expect, it} from 'vitest';

const kBudget = 80_000;

describe('what is built', () => {
  const out = mkdtempSync(path.join(tmpdir(), 'lockstep-web-'));
  beforeAll(() => execFileSync('node', ['build.mjs', '--outdir', out], {cwd: path.resolve(__dirname, '..')}), 240_000);
  afterAll(() => rmSync(out, {recursive: true}));
  const assets = () => readdirSync(path.join(out, 'assets'));
  const size = (files: string[]) => files.reduce((sum, file) => sum + statSync(path.join(out, `${file}.gz`)).size, 0);
  const named = () => [...readFileSync(path.join(out, 'index.html'), 'utf8').matchAll(/(?:src|href)="([^"]*)"/g)].map((match) => match[1]!);
  // All of it is not within the budget yet: README says what takes how much.
  it('is at most 80 kB gzip before anything is opened that few open, and 102 with it', () => {
    const first = size(['index.html', ...named()]);
    const all = size(['index.html', ...assets().filter((name) => !name.endsWith('.gz')).map((name) => `assets/${name}`)]);
    console.log(`web: ${first} bytes gzip of ${kBudget}; with what is fetched when it is used ${all}`);
    expect(first).toBeGreaterThan(20_000);
    expect(first).toBeLessThanOrEqual(kBudget);
    expect(all).toBeLessThanOrEqual(kBudget + 22_000);
  });
  it('fetches nothing before that is not named', () => {
    // What the named modules import, but for import(), which waits for somebody.
    for (const name of named().filter((one) => one.endsWith('.js'))) {
      const text = readFileSync(path.join(out, name), 'utf8');
      for (const [, imported] of text.matchAll(/(?:from|import)"\.\/([^"]+)"/g)) expect(named()).toContain(`assets/${imported}`);
    }
  });
  it('names its files relatively and by their content, each with its .gz', () => {
    const page = readFileSync(path.join(out, 'index.html'), 'utf8');
    expect(named().length).toBeGreaterThanOrEqual(3);
    for (const name of named()) {
      expect(name).toMatch(/^assets\/[a-z]+-[A-Za-z0-9]{8}\.(js|css|svg)$/);
      expect(assets()).toContain(path.basename(name));
      expect(assets()).toContain(`${path.basename(name)}.gz`);
    }
    expect(page).not.toMatch(/<style|style=|<script>|https?:/);
  });
  it('asks no other host', () => {
    for (const name of assets().filter((one) => /\.(js|css)$/.test(one))) {
      const hosts = [...readFileSync(path.join(out, 'assets', name), 'utf8').matchAll(/https?:\/\/[\w.-]+/g)].map((match) => match[0]);
      // Names of XML dialects, not addresses.
      expect(hosts.filter((host) => host !== 'http://www.w3.org')).toEqual([]);
    }
  });
});
