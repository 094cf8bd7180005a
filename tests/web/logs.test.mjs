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

/** The line at the top of what is seen, and how far it is scrolled out. */
const top = () => log().evaluate((box) => {
  const from = box.getBoundingClientRect().top;
  const row = [...box.querySelectorAll('.log-line')].find((one) => one.getBoundingClientRect().bottom > from + 1);
  return row ? `${row.textContent} at ${Math.round(row.getBoundingClientRect().top - from)}` : '';
});
const atEnd = () => log().evaluate((box) => box.scrollHeight - box.scrollTop - box.clientHeight < 2);
const high = () => log().evaluate((box) => box.scrollHeight);
const lines = (from, count) => Array.from({length: count}, (_, i) => `line ${from + i}\n`).join('');

test('a progress bar moves, in one line', async () => {
  const job = await talker('bar');
  await daemon.waitFor(job.id, (one) => one.state === 'running', 'it runs');
  await goTo(`#/jobs/${job.id}/logs?rank=1`);
  job.print('epoch 1\n\r  0%|     |');
  await log().getByText('0%|     |').waitFor();
  for (const bar of [' 20%|#    |', ' 80%|#### |', '100%|#####|']) {
    job.print(`\r${bar}`);
    await log().getByText(bar.trim()).waitFor();
    assert.equal(await log().locator('.log-line').count(), 2);
  }
  job.print('\nepoch 2\n');
  await log().getByText('epoch 2').waitFor();
  assert.deepEqual((await log().innerText()).split('\n').map((line) => line.trim()).filter(Boolean), ['epoch 1', '100%|#####|', 'epoch 2']);
  await shot('logs-bar');
  await job.cancel();
});

for (const wrap of [false, true]) {
  test(`a line that is read stays where it is, whatever comes, goes and ends${wrap ? ', in a log that is wrapped' : ''}`, async () => {
    const job = await talker(wrap ? 'wrapped' : 'read');
    await daemon.waitFor(job.id, (one) => one.state === 'running', 'it runs');
    job.print(lines(0, 3000));
    await goTo(`#/jobs/${job.id}/logs?rank=1${wrap ? '&wrap=1' : ''}`);
    await log().getByText('line 2999', {exact: true}).waitFor();
    job.print(`${lines(3000, 2000)}${'wide '.repeat(100)}\n`);
    await log().getByText('wide').waitFor();
    assert.ok(await atEnd(), 'the end is followed');
    await log().evaluate((box) => { box.scrollTop = box.scrollHeight - 500 * 19 - 7; });
    const read = await until(async () => /^line 4[0-8]/.test(await top()) && top(), async () => `somewhere above: ${await top()}`);
    const stays = async (what) => assert.equal(await top(), read, what);
    // New lines, so many that the oldest go.
    const before_ = await high();
    job.print(lines(5000, 500));
    if (!wrap) await until(async () => (await high()) >= before_ + 500 * 19, 'new lines come');
    await stays('new lines');
    job.print(lines(5500, 16_500));
    await page.getByText(/^[\d\u2009]+ lines before these are not kept here/).waitFor();
    await stays('older lines go');
    // Paused, and on.
    const follow = page.getByRole('button', {name: 'follow', exact: true});
    for (const on of ['false', 'true']) {
      await follow.click();
      await until(async () => (await follow.getAttribute('aria-pressed')) === on, `follow: ${on}`);
      await stays(`follow: ${on}`);
    }
    job.print('the last\n');
    await until(async () => (await (await daemon.request('GET', `v1/jobs/${job.id}/logs?rank=1&tail=1`)).text()).includes('the last'), 'it is in the log');
    await job.cancel();
    await page.locator('.job-title .state', {hasText: 'cancelled'}).waitFor();
    await stays('the job is over');
    await shot(`logs-over${wrap ? '-wrapped' : ''}`);
    assert.ok(await page.getByText(/^[\d\u2009]+ lines before these are not kept here/).isVisible(), 'it is not read anew');
    // The end is below; lines that are wrapped exist as far as somebody has scrolled.
    await until(async () => {
      await log().evaluate((box) => { box.scrollTop = box.scrollHeight; });
      return (await atEnd()) && (await log().innerText()).trimEnd().endsWith('the last');
    }, async () => (await log().innerText()).slice(-200));
  });
}

test('text that is selected stays selected while lines come', async () => {
  const job = await talker('selected');
  await daemon.waitFor(job.id, (one) => one.state === 'running', 'it runs');
  await goTo(`#/jobs/${job.id}/logs?rank=1`);
  job.print(`${lines(0, 300)}needle\n`);
  await log().getByText('needle', {exact: true}).dblclick();
  const selected = () => page.evaluate(() => getSelection().toString());
  assert.equal(await selected(), 'needle');
  const read = await top();
  const before_ = await high();
  job.print(lines(300, 400));
  await until(async () => (await high()) >= before_ + 400 * 19, 'new lines come');
  assert.equal(await selected(), 'needle');
  assert.equal(await top(), read);
  await shot('logs-selected');
  // Also where somebody scrolls away from it.
  await log().evaluate((box) => { box.scrollTop = 0; });
  await log().getByText('line 0', {exact: true}).waitFor();
  assert.equal(await selected(), 'needle');
  await log().evaluate((box) => { box.scrollTop = box.scrollHeight; });
  await log().getByText('line 699', {exact: true}).waitFor();
  assert.equal(await selected(), 'needle');
  // Let go, the end is followed again.
  await log().getByText('line 699', {exact: true}).click();
  assert.equal(await selected(), '');
  job.print(lines(700, 100));
  await log().getByText('line 799', {exact: true}).waitFor();
  await until(atEnd, 'the end is followed again');
  await job.cancel();
});

test('what is before the newest lines is said to be there, and is one click away', async () => {
  const job = await talker('long');
  await daemon.waitFor(job.id, (one) => one.state === 'running', 'it runs');
  // More than a slice: the lines before the newest come in two.
  job.print(`first of all\n${Array.from({length: 40_000}, (_, i) => `line ${i} ${'.'.repeat(30)}\n`).join('')}the newest\n`);
  await until(async () => (await (await daemon.request('GET', `v1/jobs/${job.id}/logs?rank=1&tail=1`)).text()).includes('the newest'), 'it is in the log');
  await goTo(`#/jobs/${job.id}/logs?rank=1`);
  await log().getByText('the newest', {exact: true}).waitFor();
  const said = page.getByText(/^The .* before these lines are neither shown nor searched/);
  await said.waitFor();
  await page.getByLabel('Search the log').fill('first of all');
  await log().getByText('No line is like that').waitFor();
  assert.ok(await said.isVisible(), 'no line of all is not what is said');
  const earlier = page.getByRole('link', {name: 'Earlier lines'});
  await earlier.click();
  await page.getByText(/^From byte [1-9]/).waitFor();
  await earlier.click();
  await page.getByText(/^From byte 0 on/).waitFor();
  await log().getByText('first of all', {exact: true}).waitFor();
  await earlier.waitFor({state: 'detached'});
  // All lines from there on, and the way back.
  await page.getByLabel('Search the log').fill('');
  await log().getByText(/^line 0 /).waitFor();
  await page.goBack();
  await earlier.waitFor();
  await page.getByRole('button', {name: 'Newest lines'}).click();
  await page.getByLabel('Search the log').fill('');
  await log().getByText('the newest', {exact: true}).waitFor();
  await job.cancel();
});

test('a log that is read stays where another rank breaks the job', async () => {
  const pipe = path.join(daemon.root, 'breaks.pipe');
  execFileSync('mkfifo', [pipe]);
  const file = fs.openSync(pipe, 'r+');
  const {id} = await daemon.api('POST', 'v1/jobs', {name: 'breaks', framework: 'command', command: ['/bin/sh', '-c', `echo "this is $RANK"; [ $RANK = 1 ] || exec sleep 100000; read -r line < '${pipe}'; exit 3`], resources: {nodes: 1, ranks_per_node: 2}});
  await daemon.waitFor(id, (one) => one.state === 'running', 'it runs');
  await goTo(`#/jobs/${id}/logs`);
  await log(0).getByText('this is 0', {exact: true}).waitFor();
  fs.writeSync(file, 'go\n');
  await daemon.waitFor(id, (one) => one.state === 'failed' && one.cause?.rank === 1, 'rank 1 fails');
  await page.locator('.job-title .state', {hasText: 'failed'}).waitFor();
  assert.ok(await log(0).getByText('this is 0', {exact: true}).isVisible());
  assert.equal(await log(1).count(), 0);
  // Who comes then is shown the rank that broke it.
  await goTo(`#/jobs/${id}/events`);
  await log(0).waitFor({state: 'detached'});
  await goTo(`#/jobs/${id}/logs`);
  await log(1).getByText('this is 1', {exact: true}).waitFor();
});

test('a log whose middle is gone says so, and what is before that is a click away', async (t) => {
  const {id} = await daemon.api('POST', 'v1/jobs', {name: 'gone', framework: 'command', command: ['/bin/echo', 'x'], resources: {nodes: 1, ranks_per_node: 1}});
  await daemon.waitFor(id, (one) => one.state === 'succeeded', 'it is over');
  const name = fs.readdirSync(daemon.root, {recursive: true}).find((one) => one.includes(id) && one.endsWith('rank-00000.log'));
  // As the agent leaves it: offsets are those of the whole output, and what is not kept takes no room.
  const at = path.join(daemon.root, name);
  const kept = 4 * 65_536;
  const last = 5 << 20;
  fs.writeFileSync(at, 'first of all\n'.padEnd(kept, `${'.'.repeat(63)}\n`));
  fs.truncateSync(at, last);
  fs.appendFileSync(at, `${lines(0, 3000)}the newest\n`);
  if (fs.statSync(at).blocks * 512 >= last) return t.skip('a file system without holes');
  await goTo(`#/jobs/${id}/logs`);
  await log(0).getByText('the newest', {exact: true}).waitFor();
  const earlier = page.getByRole('link', {name: 'Earlier lines'});
  await earlier.click();
  await log(0).getByText(/^\[lockstep: \d+ bytes dropped\]$/).waitFor();
  // The hole is stepped over at once.
  await earlier.click();
  await page.getByText(/^From byte 0 on/).waitFor();
  await log(0).getByText('first of all', {exact: true}).waitFor();
});

test('of a rank that is over and has printed nothing nothing more is expected', async () => {
  const silent = await daemon.api('POST', 'v1/jobs', {name: 'silent', framework: 'command', command: ['/bin/true'], resources: {nodes: 1, ranks_per_node: 1}});
  await daemon.waitFor(silent.id, (one) => one.state === 'succeeded', 'it is over');
  await goTo(`#/jobs/${silent.id}/logs`);
  await log(0).getByText('It has printed nothing.', {exact: true}).waitFor();
});

test('no page broke the content policy, asked another host or threw', () => {
  assert.deepEqual(browser.violations, []);
  assert.deepEqual(browser.errors, []);
});
