// What an open page goes on to say while jobs run, lockstepd goes away and people change what they look at.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import {after, before, test} from 'node:test';
import {Browser, Daemon, has, signIn, until} from './support.mjs';

const daemon = new Daemon();
const browser = new Browser();
const jobs = {};
let page;

before(async () => {
  await Promise.all([daemon.start(), browser.start()]);
  jobs.fast = await daemon.submit('fast', 'good', {steps: 1_000_000, pace: 0.02});
  page = await browser.tab();
  await signIn(page, daemon);
  await daemon.waitFor(jobs.fast.id, (job) => job.step > 150, 'it runs');
});
after(async () => {
  await browser.close();
  await daemon.cleanUp();
});

const goTo = (where) => page.goto(daemon.url + where);
const readout = (of) => page.locator('figure', {has: page.getByRole('heading', {name: of, exact: true})}).locator('.readout').first();
const stepNow = async () => Number((await readout('Loss').innerText()).match(/step ([\d.e\u2009]+)/)?.[1].replace(/\u2009/g, '') ?? 0);

/** What the heatmap says of its newest columns, the newest first. */
async function heatCells(count, from = 0) {
  const heat = page.locator('.heat-canvas');
  await heat.focus();
  for (let i = 0; i < from; i += 10) await page.keyboard.press('Shift+ArrowLeft');
  const out = [];
  for (let i = 0; i < count; i++) {
    await page.keyboard.press('ArrowLeft');
    out.push(await page.locator('.heat-text').innerText());
  }
  return out;
}

test('the axis goes to time and back, and steps still come', async () => {
  await goTo(`#/jobs/${jobs.fast.id}`);
  await until(stepNow, 'the loss is drawn');
  await page.getByRole('button', {name: 'Time of day'}).click();
  const clock = () => readout('Loss').innerText().then((text) => text.match(/\d\d:\d\d:\d\d/)?.[0]);
  const first = await until(clock, 'the axis is time');
  await until(async () => (await clock()) !== first, 'points come');
  await page.getByRole('button', {name: 'Step', exact: true}).click();
  const {step} = await daemon.job(jobs.fast.id);
  const back = await until(async () => {
    const now = await stepNow();
    return now > 0 && now < 100 * step && now;
  }, async () => `the axis is steps: ${await readout('Loss').innerText()}`);
  await until(async () => (await stepNow()) > back + 5, 'the loss moves by itself');
});

test('the heatmap of another metric has none of the values of the one before', async () => {
  await goTo(`#/jobs/${jobs.fast.id}/ranks?metric=loss`);
  await page.locator('.heat-canvas').waitFor();
  const before_ = (await daemon.job(jobs.fast.id)).step;
  await until(async () => (await daemon.job(jobs.fast.id)).step > before_ + 60, 'some steps come');
  await page.getByLabel('Metric').selectOption('grad_norm');
  await page.getByRole('application', {name: /^Gradient norm of/}).waitFor();
  // A gradient norm is 1 / step there, a loss more than 0.2.
  const values = (await heatCells(60)).map((text) => text.match(/: ([\d.e-]+)$/)?.[1]).filter(Boolean).map(Number);
  assert.ok(values.length > 5 && Math.max(...values) < 0.1, `${values}`);
});

test('the heatmap of a fast job says of no step that nothing was reported', async () => {
  await goTo(`#/jobs/${jobs.fast.id}/ranks?metric=step_seconds`);
  await page.locator('.heat-canvas').waitFor();
  const before_ = (await daemon.job(jobs.fast.id)).step;
  await until(async () => (await daemon.job(jobs.fast.id)).step > before_ + 60, 'some steps come');
  const cells = await heatCells(30);
  assert.deepEqual(cells.filter((text) => /nothing/.test(text)), []);
  assert.ok(cells.some((text) => /ms$|s$/.test(text)), `${cells}`);
  // Those that the stream has left out are asked for.
  await until(async () => !(await heatCells(1, 200)).some((text) => /not fetched/.test(text)), 'all are there soon');
});

test('no page broke the content policy, asked another host or threw', () => {
  assert.deepEqual(browser.violations, []);
  assert.deepEqual(browser.errors, []);
});
