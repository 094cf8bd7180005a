// What somebody has to do who sees Lockstep for the first time: from the first page to the slow rank of one job, to the cause of
// another's failure and to who holds up a third, every click counted and, with LOCKSTEP_WEB_SHOTS, a picture of every step.
//
// How long that takes is reckoned by the keystroke-level model (Card, Moran and Newell, "The keystroke-level model for user
// performance time with interactive systems", CACM 23(7), 1980): 1.35 s to make up one's mind (M), 1.1 s to point (P), 0.2 s for a
// click (BB), and a second for each page to come (R; tests/bench web measures it). The model knows no reading: that is reckoned at 238
// words a minute (Brysbaert, "How many words do we read per minute?", Journal of Memory and Language 109, 2019). Of the first page
// somebody who has never seen it is taken to read every word, in the page's order, down to those that are looked for; behind a
// link that says where it leads only the sentence that is looked for.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import {Browser, Daemon, signIn, until} from './support.mjs';

const daemon = new Daemon();
const browser = new Browser();
const jobs = {};
const [kMind, kPoint, kClick, kPage] = [1.35, 1.1, 0.2, 1];  // seconds
const kWordsPerMinute = 238;

before(async () => {
  await browser.start();  // first: whichever fails, after() ends both
  await daemon.start();
  // Jobs beside the two, as there are on any day.
  for (const name of ['resnet-lr-0.1', 'resnet-lr-0.01', 'bert-large']) await daemon.submit(name, 'good', {steps: 30, pace: 0.01});
  jobs.crash = await daemon.submit('gpt-tokenizer-fix', 'crash', {nodes: 2, perNode: 2});
  jobs.slow = await daemon.submit('gpt-small', 'straggler', {steps: 100_000, pace: 0.05, nodes: 2, perNode: 4});
  await daemon.submit('vit-base', 'good', {steps: 100_000, pace: 0.1, perNode: 4});
  jobs.hang = await daemon.submit('gpt-new-loader', 'hang', {steps: 1000, pace: 0.05, nodes: 2, perNode: 4, watch: {hang_seconds: 3}});
  await daemon.waitFor(jobs.hang.id, (job) => job.hang?.rank === 5, 'it hangs');
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
  const one = {page, clicks: 0, shots: 0, seconds: kPage};
  one.click = async (link) => {
    await link.click();
    one.clicks++;
    one.seconds += kMind + kPoint + kClick + kPage;
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
  /** What is looked for is in the text of the page: the seconds go up by what it takes to read it, on the first page down to it. */
  one.finds = async (text) => {
    const words = await until(() => page.evaluate(({source, flags, first}) => {
      const all = document.querySelector('main').innerText;
      const found = new RegExp(source, flags).exec(all);
      return found && all.slice(first ? 0 : found.index, found.index + found[0].length).split(/\s+/).filter(Boolean).length;
    }, {source: text.source, flags: text.flags, first: one.clicks === 0}), `${what}: ${text} is in the text of the page`);
    one.seconds += kMind + (words / kWordsPerMinute) * 60;
    // The first page names all three; what is behind it is the proof.
    assert.ok(one.seconds < (one.clicks ? 45 : 30), `${what}: ${text} is found after ${one.seconds.toFixed(1)} s, ${words} words into the page`);
    return `${one.seconds.toFixed(1)} s and ${one.clicks} clicks`;
  };
  return one;
}

for (const [screen, options] of [['desk', {}], ['dark', {colorScheme: 'dark'}], ['phone', {viewport: {width: 390, height: 844}}]]) {
  test(`${screen}: the slow rank is named on the first page, and a click from what it did`, async () => {
    const one = await newcomer(`slow-${screen}`, options);
    const row = one.page.getByRole('region', {name: 'Needs a look'}).locator('.attention-item', {hasText: 'gpt-small'});
    const named = await one.finds(/gpt-small[^]*?rank 3 on \S+: busy 0\.\d+ s per step, the median is [\d.]+ s/);
    await one.sees(/busy 0\.\d+ s per step, the median is [\d.]+ s; most of it computing/);
    assert.equal(one.clicks, 0);
    await one.click(row.getByRole('link', {name: 'gpt-small'}));
    const howSlow = await one.finds(/Who is slow\?[^]*?[23]\.\d × as long as the median/);
    await one.sees(/[23]\.\d × as long as the median/);
    await one.sees('no failure, no restart');
    assert.equal(one.clicks, 1);
    await one.click(one.page.getByRole('link', {name: /^rank 3/}).first());
    await one.page.getByRole('heading', {name: 'Rank 3'}).waitFor();
    await one.sees(/median of all/);
    assert.equal(one.clicks, 2);
    console.log(`# trial, ${screen}: slow rank named after ${named}, how slow after ${howSlow}, its own charts after 2`);
    await one.page.context().close();
  });

  test(`${screen}: the cause of a failure is named on the first page, and a click from its line of code`, async () => {
    const one = await newcomer(`failed-${screen}`, options);
    const row = one.page.getByRole('region', {name: 'Needs a look'}).locator('.attention-item', {hasText: 'gpt-tokenizer-fix'});
    await one.sees(/KeyError: 'labels'/);
    const named = await one.finds(/gpt-tokenizer-fix[^]*?rank 1 on \S+: [^]*?KeyError: 'labels'/);
    assert.equal(one.clicks, 0);
    await one.click(row.getByRole('link', {name: 'gpt-tokenizer-fix'}));
    const where = await one.finds(/Rank 1 on [^]*?return batch\["labels"\]/);
    await one.sees(/return batch\["labels"\]/);
    assert.equal(one.clicks, 1);
    await one.click(one.page.getByRole('link', {name: 'Log of rank 1'}));
    await one.page.getByRole('log', {name: 'Log of rank 1'}).getByText("KeyError: 'labels'").waitFor();
    await one.shot();
    console.log(`# trial, ${screen}: cause named after ${named}, the line of code after ${where}, the rank's log after 2`);
    await one.page.context().close();
  });

  test(`${screen}: who holds a job up, and in which function, is on the first page, and a click from what every rank waits for`, async () => {
    const one = await newcomer(`hang-${screen}`, options);
    const row = one.page.getByRole('region', {name: 'Needs a look'}).locator('.attention-item', {hasText: 'gpt-new-loader'});
    const named = await one.finds(/gpt-new-loader[^]*?rank 5 on \S+: [^]*?rank 5 alone is in train\.py:\d+ load_shard/);
    await one.sees(/rank 5 alone is in train\.py:\d+ load_shard/);
    await one.click(row.getByRole('link', {name: 'gpt-new-loader'}));
    await one.finds(/Rank 5 on \S+ holds everybody up/);
    await one.click(one.page.getByRole('link', {name: 'What every rank waits for'}));
    const where = await one.finds(/the odd one out[^]*load_shard[^]*7 ranks[^]*barrier/);
    assert.equal(one.clicks, 2);
    console.log(`# trial, ${screen}: who hangs named after ${named}, everybody's stack after ${where}`);
    // Its own page says so too, and when the job stood still is in the phases.
    await one.page.goto(`${daemon.url}#/jobs/${jobs.hang.id}/ranks/5`);
    await one.sees(/holds everybody up/);
    await one.page.goto(`${daemon.url}#/jobs/${jobs.hang.id}`);
    await one.page.locator('.phase-stalled').waitFor();
    await browser.axe(one.page, `a job that hangs, ${screen}`);
    await one.page.context().close();
  });
}

test('no page broke the content policy, asked another host or threw', () => {
  assert.deepEqual(browser.violations, []);
  assert.deepEqual(browser.errors, []);
});
