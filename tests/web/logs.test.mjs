// Logs of ranks that print what the test says: a rank is a cat of a pipe, so nothing comes that was not sent.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import {after, before, test} from 'node:test';
import {Browser, Daemon, signIn, until} from './support.mjs';

const daemon = new Daemon();
const browser = new Browser();
let page;

/** A job of two ranks; rank 1 prints what is given to `print`, until `end`. */
async function talker(name) {
  const pipe = path.join(daemon.root, `${name}.pipe`);
  execFileSync('mkfifo', [pipe]);
  const job = await daemon.api('POST', 'v1/jobs', {name, framework: 'command', command: ['/bin/sh', '-c', `[ $RANK = 1 ] || exec sleep 100000; exec cat '${pipe}'`], resources: {nodes: 1, ranks_per_node: 2}});
  const file = fs.openSync(pipe, 'r+');  // never the end of it, whoever reads
  return {id: job.id, print: (text) => fs.writeSync(file, text), cancel: () => daemon.api('POST', `v1/jobs/${job.id}/cancel`)};
}

before(async () => {
  await browser.start();  // first: whichever fails, after() ends both
  await daemon.start();
  page = await browser.tab();
  await signIn(page, daemon);
});
after(async () => {
  await browser.close();
  await daemon.cleanUp();
});

const goTo = (where) => page.goto(daemon.url + where);
const log = (rank = 1) => page.getByRole('log', {name: `Log of rank ${rank}`});
const shot = async (name) => process.env.LOCKSTEP_WEB_SHOTS && page.screenshot({path: `${process.env.LOCKSTEP_WEB_SHOTS}/${name}.png`});

test('what is typed into the box of the rank stays while the page is drawn again', async () => {
  const job = await talker('typed');
  await daemon.waitFor(job.id, (one) => one.state === 'running', 'it runs');
  await goTo(`#/jobs/${job.id}/logs`);
  const box = page.getByLabel('Rank', {exact: true});
  await box.fill('');
  for (const key of ['0', '0', '1']) {
    await box.press(key);
    // An event of the job draws all of its page: it says how long it has been running, too.
    const facts = page.locator('.job-facts');
    const before_ = await facts.innerText();
    await until(async () => (await facts.innerText()) !== before_, 'the page is drawn again');
  }
  assert.equal(await box.inputValue(), '001');
  assert.ok(!/rank=/.test(page.url()), page.url());
  await box.press('Escape');
  await until(async () => (await box.inputValue()) === '0', 'it is taken back');
  await box.fill('1');
  await box.press('Enter');
  await log(1).waitFor();
  assert.match(page.url(), /rank=1/);
  await box.fill('0');
  await page.getByLabel('Search the log').focus();
  await log(0).waitFor();
  await job.cancel();
});

test('no page broke the content policy, asked another host or threw', () => {
  assert.deepEqual(browser.violations, []);
  assert.deepEqual(browser.errors, []);
});
