// The page in Debian's Firefox, which is driven by WebDriver BiDi: what another browser engine may do otherwise.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';
import {after, before, test} from 'node:test';
import {Daemon, prepared, until} from './support.mjs';

const firefox = process.env.LOCKSTEP_FIREFOX ?? '/usr/bin/firefox-esr';
const daemon = new Daemon();
const jobs = {};
const complaints = [];
let browser;
let page;

before(async () => {
  await daemon.start();
  jobs.live = await daemon.submit('in-firefox', 'straggler', {steps: 1_000_000, pace: 0.05, perNode: 4});
  jobs.crash = await daemon.submit('bad-labels', 'crash');
  // An ES module package: required, it would need a newer Node.
  const {default: puppeteer} = await import(createRequire(path.join(prepared, 'package.json')).resolve('puppeteer-core'));
  browser = await puppeteer.launch({browser: 'firefox', executablePath: firefox, headless: true, protocolTimeout: 180_000, timeout: 120_000,
    env: {...process.env, HOME: daemon.root}, extraPrefsFirefox: {'ui.prefersReducedMotion': 1}});
  page = await watched();
});
after(async () => {
  await browser?.close();
  await daemon.cleanUp();
});

/** A tab; what the page must never do is collected. Firefox says what its content policy has stopped on the console, too. */
async function watched() {
  const tab = await browser.newPage();
  tab.setDefaultTimeout(60_000);
  await tab.setViewport({width: 1440, height: 900});
  await tab.evaluateOnNewDocument(() => {
    window.violations = [];
    document.addEventListener('securitypolicyviolation', (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
  });
  tab.on('pageerror', (error) => complaints.push(String(error.stack ?? error)));
  tab.on('console', (message) => { if (message.type() === 'error') complaints.push(message.text()); });
  tab.on('request', (request) => { if (/^https?:/.test(request.url()) && new URL(request.url()).hostname !== '127.0.0.1') complaints.push(`request to ${request.url()}`); });
  return tab;
}
const goTo = (where) => page.evaluate((to) => { location.hash = to; }, where);
const textOf = (selector, tab = page) => tab.$eval(selector, (element) => element.textContent).catch(() => '');
const has = (text) => until(() => page.evaluate((wanted) => document.body.innerText.includes(wanted), text), async () => `"${text}" in: ${(await textOf('body')).slice(0, 2000)}`);
const figureText = (name, tab = page) => tab.evaluate((wanted) => [...document.querySelectorAll('figure')].find((one) => one.querySelector('h2, h3, h4')?.textContent === wanted)?.querySelector('.readout')?.textContent ?? '', name);
const lossStep = async (tab = page) => Number((await figureText('Loss', tab)).match(/step ([\d\u2009]+)/)?.[1].replace(/\u2009/g, '') ?? 0);
async function shot(name) {
  if (process.env.LOCKSTEP_WEB_SHOTS) await page.screenshot({path: `${process.env.LOCKSTEP_WEB_SHOTS}/firefox-${name}.png`});
}
/** How many colours a canvas shows: nothing drawn is one. */
const colours = (selector) => page.$eval(selector, (canvas) => {
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}).catch(() => 0);

test('signs in, and the loss of a job moves by itself', async () => {
  await page.goto(daemon.url);
  await page.waitForSelector('#token');
  await page.type('#token', daemon.token);
  await page.click('button[type=submit]');
  await has('in-firefox');
  await goTo(`#/jobs/${jobs.live.id}`);
  const first = await until(lossStep, 'the loss is drawn');
  await until(async () => (await lossStep()) > first + 20, async () => `the loss moves on from step ${first}: ${await lossStep()}`);
  assert.ok((await colours('figure canvas')) > 3, 'lines are drawn');
  await shot('overview');
});

test('the heatmap draws and is read by keys', async () => {
  await goTo(`#/jobs/${jobs.live.id}/ranks?metric=busy_seconds`);
  await page.waitForSelector('.heat-canvas');
  await until(async () => (await colours('.heat-canvas')) > 2, 'cells have colours');
  await page.focus('.heat-canvas');
  // A step that the stream has left out is asked for later.
  await until(async () => {
    await page.keyboard.press('ArrowLeft');
    return /rank \d+, step \d+: [\d.]+ m?s$/.test(await textOf('.heat-text'));
  }, async () => `a cell is read: ${await textOf('.heat-text')}`);
  await shot('ranks');
});

test('the cause of a failed job is named', async () => {
  await daemon.waitFor(jobs.crash.id, (job) => job.state === 'failed', 'it fails', 60);
  await goTo('#/jobs');
  await has('KeyError');
  await shot('jobs');
  await goTo(`#/jobs/${jobs.crash.id}`);
  await has("KeyError: 'labels'");
  await shot('failed');
});

test('two tabs share a stream, logs come as they are printed, and a job is cancelled', async () => {
  const second = await watched();
  await second.goto(`${daemon.url}#/jobs/${jobs.live.id}`);
  const first = await until(() => lossStep(second), 'the loss is drawn there, too');
  await until(async () => (await lossStep(second)) > first + 5, 'and moves');
  const streams = async () => Number((await (await daemon.request('GET', 'metrics?jobs=none')).text()).match(/^lockstep_sse_clients (\d+)/m)[1]);
  await until(async () => (await streams()) === 1, async () => `one stream: ${await streams()}`);
  await second.close();
  await page.bringToFront();
  await goTo(`#/jobs/${jobs.live.id}/logs`);
  await until(async () => /step \d+0\//.test(await textOf('.log')), async () => `its log: ${await textOf('.log')}`);
  await shot('logs');
  await page.evaluate(() => [...document.querySelectorAll('main button')].find((one) => one.textContent === 'Cancel').click());
  await page.waitForSelector('dialog[open] button');
  await shot('cancel');
  await page.evaluate(() => [...document.querySelectorAll('dialog[open] button')].find((one) => /cancel/i.test(one.textContent) && one.type !== 'reset').click());
  await daemon.waitFor(jobs.live.id, (job) => job.state === 'cancelled', 'it is cancelled');
  await has('cancelled');
});

test('the form, and a job on a phone', async () => {
  await goTo('#/submit');
  await page.waitForSelector('form');
  await has('Submit a job');
  await shot('submit');
  await page.setViewport({width: 390, height: 844});
  await goTo(`#/jobs/${jobs.crash.id}`);
  await has("KeyError: 'labels'");
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing is wider than a phone');
  await shot('phone');
});

test('no page broke the content policy, asked another host or threw', async () => {
  assert.deepEqual(await page.evaluate(() => window.violations), []);
  assert.deepEqual(complaints, []);
});
