// What somebody has to do who sees Lockstep for the first time: from the first page to the slow rank of one job and to the cause
// of another's failure, every click counted and, with LOCKSTEP_WEB_SHOTS, a picture of every step.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import {Browser, Daemon, signIn, until} from './support.mjs';

const daemon = new Daemon();
const browser = new Browser();
const jobs = {};

before(async () => {
  await browser.start();  // first: whichever fails, after() ends both
  await daemon.start();
  // Jobs beside the two, as there are on any day.
  for (const name of ['resnet-lr-0.1', 'resnet-lr-0.01', 'bert-large']) await daemon.submit(name, 'good', {steps: 30, pace: 0.01});
  jobs.crash = await daemon.submit('gpt-tokenizer-fix', 'crash', {nodes: 2, perNode: 2});
  jobs.slow = await daemon.submit('gpt-small', 'straggler', {steps: 100_000, pace: 0.05, nodes: 2, perNode: 4});
  await daemon.submit('vit-base', 'good', {steps: 100_000, pace: 0.1, perNode: 4});
  await daemon.waitFor(jobs.crash.id, (job) => job.state === 'failed', 'it fails');
  await daemon.waitFor(jobs.slow.id, (job) => job.anomalies && Object.keys(job.anomalies).length, 'the slow rank is seen', 60);
});
after(async () => {
  await browser.close();
  await daemon.cleanUp();
});

/** Somebody at a screen: clicks, and what a look at it says without scrolling. */
async function newcomer(what, options) {
  const page = await browser.tab(options);
  await signIn(page, daemon);
  const one = {page, clicks: 0, shots: 0};
  one.click = async (link) => {
    await link.click();
    one.clicks++;
  };
  one.shot = async () => {
    if (process.env.LOCKSTEP_WEB_SHOTS) await page.screenshot({path: `${process.env.LOCKSTEP_WEB_SHOTS}/trial-${what}-${one.shots++}.png`});
  };
  /** It is on the screen, within what is seen without scrolling. */
  one.sees = async (text) => {
    await until(async () => {
      for (const element of await page.getByText(text).all()) {
        const box = await element.boundingBox().catch(() => undefined);
        const size = page.viewportSize();
        if (box && box.width > 0 && box.y >= 0 && box.y + Math.min(box.height, 40) <= size.height && box.x >= 0 && box.x < size.width) return true;
      }
      return false;
    }, `${what}: ${text} is seen without scrolling`);
    await one.shot();
  };
  return one;
}

for (const [screen, options] of [['desk', {}], ['dark', {colorScheme: 'dark'}], ['phone', {viewport: {width: 390, height: 844}}]]) {
  test(`${screen}: the slow rank is named on the first page, and a click from what it did`, async () => {
    const one = await newcomer(`slow-${screen}`, options);
    const row = one.page.getByRole('region', {name: 'Needs a look'}).locator('.attention-item', {hasText: 'gpt-small'});
    await one.sees(/rank 3/);
    await one.sees(/busy 0\.\d+ s per step, the median is [\d.]+ s; most of it computing/);
    assert.equal(one.clicks, 0);
    await one.click(row.getByRole('link', {name: 'gpt-small'}));
    await one.sees(/[23]\.\d × as long as the median/);
    await one.sees('no failure, no restart');
    assert.equal(one.clicks, 1);
    await one.click(one.page.getByRole('link', {name: /^rank 3/}).first());
    await one.page.getByRole('heading', {name: 'Rank 3'}).waitFor();
    await one.sees(/median of all/);
    assert.equal(one.clicks, 2);
    console.log(`# trial, ${screen}: slow rank named after 0 clicks, how slow after 1, its own charts after 2`);
    await one.page.context().close();
  });

  test(`${screen}: the cause of a failure is named on the first page, and a click from its line of code`, async () => {
    const one = await newcomer(`failed-${screen}`, options);
    const row = one.page.getByRole('region', {name: 'Needs a look'}).locator('.attention-item', {hasText: 'gpt-tokenizer-fix'});
    await one.sees(/KeyError: 'labels'/);
    assert.equal(one.clicks, 0);
    await one.click(row.getByRole('link', {name: 'gpt-tokenizer-fix'}));
    await one.sees(/return batch\["labels"\]/);
    assert.equal(one.clicks, 1);
    await one.click(one.page.getByRole('link', {name: 'Log of rank 1'}));
    await one.page.getByRole('log', {name: 'Log of rank 1'}).getByText("KeyError: 'labels'").waitFor();
    await one.shot();
    console.log(`# trial, ${screen}: cause named after 0 clicks, the line of code after 1, the rank's log after 2`);
    await one.page.context().close();
  });
}

test('no page broke the content policy, asked another host or threw', () => {
  assert.deepEqual(browser.violations, []);
  assert.deepEqual(browser.errors, []);
});
