import {describe, expect, it} from 'vitest';
import {parameters, parsePlace, sure} from '../src/lib/paths';

const asked = (hash: string) => sure(parsePlace(hash));

describe('what an address is sure to need', () => {
  it('is nothing where somebody signs in by a code, so that the code is the first that lockstepd hears', () => {
    expect(asked('#/signin?code=abc&next=/jobs')).toEqual([]);
  });
  it('is the list as it is filtered', () => {
    expect(asked('')[1]).toMatch(/^v1\/jobs\?limit=50&fields=id%2Cname/);
    expect(asked('#/jobs?state=failed&q=mine')[1]).toMatch(/^v1\/jobs\?state=failed&q=mine&limit=50&fields=/);
  });
  it('is the loss of a job, not if it is drawn over time or zoomed', () => {
    expect(asked('#/jobs/ls-1')).toContain('v1/jobs/ls-1/series?metric=loss&ranks=all&stat=min%2Cp5%2Cmedian%2Cp95%2Cmax&points=600');
    for (const hash of ['#/jobs/ls-1?x=time', '#/jobs/ls-1?zoom=1~2', '#/jobs/ls-1/logs']) expect(asked(hash).filter((path) => /series|heatmap/.test(path))).toEqual([]);
  });
  it('is the heatmap of the metric in the address', () => {
    expect(asked('#/jobs/ls-1/ranks?metric=loss')).toContain('v1/jobs/ls-1/heatmap?metric=loss&columns=600&rows=1024');
    expect(asked('#/jobs/ls-1/ranks')).toContain('v1/jobs/ls-1/heatmap?metric=busy_seconds&columns=600&rows=1024');
    expect(asked('#/jobs/ls-1/ranks/3').some((path) => /heatmap/.test(path))).toBe(false);
  });
  it('is who somebody is, on every other page', () => {
    for (const hash of ['#/queue', '#/nodes', '#/submit?as=yaml', '#/jobs/ls-1/config']) expect(asked(hash)).toContain('v1/whoami');
  });
});

describe('addresses', () => {
  it('leave out what is not said, and keep 0 and false', () => {
    expect(parameters({a: undefined, b: '', c: 0, d: false, e: 'x y&z'})).toBe('?c=0&d=false&e=x+y%26z');
    expect(parameters({a: undefined})).toBe('');
  });
  it('are read although they are malformed', () => {
    expect(parsePlace('#/jobs/%zz?q=%zz')).toEqual({path: ['jobs', '%zz'], query: {q: '%zz'}});
  });
});
