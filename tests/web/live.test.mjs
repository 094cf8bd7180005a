// What an open page goes on to say while jobs run, lockstepd goes away and people change what they look at.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import fs from 'node:fs';
import {after, before, test} from 'node:test';
import {Browser, Daemon, has, signIn, until} from './support.mjs';

const daemon = new Daemon();
const browser = new Browser();
const jobs = {};
let page;

before(async () => {
  await browser.start();  // first: whichever fails, after() ends both
  await daemon.start();
  jobs.fast = await daemon.submit('fast', 'good', {steps: 1_000_000, pace: 0.02});
  jobs.wordy = await daemon.submit('wordy', 'wordy', {steps: 1_000_000, pace: 0.1});
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

test('what is zoomed on says its own newest value', async () => {
  await goTo(`#/jobs/${jobs.fast.id}`);
  const first = await until(stepNow, 'the loss is drawn');
  await until(async () => (await stepNow()) > first + 20, 'steps come');
  // By the address, so that no pointer is on a chart.
  await page.evaluate(() => { location.hash += '?zoom=10~100'; });
  await page.getByRole('button', {name: 'Reset zoom'}).waitFor();
  await until(async () => [90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102].includes(await stepNow()), async () => `the end of what is seen: ${await readout('Loss').innerText()}`, 10);
  await page.getByRole('button', {name: 'Reset zoom'}).click();
  await until(async () => (await stepNow()) > first + 20, 'the newest again');
});

test('the habits of people who look at curves all day', async () => {
  await goTo(`#/jobs/${jobs.fast.id}`);
  await until(stepNow, 'the loss is drawn');
  const figure = (of) => page.locator('figure', {has: page.getByRole('heading', {name: of, exact: true})});
  const box = await figure('Loss').locator('.plot').boundingBox();
  const at = (of) => readout(of).innerText().then((text) => text.match(/^step [\d\u2009]+/)?.[0]);
  // One cursor for all charts.
  await figure('Step time').locator('canvas').first().waitFor();
  await until(async () => {
    await page.mouse.move(box.x + box.width * 0.3, box.y + 100);
    await page.mouse.move(box.x + box.width * 0.3 + 1, box.y + 100);
    const [loss, time] = await Promise.all([at('Loss'), at('Step time')]);
    return loss && loss === time && Number(loss.replace(/\D/g, '')) < (await daemon.job(jobs.fast.id)).step * 0.6;
  }, async () => `both say the step under the mouse: ${await at('Loss')}, ${await at('Step time')}`);
  // Dragged, all zoom; a double click undoes it.
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.6, box.y + 110, {steps: 4});
  await page.mouse.up();
  const reset = page.getByRole('button', {name: 'Reset zoom'});
  await reset.waitFor();
  // One that comes while the chart is still drawn anew for the zoom is none.
  await until(async () => {
    await page.mouse.dblclick(box.x + box.width * 0.5, box.y + 100);
    return (await reset.count()) === 0;
  }, 'a double click undoes it');
  // Keys.
  await page.locator('main').focus();
  for (const [key, said] of [['l', /logy=1/], ['x', /x=time/], ['+', /smooth=0\.1/], ['+', /smooth=0\.2/], ['-', /smooth=0\.1/]]) {
    await page.keyboard.press(key);
    assert.match(page.url(), said, key);
  }
  // Smoothed in another way, the raw line behind; without outliers; over log x.
  await page.getByLabel('Kind of average').selectOption('Gaussian');
  await page.getByRole('button', {name: 'without outliers'}).click();
  await page.getByRole('button', {name: 'Step', exact: true}).click();
  await page.getByRole('button', {name: 'log x'}).click();
  assert.match(page.url(), /(?=.*by=gauss)(?=.*clip=1)(?=.*logx=1)/);
  await until(stepNow, 'it is drawn');
  // Files.
  for (const [item, ending] of [['PNG', /^fast-loss\.png$/], ['JSON', /^fast-loss\.json$/], ['CSV', /^fast-loss\.csv$/]]) {
    await page.getByRole('button', {name: 'Loss: table, files and commands'}).click();
    const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('menuitem', {name: item, exact: true}).click()]);
    assert.match(file.suggestedFilename(), ending);
    assert.ok(fs.statSync(await file.path()).size > 500, item);
  }
  // A pinned chart is in front, also for the next job.
  await page.getByRole('button', {name: 'Pin Gradient norm'}).click();
  await until(async () => (await page.locator('.chart-grid h2').first().innerText()) === 'Gradient norm', 'it is the first');
  await page.getByRole('button', {name: 'Pin Gradient norm'}).click();
  // Everywhere else by a key or two, with what is looked at.
  await page.locator('main').focus();
  await page.keyboard.press('c');
  await page.getByRole('heading', {name: 'Compare'}).waitFor();
  assert.match(page.url(), new RegExp(`jobs=${jobs.fast.id}`));
  await page.keyboard.press('g');
  await page.keyboard.press('q');
  await page.getByRole('heading', {name: 'Queue', exact: true}).waitFor();
  await page.keyboard.press('?');
  await page.getByRole('dialog', {name: 'Keys'}).waitFor();
  await page.keyboard.press('Escape');
});

test('whatever is asked of a job is asked once, done, and told', async () => {
  const job = await daemon.submit('acted-on', 'good', {steps: 1_000_000, pace: 0.05});
  await daemon.waitFor(job.id, (one) => one.step > 10, 'it runs');
  await goTo(`#/jobs/${job.id}`);
  const press = async (label, told) => {
    await page.getByRole('button', {name: label, exact: true}).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', {name: label, exact: true}).click();
    await page.getByRole('status').getByText(told).waitFor();
    await dialog.waitFor({state: 'detached'});
  };
  await press('Evidence', 'Evidence is being taken');
  await page.getByRole('link', {name: 'Evidence', exact: true}).first().click();
  await page.getByText('2 ranks', {exact: true}).or(page.getByText('1 rank', {exact: true})).first().waitFor();
  await page.getByRole('link', {name: 'Overview', exact: true}).click();
  // These ranks catch no signal: a refusal is told where it was asked, and nothing has happened.
  await page.getByRole('button', {name: 'Checkpoint', exact: true}).click();
  await page.getByRole('dialog').getByRole('button', {name: 'Checkpoint', exact: true}).click();
  assert.match(await page.getByRole('dialog').getByRole('alert').innerText(), /rank|signal|script/);
  await page.getByRole('button', {name: 'Leave it'}).click();
  await press('Restart', 'The ranks are being started anew');
  await daemon.waitFor(job.id, ({attempts: [{generations}]}) => generations.length === 2 && generations[1].step > 0, 'it makes steps again');
  const {items} = await daemon.api('GET', `v1/jobs/${job.id}/events?limit=1000`);
  for (const [kind, times] of [['checkpoint_requested', 0], ['restart_requested', 1], ['evidence_taken', 1]]) assert.equal(items.filter((one) => one.kind === kind).length, times, kind);
  // It is told as what it is: nothing failed.
  await goTo(`#/jobs/${job.id}`);
  await has(page, /restart asked for by \S+ at \d/);
  const tile = page.locator('.tile', {hasText: 'What broke?'});
  await until(async () => /What broke\?\s+nothing\s+restart asked for by/.test(await tile.innerText()), () => tile.innerText());
  await page.locator('.tick-restart').waitFor({state: 'attached'});
  assert.equal(await page.locator('.tick-failure, .mark-failure, .banner-bad, .banner-warn').count(), 0);
  await goTo(`#/jobs/${job.id}/events`);
  await has(page, 'asked for the ranks to be started anew');
  await daemon.api('POST', `v1/jobs/${job.id}/cancel`);
});

test('what a rank does is recorded from its page, shown, and downloaded', async () => {
  const job = await daemon.submit('recorded', 'good', {steps: 100_000, pace: 0.05});
  await daemon.waitFor(job.id, (one) => one.step > 10, 'it runs');
  await goTo(`#/jobs/${job.id}/ranks/1`);
  await page.getByRole('link', {name: 'Profile', exact: true}).click();
  await has(page, 'No profile was recorded');
  const ranks = page.getByLabel('Ranks', {exact: true});
  assert.equal(await ranks.inputValue(), '1');
  const record = page.getByRole('button', {name: 'Record', exact: true});
  // What lockstepd says of it is told where it was asked.
  await ranks.fill('0,99');
  await record.click();
  assert.match(await page.getByRole('alert').innerText(), /99|rank/);
  await ranks.fill('1');
  await page.getByLabel('Seconds', {exact: true}).fill('2');
  await record.click();
  await page.getByRole('status').getByText(/^1 rank for 2 s/).waitFor();
  await page.getByRole('heading', {name: 'Profile 1, generation 1', exact: true}).waitFor();
  await page.getByRole('alert').waitFor({state: 'detached'});
  // The step is a sleep and a barrier: both lines are among the places, with their shares; the picture says the same.
  const table = page.getByRole('table', {name: 'Where MainThread was'});
  await table.getByRole('cell', {name: /^\d+ ?%$/}).first().waitFor();
  const rows = (await table.innerText()).split('\n');
  assert.ok(rows.some((row) => /main \(train\.py:\d+\)/.test(row)), `${rows}`);
  const frame = page.locator('.flame > button', {hasText: /^main \(train\.py:/}).first();
  const wide = async (of) => (await of.boundingBox()).width;
  const before_ = await wide(frame);
  await frame.click();
  await page.getByRole('button', {name: 'All of MainThread'}).waitFor();
  const root = page.locator('.flames > .flame > button');
  assert.match(await root.innerText(), /^main \(train\.py:/);
  assert.ok(await wide(root) >= before_, 'what is clicked fills the width');
  await page.getByRole('button', {name: 'All of MainThread'}).click();
  assert.equal(await root.innerText(), 'MainThread');
  if (process.env.LOCKSTEP_WEB_SHOTS) await page.screenshot({path: `${process.env.LOCKSTEP_WEB_SHOTS}/profiles.png`, fullPage: true});
  await browser.axe(page, 'profiles');
  const coming = page.waitForEvent('download');
  await page.getByRole('button', {name: 'Download stacks.txt of rank 1'}).click();
  const file = await coming;
  assert.equal(file.suggestedFilename(), 'rank-1.stacks.txt');
  assert.match(fs.readFileSync(await file.path(), 'utf8'), /^MainThread;.*main \(train\.py:\d+\).* \d+$/m);
  // A second one is the first in the list; after the end nothing is recorded, and what there is stays.
  await record.click();
  await page.getByRole('heading', {name: 'Profile 2, generation 1', exact: true}).waitFor();
  assert.match(await page.getByRole('heading', {name: /^Profile \d/}).first().innerText(), /^Profile 2/);
  await daemon.api('POST', `v1/jobs/${job.id}/cancel`);
  await record.waitFor({state: 'detached'});
  assert.equal(await page.getByRole('heading', {name: /^Profile \d/}).count(), 2);
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

const log = (rank) => page.getByRole('log', {name: `Log of rank ${rank}`});
const linesOf = async (of) => (await of.innerText()).split('\n').filter(Boolean);

test('a name as long as may be stays on one line and leaves room for what is to know', async () => {
  const name = `a-${'long-'.repeat(12)}1`;
  const long = await daemon.submit(name, 'crash');
  await daemon.waitFor(long.id, (job) => job.state === 'failed', 'it fails');
  for (const width of [1440, 1200, 1024, 390]) {
    await page.setViewportSize({width, height: 900});
    await goTo('#/jobs');
    const row = page.getByRole('region', {name: 'Jobs', exact: true}).getByRole('row', {name: new RegExp(name)});
    await row.waitFor();
    const link = row.getByRole('link', {name, exact: true});
    assert.ok((await link.boundingBox()).height < 40, `one line at ${width} px`);
    assert.equal(await link.locator('bdi').getAttribute('title'), name);
    const [wide, seen] = await page.locator('.table-wrap').evaluate((box) => [box.scrollWidth, box.clientWidth]);
    assert.ok(wide <= seen, `${wide} of ${seen} px at ${width}`);
  }
  await page.setViewportSize({width: 1440, height: 900});
});

test('a hit of the search over all ranks opens where it is', async () => {
  await goTo(`#/jobs/${jobs.wordy.id}/logs?q=n.edle&all=1&regex=1`);
  await page.getByRole('region', {name: 'In the logs of all ranks'}).getByRole('link', {name: /needle 1000 of rank 0/}).click();
  await log(0).locator('mark').getByText('needle', {exact: true}).waitFor();
  assert.match(page.url(), /regex=1/);
  // Among the lines around it, which are whole.
  await log(0).getByText('straw 999', {exact: true}).waitFor();
  assert.match((await linesOf(log(0)))[0], /^straw \d+$/);
  await page.getByRole('button', {name: 'Newest lines'}).click();
  await log(0).getByText(/^step \d+0\//).first().waitFor();
});

test('Download saves all that a rank has printed', async () => {
  await goTo(`#/jobs/${jobs.wordy.id}/logs?rank=1`);
  await log(1).getByText('straw 5999', {exact: true}).or(log(1).getByText(/^step \d/)).first().waitFor();
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', {name: 'Download'}).click()]);
  const lines = fs.readFileSync(await file.path(), 'utf8').split('\n');
  assert.match(lines[0], /^rank 1 starts/);
  assert.equal(lines[1], 'straw 0');
  assert.ok(lines.includes('needle 1000 of rank 1') && lines.includes('straw 5999'));
  assert.equal(file.suggestedFilename(), 'wordy-rank-1.log');
});

test('what only the owner is shown is not submitted again as ***', async () => {
  const {token} = await daemon.api('POST', 'v1/tokens', {name: 'test', user: 'ada', role: 'user'});
  const theirs = await daemon.submit('theirs', 'good', {steps: 1, perNode: 1, token, environment: {WANDB_API_KEY: 'abc', DEPTH: '3'}, labels: {team: 'ada'}});
  await goTo(`#/submit?from=${theirs.id}&as=text`);
  await page.getByText('left out').waitFor();
  await has(page, 'DEPTH, WANDB_API_KEY');
  const text = await page.locator('#text').inputValue();
  assert.ok(text.includes('"team": "ada"') && !text.includes('***'), text);
  // Nor by anybody else's program.
  const answer = await daemon.request('POST', 'v1/jobs/render', await daemon.api('GET', `v1/jobs/${theirs.id}/spec`));
  assert.equal(answer.status, 400);
  assert.match(await answer.text(), /give WANDB_API_KEY its value/);
});

test('a new job after one again with changes begins with nothing of that', async () => {
  await goTo('#/submit?as=text');
  await page.locator('#text').fill('{"name": "mine", "framework": "command", "command": ["true"]}');
  await page.getByText('1 rank', {exact: true}).waitFor();
  await goTo(`#/submit?from=${jobs.wordy.id}&as=text`);
  await page.getByRole('heading', {name: 'Again with changes'}).waitFor();
  await until(async () => (await page.locator('#text').inputValue()).includes('"wordy"'), 'it is what the job was');
  await has(page, 'Different from the job it was');
  await goTo('#/submit?as=text');
  await page.getByRole('heading', {name: 'Submit a job'}).waitFor();
  // What was written before is there again.
  await until(async () => /"mine"/.test(await page.locator('#text').inputValue()), async () => page.locator('#text').inputValue());
  assert.equal(await page.getByText('Different from the job it was').count(), 0);
});

test('what is to know of a job is whole, however long names and labels are', async () => {
  const wrong = await daemon.api('POST', 'v1/jobs', {name: 'w'.repeat(64), framework: 'command', command: ['/no/such/program'], resources: {nodes: 1, ranks_per_node: 1}, labels: {label: 'W'.repeat(60)}});
  const nan = await daemon.submit('nowhere', 'nan', {steps: 1_000_000, pace: 0.02});
  await daemon.waitFor(wrong.id, (job) => job.state === 'failed', 'it fails');
  await daemon.waitFor(nan.id, (job) => job.anomalies?.nonfinite && job.step > 120, 'no loss is a number');
  for (const width of [1440, 1366]) {
    await page.setViewportSize({width, height: 900});
    await goTo('#/jobs');
    await page.locator('tr', {hasText: 'command not found'}).getByText(/^on [^:]+: command not found: \/no\/such\/program$/).waitFor();
    const [wide, seen] = await page.getByRole('region', {name: 'Jobs'}).evaluate((box) => [box.scrollWidth, box.clientWidth]);
    assert.ok(wide <= seen, `${wide} of ${seen} px at ${width}`);
  }
  await page.setViewportSize({width: 1440, height: 900});
  // Nor is a loss of long ago that of now.
  await page.locator('tr', {hasText: 'nowhere'}).locator('.loss').getByText('NaN', {exact: true}).waitFor();
  await goTo(`#/jobs/${nan.id}`);
  await page.locator('.tile', {hasText: 'Is it learning?'}).getByText('NaN', {exact: true}).waitFor();
  await daemon.api('POST', `v1/jobs/${nan.id}/cancel`);
});

test('the PromQL of a chart has a name that is exported', async () => {
  await goTo(`#/jobs/${jobs.fast.id}`);
  await page.getByRole('button', {name: 'Step time: table, files and commands'}).click();
  await page.getByRole('menuitem', {name: 'Copy PromQL'}).click();
  const copied = await page.getByText('Copied: quantile').innerText();
  const name = copied.match(/lockstep_\w+/)[0];
  const exported = await (await daemon.request('GET', 'metrics')).text();
  assert.ok(exported.includes(`\n${name}{job_id="${jobs.fast.id}"`), copied);
});

test('the median beside a rank is of all ranks', async () => {
  const [asked] = await Promise.all([page.waitForRequest(/series\?.*stat=median/), goTo(`#/jobs/${jobs.fast.id}/ranks/1`)]);
  assert.match(asked.url(), /ranks=all/);
  await has(page, /median of all [\d.]+ .?s/);
});

test('runs that are compared go on', async () => {
  await goTo(`#/compare?jobs=${jobs.fast.id},${jobs.wordy.id}`);
  const steps = page.getByRole('region', {name: 'Runs'}).getByRole('row', {name: /^step/});
  const first = await steps.innerText();
  await until(async () => (await steps.innerText()) !== first, first);
});

test('every time is local', async () => {
  const runs = [await daemon.submit('twice', 'good', {steps: 1, perNode: 1}), await daemon.submit('twice', 'good', {steps: 1, perNode: 1})];
  for (const {id} of runs) await daemon.waitFor(id, (job) => job.state === 'succeeded', 'it ends');
  const tab = await browser.tab({timezoneId: 'Asia/Kolkata'});
  await signIn(tab, daemon, daemon.token, `#/jobs/${runs[1].id}/config`);
  const local = new Intl.DateTimeFormat('en-GB', {timeZone: 'Asia/Kolkata', hour: '2-digit', minute: '2-digit'}).format(new Date(runs[0].submitted_at));
  const select = tab.getByLabel('Another run of that name');
  await until(async () => (await select.innerText()).includes(local), async () => `${local}: ${await select.innerText()}`);
  await tab.goto(`${daemon.url}#/compare`);
  await until(async () => (await tab.getByLabel('Add a run').innerText()).includes(`twice · succeeded · ${local}`), async () => `${local}: ${await tab.getByLabel('Add a run').innerText()}`);
  await tab.context().close();
});

test('a link that is spent takes somebody who is signed in where it leads', async () => {
  await goTo(`#/signin?code=spent&next=/jobs/${jobs.fast.id}`);
  await page.getByRole('heading', {name: 'fast'}).waitFor();
  await has(page, /This link has been used .*; you are signed in as/);
});

test('what a rank has printed stays while lockstepd is away, and goes on without a gap', async () => {
  await goTo(`#/jobs/${jobs.wordy.id}/logs?rank=1`);
  const steps = async () => (await linesOf(log(1))).map((line) => Number(line.match(/^step (\d+)\//)?.[1])).filter(Boolean);
  const last = await until(async () => (await steps()).at(-1), 'it is followed');
  await daemon.kill9();
  await page.getByRole('alert').getByText('lockstepd does not answer').first().waitFor();
  assert.ok((await steps()).includes(last), await log(1).innerText());
  await daemon.start();
  await until(async () => (await steps()).at(-1) > last + 20, async () => `it goes on after ${last}: ${await log(1).innerText()}`);
  await page.getByRole('alert').first().waitFor({state: 'detached'});
  const all = await steps();
  assert.deepEqual(all, all.map((_, i) => all[0] + 10 * i));
});

test('a link is not said to be spent when lockstepd does not answer', async () => {
  await goTo('#/jobs');
  await has(page, 'wordy');
  await daemon.kill9();
  await goTo('#/signin?code=unasked&next=/queue');
  await page.getByRole('alert').getByText('lockstepd does not answer').waitFor();
  assert.equal(await page.getByText('This link has been used').count(), 0);
  await daemon.start();
});

test('where no loss was found in what the ranks printed the page says what explains it', async () => {
  const {id} = await daemon.api('POST', 'v1/jobs', {name: 'speechless', framework: 'pytorch', command: ['true']});
  await daemon.waitFor(id, (job) => job.state === 'succeeded', 'it ends');
  await goTo(`#/jobs/${id}`);
  await page.getByText('See lockstep explain capture').waitFor();
});

test('of a job whose history has expired the page says that it has, not that nothing was reported', async () => {
  const old = await daemon.submit('old', 'good', {steps: 60, pace: 0.01});
  await daemon.waitFor(old.id, (job) => job.state === 'succeeded', 'it ends');
  const names = async () => (await daemon.api('GET', `v1/jobs/${old.id}/metrics`)).items;
  assert.ok((await names()).includes('loss'));
  // Rows that were in no chunk yet would be made into one after the start.
  const packed = () => execFileSync('/usr/bin/python3', ['-c', `import sqlite3, sys
with sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True) as db:
    print(*db.execute("SELECT (SELECT count(*) > 0 FROM history_chunks WHERE job = ?1) AND NOT EXISTS (SELECT 1 FROM telemetry_log WHERE job = ?1)", sys.argv[2:]).fetchone())`,
  `${daemon.data}/lockstep.db`, old.id], {encoding: 'utf8'}).trim() === '1';
  await until(packed, 'its history is in chunks');
  // As --history-days would in a month.
  await daemon.kill9();
  execFileSync('/usr/bin/python3', ['-c', `import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as db:
    db.execute("DELETE FROM history_sections WHERE chunk IN (SELECT id FROM history_chunks WHERE job = ?)", sys.argv[2:])
    db.execute("DELETE FROM history_chunks WHERE job = ?", sys.argv[2:])`, `${daemon.data}/lockstep.db`, old.id]);
  await daemon.start();
  await until(async () => (await names()).length === 0, 'it is gone');
  for (const where of ['', '/ranks', '/ranks/1']) {
    await goTo('#/jobs');
    await goTo(`#/jobs/${old.id}${where}`);
    await page.getByRole('heading', {name: 'What its ranks reported is no longer kept'}).waitFor();
    assert.equal(await page.getByText(/Nothing was reported|too few steps/).count(), 0, where);
    await browser.axe(page, `an expired history, ${where}`);
  }
  await page.getByRole('log', {name: 'Log of rank 1'}).getByText('step 60/60').waitFor();
});

test('no page broke the content policy, asked another host or threw', () => {
  assert.deepEqual(browser.violations, []);
  assert.deepEqual(browser.errors, []);
});
