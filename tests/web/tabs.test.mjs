// Many tabs of one person: they share one stream of events, and go on when the tab that has it is closed. The daemon's own
// count of streams says so.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import {Browser, Daemon, has, signIn, until} from './support.mjs';

const daemon = new Daemon();
const browser = new Browser();
const jobs = {};
const tabs = [];

before(async () => {
  await browser.start();  // first: whichever fails, after() ends both
  await daemon.start();
  jobs.one = await daemon.submit('shared', 'good', {steps: 1_000_000, pace: 0.1});
  await daemon.waitFor(jobs.one.id, (job) => job.step > 5, 'it runs');
});
after(async () => {
  await browser.close();
  await daemon.cleanUp();
});

const streams = async () => Number((await (await daemon.request('GET', 'metrics?jobs=none')).text()).match(/^lockstep_sse_clients (\d+)/m)[1]);
const streamsAre = (count) => until(async () => (await streams()) === count, async () => `${count} streams: there are ${await streams()}`);
const lossAt = (tab) => tab.locator('figure', {has: tab.getByRole('heading', {name: 'Loss', exact: true})}).locator('.readout').first().innerText()
  .then((text) => Number(text.match(/step ([\d\u2009]+)/)?.[1].replace(/\u2009/g, '') ?? 0));
/** Every one of them shows later steps than before. */
async function move(some) {
  const from = await Promise.all(some.map((tab) => until(() => lossAt(tab), 'the loss is drawn')));
  await Promise.all(some.map((tab, i) => until(async () => (await lossAt(tab)) > from[i] + 5, async () => `tab ${i} goes on after ${from[i]}: ${await lossAt(tab)}`)));
}
/** Who asks lockstepd for events, by tab. */
function countStreams(tab) {
  tab.streams = 0;
  tab.on('request', (request) => { tab.streams += /\/v1\/events\?/.test(request.url()) ? 1 : 0; });
}

test('eight tabs of a job have one stream, and the loss moves in all of them', async () => {
  tabs.push(await browser.tab());
  await signIn(tabs[0], daemon, daemon.token, `#/jobs/${jobs.one.id}`);
  while (tabs.length < 8) tabs.push(await browser.beside(tabs[0]));
  for (const tab of tabs.slice(1)) {
    countStreams(tab);
    await tab.goto(`${daemon.url}#/jobs/${jobs.one.id}`);
  }
  await move(tabs);
  await streamsAre(1);
  assert.deepEqual(tabs.slice(1).map((tab) => tab.streams), [0, 0, 0, 0, 0, 0, 0]);
});

test('the tab that has the stream is closed: another goes on, and nobody misses a step or an event', async () => {
  const heat = tabs[2];
  const told = tabs[3];
  await heat.goto(`${daemon.url}#/jobs/${jobs.one.id}/ranks?metric=loss`);
  await heat.locator('.heat-canvas').waitFor();
  await told.goto(`${daemon.url}#/jobs/${jobs.one.id}/events`);
  await told.getByRole('list', {name: 'Events, newest first'}).waitFor();
  const asked = () => told.getByText('asked for the ranks to be started anew').count();
  const runsAgain = (times) => daemon.waitFor(jobs.one.id, ({attempts: [{generations}]}) => generations.length > times && generations[times].step > 5, `start ${times + 1} makes steps`);
  await daemon.api('POST', `v1/jobs/${jobs.one.id}/restart`);
  await until(async () => (await asked()) === 1, 'an event before');
  await runsAgain(1);
  const closed = tabs.shift().close();
  await daemon.api('POST', `v1/jobs/${jobs.one.id}/restart`);  // whoever has the stream by then
  await closed;
  await until(async () => (await asked()) === 2, 'an event from between');
  await runsAgain(2);
  await move([tabs[0], ...tabs.slice(3)]);
  await streamsAre(1);
  assert.equal(await asked(), 2);
  assert.equal(tabs.reduce((sum, tab) => sum + (tab.streams > 0 ? 1 : 0), 0), 1);
  // What the page shows is what lockstepd has stored.
  const {items} = await daemon.api('GET', `v1/jobs/${jobs.one.id}/events?limit=1000`);
  await until(async () => (await told.evaluate(() => document.querySelectorAll('.events li .event:not(summary)').length)) >= items.length, `${items.length} events`);
  await heat.locator('.heat-canvas').focus();
  const cells = [];
  for (let i = 0; i < 40; i++) {
    await heat.keyboard.press('ArrowLeft');
    cells.push(await heat.locator('.heat-text').innerText());
  }
  assert.deepEqual(cells.filter((text) => /nothing/.test(text)), []);
});

test('tabs of other jobs and pages get their own through the same stream', async () => {
  jobs.two = await daemon.submit('other', 'good', {steps: 1_000_000, pace: 0.1});
  await has(tabs[0], 'shared');
  await tabs[0].goto(`${daemon.url}#/jobs`);
  await has(tabs[0], 'other');
  await tabs[3].goto(`${daemon.url}#/jobs/${jobs.two.id}`);
  await move([tabs[3], tabs[4]]);
  await streamsAre(1);
});

test('a tab whose topics do not fit into the stream has its own', async () => {
  const first = await browser.tab();
  await signIn(first, daemon, daemon.token, `#/jobs/${jobs.one.id}`);
  await move([first]);
  await streamsAre(2);  // of another person, the browser thinks
  // Others want a topic each until there is no room: a stream has 160.
  const greedy = await browser.beside(first);
  await greedy.goto(`${daemon.url}healthz`);
  await greedy.evaluate(async (id) => {
    const bus = new BroadcastChannel('lockstep /');
    for (let i = 0; i < 160; i++) {
      await new Promise((held) => navigator.locks.request(`greedy ${i}`, () => new Promise(held)));  // and never given back
      bus.postMessage({from: `greedy ${i}`, wants: [`steps.${id}.m${i}`]});
    }
  }, jobs.one.id);
  const late = await browser.beside(first);
  countStreams(late);
  await late.goto(`${daemon.url}#/jobs/${jobs.two.id}`);
  await until(() => late.streams > 0, 'it has its own');
  await move([late, first]);
  await streamsAre(3);
  await first.context().close();
  await streamsAre(1);
});

test('a tab that has the stream and is heard no more, as one that the browser has frozen, loses it', async () => {
  const first = await browser.tab();
  await first.clock.install();  // of all tabs of this person
  await signIn(first, daemon);
  const frozen = await browser.beside(first);
  await frozen.goto(`${daemon.url}healthz`);
  const its = frozen.evaluate(() => new Promise((resolve) => {
    void navigator.locks.request('lockstep /', () => new Promise(() => resolve('it has it'))).catch(() => undefined);
  }));
  const heir = await browser.beside(first);
  countStreams(heir);
  await first.close();
  assert.equal(await its, 'it has it');
  await heir.goto(`${daemon.url}#/jobs/${jobs.one.id}`);
  await until(() => lossAt(heir), 'the loss is drawn');
  assert.equal(heir.streams, 0);
  await heir.clock.fastForward(61_000);  // nothing in a minute: heartbeats come four times in one
  await until(() => heir.streams > 0, 'it takes the stream');
  await move([heir]);
  await heir.context().close();
});

test('as many tabs that follow logs as one likes leave connections for the rest', async () => {
  for (const tab of tabs) await tab.goto(`${daemon.url}#/jobs/${jobs.two.id}/logs`);
  const last = (tab) => tab.getByRole('log').innerText().then((text) => Number(text.match(/step (\d+)\/[^\n]*\s*$/)?.[1] ?? 0));
  const from = await Promise.all(tabs.map((tab) => until(() => last(tab), 'the log is shown')));
  await Promise.all(tabs.map((tab, i) => until(async () => (await last(tab)) > from[i] + 10, async () => `the log of tab ${i} grows after ${from[i]}: ${await last(tab)}`)));
  await until(async () => (await streams()) <= 4, 'three logs and the events have streams');
  // A browser has six connections: another page is there at once.
  await tabs[0].goto(`${daemon.url}#/queue`);
  await tabs[0].getByRole('heading', {name: 'Queue'}).first().waitFor();
});

test('who signs out in one tab is signed out in all, and in again', async () => {
  await tabs[0].getByRole('button', {name: /^\S+ ?admin$/}).click();
  await tabs[0].getByRole('menuitem', {name: 'Sign out'}).click();
  await Promise.all(tabs.map((tab) => tab.getByLabel('Or a token').waitFor()));
  await streamsAre(0);
  await tabs[1].fill('#token', daemon.token);
  await tabs[1].click('button[type=submit]');
  await Promise.all(tabs.map((tab) => tab.locator('header.top').waitFor()));
  for (const tab of tabs) await tab.goto(`${daemon.url}#/jobs/${jobs.one.id}`);
  await move(tabs);
  await streamsAre(1);
});

test('lockstepd restarts below many tabs: one stream again', async () => {
  await daemon.kill9();
  await Promise.all(tabs.map((tab) => tab.getByRole('alert').getByText('lockstepd does not answer').waitFor()));
  await daemon.start();
  await move(tabs);
  await streamsAre(1);
});

test('a browser without locks has a stream for every tab, as before', async () => {
  await Promise.all(tabs.splice(0).map((tab) => tab.context().close()));
  await streamsAre(0);
  const plain = await browser.tab();
  await plain.context().addInitScript(() => Object.defineProperty(navigator, 'locks', {value: undefined}));
  await signIn(plain, daemon, daemon.token, `#/jobs/${jobs.one.id}`);
  const second = await browser.beside(plain);
  await second.goto(`${daemon.url}#/jobs/${jobs.one.id}`);
  await move([plain, second]);
  await streamsAre(2);
  await plain.context().close();
});

test('no page broke the content policy, asked another host or threw', () => {
  assert.deepEqual(browser.violations, []);
  assert.deepEqual(browser.errors, []);
});
