import {readFileSync} from 'node:fs';
import path from 'node:path';
import {describe, expect, it} from 'vitest';

const read = (name: string) => JSON.parse(readFileSync(path.resolve(__dirname, '..', name), 'utf8'));

// Debian 12 has Node 18.20 and npm 9.2, and a page that they cannot build is not there for whoever has no other.
describe('what npm fetches', () => {
  const lock = read('package-lock.json') as {packages: Record<string, {version?: string; engines?: {node?: string}; optional?: boolean; resolved?: string}>};
  const own = read('package.json') as {dependencies: Record<string, string>; devDependencies: Record<string, string>; overrides?: Record<string, string>};
  it('can be read by npm 9.2, which takes no other name for a package in overrides', () => {
    expect(Object.values(own.overrides ?? {}).filter((version) => version.startsWith('npm:'))).toEqual([]);
  });
  it('is pinned', () => {
    for (const version of Object.values({...own.dependencies, ...own.devDependencies})) expect(version).toMatch(/^(npm:@?[\w/-]+@)?\d+\.\d+\.\d+$/);
  });
  it('runs on Node 18', () => {
    // npm leaves out an optional one that does not run here.
    const packages = Object.entries(lock.packages).filter(([, one]) => one.engines?.node && !one.optional);
    expect(packages.length).toBeGreaterThan(20);
    // Alternatives are apart by ||; one that begins with 18 or less will do.
    const accepts = (wanted: string) => wanted.split('||').some((range) => Number(range.match(/\d+/)?.[0] ?? 0) <= 18);
    expect(packages.filter(([, one]) => !accepts(one.engines!.node!)).map(([name]) => name)).toEqual([]);
  });
  it('names no registry', () => {
    expect(Object.entries(lock.packages).filter(([, one]) => one.resolved).map(([name]) => name)).toEqual([]);
  });
});
