import {execFileSync} from 'node:child_process';
import {mkdtempSync, readdirSync, readFileSync, rmSync, statSync} from 'node:fs';
import {tmpdir} from 'node:os';
import path from 'node:path';
import {afterAll, beforeAll, describe, expect, it} from 'vitest';

const kBudget = 80_000;

describe('what is built', () => {
  const out = mkdtempSync(path.join(tmpdir(), 'lockstep-web-'));
  beforeAll(() => execFileSync('node', ['build.mjs', '--outdir', out], {cwd: path.resolve(__dirname, '..')}), 60_000);
  afterAll(() => rmSync(out, {recursive: true}));
  const assets = () => readdirSync(path.join(out, 'assets'));
  it('is at most 80 kB gzip in all', () => {
    const total = [path.join(out, 'index.html.gz'), ...assets().filter((name) => name.endsWith('.gz')).map((name) => path.join(out, 'assets', name))].reduce((sum, file) => sum + statSync(file).size, 0);
    console.log(`web: ${total} bytes gzip of ${kBudget}`);
    expect(total).toBeGreaterThan(20_000);
    expect(total).toBeLessThanOrEqual(kBudget);
  });
  it('names its files relatively and by their content, each with its .gz', () => {
    const page = readFileSync(path.join(out, 'index.html'), 'utf8');
    const named = [...page.matchAll(/(?:src|href)="([^"]*)"/g)].map((match) => match[1]!);
    expect(named.length).toBe(3);
    for (const name of named) {
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
