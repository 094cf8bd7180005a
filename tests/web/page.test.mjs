// The page as people use it: a real lockstepd with running ranks, Debian's Chromium. One daemon and one browser for all
// tests, which run one after another; the jobs are started first and go on beside them.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import {after, before, test} from 'node:test';
import {Tree} from './spoken.mjs';
import {Browser, Daemon, has, here, signIn, source, until} from './support.mjs';

const daemon = new Daemon();
const browser = new Browser();
const jobs = {};
let page;

before(async () => {
  await browser.start();  // first: whichever fails, after() ends both
  await daemon.start();
  jobs.slow = await daemon.submit('slow-rank', 'straggler', {steps: 5000, pace: 0.03, nodes: 2, perNode: 4, labels: {team: 'vision'}});
  jobs.crash = await daemon.submit('bad-labels', 'crash');
  jobs.hostile = await daemon.submit('hostile-log', 'hostile', {steps: 3000, pace: 0.2, perNode: 1, labels: {note: '<b>bold</b> \u202egnp'}});
  jobs.victim = await daemon.submit('victim', 'forever', {steps: 100_000, pace: 0.1, nodes: 2, perNode: 1});
  jobs.done = await daemon.submit('all-well', 'good', {steps: 60, pace: 0.01});
  page = await browser.tab();
});
after(async () => {
  await browser.close();
  await daemon.cleanUp();
});

const goTo = (where) => page.goto(daemon.url + where);
const readout = (of) => page.locator('figure', {has: page.getByRole('heading', {name: of, exact: true})}).locator('.readout').first();
const stepNow = async () => Number((await readout('Loss').innerText()).match(/step ([\d\u2009]+)/)?.[1].replace(/\u2009/g, '') ?? 0);

test('signs in with a token, or a code that is spent and leaves the address', async () => {
  await goTo('#/jobs');
  await until(() => page.evaluate(() => document.activeElement?.id === 'token'), 'one may type at once');
  await page.fill('#token', `lks_${'0'.repeat(64)}`);
  await page.click('button[type=submit]');
  await page.getByRole('alert').waitFor();
  await signIn(page, daemon);
  await has(page, 'slow-rank');
  const {code} = await daemon.api('POST', 'v1/session/codes');
  const other = await browser.tab();
  await other.goto(`${daemon.url}#/signin?code=${code}&next=/jobs/${jobs.slow.id}`);
  await other.getByRole('heading', {name: 'slow-rank'}).waitFor();
  assert.ok(!other.url().includes(code));
  // Signed out, the cookie is worth nothing.
  const {user} = await daemon.api('GET', 'v1/whoami');
  await other.getByRole('button', {name: new RegExp(`^${user}( |$)`)}).click();
  await other.getByRole('menuitem', {name: 'Sign out'}).click();
  await other.getByLabel('Or a token').waitFor();
  await other.reload();
  await other.getByLabel('Or a token').waitFor();
  await other.goto(`${daemon.url}#/signin?code=${code}`);
  await has(other, 'This link has been used');
  await other.context().close();
});

test('where the script does not arrive, as when the network changes, the page says so', async () => {
  const other = await browser.tab();
  await other.route('**/*.js', (route) => route.abort('internetdisconnected'));
  await other.goto(daemon.url);
  await has(other, 'load the page again');
  await other.unroute('**/*.js');
  await other.reload();
  await other.getByLabel('Or a token').waitFor();
  assert.equal(await other.getByText('load the page again').count(), 0);
  await other.context().close();
});

test('what an address is sure to need is asked for before the script of the page is there, and once', async () => {
  await daemon.waitFor(jobs.done.id, (job) => job.state === 'succeeded', 'it ends');
  for (const [where, drawn] of [[`#/jobs/${jobs.done.id}`, '.uplot canvas'], [`#/jobs/${jobs.done.id}/ranks?metric=loss`, '.heat-canvas']]) {
    await goTo('healthz');
    await page.route('**/app-*.js', (route) => route.abort());
    const asked = [];
    const note = (request) => { asked.push(request.url()); };
    page.on('request', note);
    await goTo(where);
    const needed = [/v1\/whoami/, new RegExp(`v1/jobs/${jobs.done.id}$`), /\/metrics$/, /\/events\?order/, /metric=loss/];
    await until(() => needed.every((one) => asked.some((url) => one.test(url))), () => asked.join('\n'));
    await page.unroute('**/app-*.js');
    asked.length = 0;
    await goTo('healthz');
    await goTo(where);
    await page.waitForSelector(drawn);
    page.off('request', note);
    for (const one of needed.slice(0, 4)) assert.equal(asked.filter((url) => one.test(url)).length, 1, `${one}: ${asked.join('\n')}`);
    assert.equal(new Set(asked.filter((url) => /metric=loss/.test(url))).size, asked.filter((url) => /metric=loss/.test(url)).length, asked.join('\n'));
  }
});

test('a job is submitted by the form, and its loss is watched as it moves', async () => {
  await goTo('#/submit');
  await page.getByLabel('Name required').fill('by hand');
  await has(page, 'must match');
  assert.equal(await page.getByRole('button', {name: 'Submit', exact: true}).isDisabled(), true);
  await page.getByLabel('Name required').fill('by-hand');
  await page.getByLabel('Command').fill(`/usr/bin/python3 ${path.join(here, 'train.py')} good 4000 0.03`);
  await page.getByLabel('Ranks per node').fill('3');
  await page.getByLabel('Environment', {exact: true}).fill(`PYTHONPATH=${path.join(source, 'job/rank/python')}`);
  await has(page, '3 ranks');
  await has(page, 'good 4000 0.03');
  await page.getByRole('button', {name: 'Submit', exact: true}).click();
  await page.getByRole('heading', {name: 'by-hand'}).waitFor();
  jobs.hand = {id: page.url().match(/ls-[0-9A-Z]{26}/)[0]};
  const first = await until(stepNow, 'the loss is drawn');
  await until(async () => (await stepNow()) > first + 5, 'the loss moves by itself');
  const value = async () => Number((await readout('Loss').innerText()).match(/median ([\d.]+)/)[1]);
  const before_ = await value();
  await until(async () => (await value()) < before_, 'it falls');
});

test('a zoom is in the address, holds while steps come, and can be sent to somebody', async () => {
  const plot = page.locator('.plot').first();
  const box = await plot.boundingBox();
  await page.mouse.move(box.x + box.width * 0.4, box.y + 120);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.7, box.y + 130, {steps: 4});
  await page.mouse.up();
  await page.getByRole('button', {name: 'Reset zoom'}).waitFor();
  const zoomed = page.url();
  assert.match(zoomed, /zoom=[\d.]+%7E[\d.]+/);
  await page.getByRole('button', {name: 'log y'}).click();
  await page.getByLabel('Smoothing').fill('0.5');
  const link = page.url();
  assert.match(link, /logy=1/);
  assert.match(link, /smooth=0.5/);
  const other = await page.context().newPage();
  await other.goto(link);
  await other.getByRole('button', {name: 'Reset zoom'}).waitFor();
  assert.equal(await other.getByRole('button', {name: 'log y'}).getAttribute('aria-pressed'), 'true');
  assert.equal(await other.getByLabel('Smoothing').inputValue(), '0.5');
  assert.equal(other.url(), link);
  await other.close();
  await page.getByRole('button', {name: 'Reset zoom'}).click();
  assert.doesNotMatch(page.url(), /zoom=/);
  await plot.focus();
  await page.keyboard.press('Home');
  await until(async () => (await readout('Loss').innerText()).includes('step 1'), 'arrow keys read values');
});

test('of a failed job the culprit, its exception and traceback are seen at once', async () => {
  await daemon.waitFor(jobs.crash.id, (job) => job.state === 'failed', 'it fails');
  await goTo('#/jobs');
  await has(page, "KeyError: 'labels'");
  await goTo(`#/jobs/${jobs.crash.id}`);
  const banner = page.getByRole('region', {name: 'What broke'});
  await banner.getByRole('link', {name: 'Rank 1', exact: true}).waitFor();
  assert.match(await banner.innerText(), /KeyError: 'labels'[\s\S]*return batch\["labels"\]/);
  await banner.getByRole('button', {name: 'Whole traceback'}).click();
  assert.match(await banner.innerText(), /Traceback \(most recent call last\)/);
});

test('a rank that is killed is named with its signal, in the open tab', async () => {
  await daemon.waitFor(jobs.victim.id, (job) => (job.step ?? 0) > 3, 'it runs');
  await goTo(`#/jobs/${jobs.victim.id}`);
  await page.getByRole('heading', {name: 'victim'}).waitFor();
  const {items} = await daemon.api('GET', `v1/jobs/${jobs.victim.id}/ranks`);
  process.kill(items.find((rank) => rank.rank === 1).pid, 'SIGKILL');
  const banner = page.getByRole('region', {name: 'What broke'});
  await banner.getByRole('link', {name: 'Rank 1', exact: true}).waitFor();
  assert.match(await banner.innerText(), /signal 9/);
  await page.locator('.job-title').getByText('failed').waitFor();
});

test('logs come as they are printed; what they hold harms nothing', async () => {
  await goTo(`#/jobs/${jobs.hostile.id}/logs`);
  const log = page.getByRole('log');
  await log.getByText('progress 100%').waitFor();
  await until(async () => (await log.innerText()).includes('step 10/'), 'it is followed');
  const text = await log.innerText();
  assert.ok(text.includes('<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>'));
  assert.ok(text.includes('‹U+202E›gnp.exe'));
  assert.ok(text.includes('bell ␇ null ␀ escape red'));
  assert.ok(!text.includes('progress 10%'));
  assert.ok(text.length < 20_000, `100 kB in a line are not all in the page: ${text.length}`);
  assert.equal(await log.locator('img, script, b').count(), 0);
  assert.equal(await log.locator('.a-red').first().innerText(), 'red');
  assert.equal(await page.evaluate(() => window.harmed), undefined);
  // A label with markup and a direction override is text as well.
  await page.locator('.job-facts').getByText('<b>bold</b> ‹U+202E›gnp').waitFor();
  await page.getByLabel('Search the log').fill('step 1');
  await until(async () => (await log.locator('mark').count()) > 0, 'what was found is marked');
  await until(async () => !(await log.innerText()).includes('starts'), 'the rest is away');
});

test('a search over all ranks folds what they all printed', async () => {
  await goTo(`#/jobs/${jobs.slow.id}/logs?q=starts&all=1`);
  const found = page.getByRole('region', {name: 'In the logs of all ranks'});
  await found.getByText('rank 0-7').waitFor();
  assert.match(await found.innerText(), /8 ×/);
  await found.getByRole('link', {name: /rank 0 starts/}).click();
  await page.getByRole('log', {name: 'Log of rank 0'}).locator('mark').first().waitFor();
  // Whatever the case, as in the log of one rank, and as it stands where it is no regular expression.
  for (const [query, hits] of [['q=STARTS.', 0], ['q=STARTS,', 1], ['q=R.NK \\d ENDS&regex=1', 0], ['q=R.NK \\d STARTS&regex=1', 1]]) {
    await goTo(`#/jobs/${jobs.slow.id}/logs?${query.replaceAll(' ', '%20').replace('\\', '%5C')}&all=1`);
    await (hits ? found.getByText('rank 0-7') : found.getByText('No rank has printed that', {exact: true})).waitFor();
  }
  await goTo(`#/jobs/${jobs.slow.id}/rendezvous`);
  const {items} = await daemon.api('GET', `v1/jobs/${jobs.slow.id}/ranks`);
  await page.getByRole('row', {name: `${items[4].node} 4-7`}).waitFor();
});

test('a cancelled job is asked about once and says what happened', async () => {
  await goTo(`#/jobs/${jobs.hand.id}`);
  await page.getByRole('button', {name: 'Cancel', exact: true}).click();
  await page.getByRole('button', {name: 'Leave it'}).click();
  assert.equal((await daemon.job(jobs.hand.id)).cancel_requested_at, undefined);
  await page.getByRole('button', {name: 'Cancel', exact: true}).click();
  await page.getByRole('dialog').getByRole('button', {name: 'Cancel', exact: true}).click();
  await has(page, 'The job is being ended');
  await page.locator('.job-title').getByText('cancelled').waitFor();
  await page.getByRole('button', {name: 'Cancel', exact: true}).waitFor({state: 'detached'});
  await page.locator('.banner').getByText(/^cancelled by /).waitFor();
});

test('a user sees own jobs only, a viewer acts on none', async () => {
  const [ada, eve] = await Promise.all([['ada', 'user'], ['eve', 'viewer']].map(([user, role]) => daemon.api('POST', 'v1/tokens', {name: 'test', user, role})));
  const own = await daemon.submit('of-ada', 'good', {steps: 2000, pace: 0.1, perNode: 1, token: ada.token});
  const tab = await browser.tab();
  await signIn(tab, daemon, ada.token);
  await has(tab, 'of-ada');
  assert.equal(await tab.getByText('slow-rank').count(), 0);
  await tab.goto(`${daemon.url}#/jobs/${jobs.slow.id}`);
  await has(tab, 'not yours to see');
  await tab.goto(`${daemon.url}#/jobs/${own.id}`);
  await tab.getByRole('button', {name: 'Cancel', exact: true}).waitFor();
  await tab.context().close();
  const watching = await browser.tab();
  await signIn(watching, daemon, eve.token, `#/jobs/${own.id}`);
  await watching.getByRole('heading', {name: 'of-ada'}).waitFor();
  for (const name of ['Cancel', 'Restart', 'Checkpoint', 'Evidence']) assert.equal(await watching.getByRole('button', {name, exact: true}).count(), 0);
  assert.equal(await watching.getByRole('link', {name: 'Submit', exact: true}).count(), 0);
  await watching.context().close();
});

test('from the form to a rank without a mouse', async () => {
  await goTo('#/jobs');
  await has(page, 'slow-rank');
  await page.keyboard.press('n');
  await page.getByLabel('Name required').focus();
  await page.keyboard.type('by-keys');
  for (let i = 0; i < 2; i++) await page.keyboard.press('Tab');
  await page.keyboard.type(`/usr/bin/python3 ${path.join(here, 'train.py')} good 2000 0.05`);
  await page.getByLabel('Environment', {exact: true}).focus();
  await page.keyboard.type(`PYTHONPATH=${path.join(source, 'job/rank/python')}`);
  await page.getByRole('button', {name: 'Submit', exact: true, disabled: false}).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', {name: 'by-keys'}).waitFor();
  await page.waitForSelector('.tiles');
  await page.locator('main').focus();
  await page.keyboard.press('r');
  await page.locator('tr.goes .row-link').first().waitFor();
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', {name: 'Rank 0', exact: true}).waitFor();
  await page.keyboard.press('Control+k');
  // Every page of the job that is open, as in its row of them.
  const pages = await page.locator('.tabs a').allInnerTexts();
  const offered = page.getByRole('option', {name: /of this job/});
  await offered.first().waitFor();
  assert.deepEqual((await offered.locator('bdi:first-child').allInnerTexts()).filter((one) => !/^of/.test(one)), pages);
  await page.keyboard.type('all-well');
  await page.getByRole('option', {name: /all-well/}).waitFor();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', {name: 'all-well'}).waitFor();
});

test('the slow rank is named on the first page and on its job', async () => {
  await daemon.waitFor(jobs.slow.id, (job) => job.anomalies?.straggler, 'a straggler is seen', 60);
  await goTo('#/jobs');
  await page.getByRole('region', {name: 'Needs a look'}).getByRole('link', {name: 'rank 3'}).waitFor();
  await goTo(`#/jobs/${jobs.slow.id}`);
  const tile = page.getByRole('link', {name: /Who is slow\?/});
  await until(async () => /rank 3\s*on/.test(await tile.innerText()), async () => tile.innerText());
  await tile.click();
  await page.getByRole('heading', {name: 'Rank 3', exact: true}).waitFor();
  await has(page, /× the median of all/);
  await goTo(`#/jobs/${jobs.slow.id}/ranks?order=worst`);
  const heat = page.locator('.heat-canvas');
  await heat.waitFor();
  // The highest row is on top: it is rank 3's, and a click there opens it.
  await heat.click({position: {x: 300, y: 5}});
  await page.getByRole('heading', {name: 'Rank 3', exact: true}).waitFor();
});

const kPages = () => ({
  jobs: '#/jobs', queue: '#/queue', nodes: '#/nodes', system: '#/system', submit: '#/submit', compare: `#/compare?jobs=${jobs.done.id},${jobs.slow.id}`, overview: `#/jobs/${jobs.slow.id}`,
  failed: `#/jobs/${jobs.crash.id}`, ranks: `#/jobs/${jobs.slow.id}/ranks`, rank: `#/jobs/${jobs.slow.id}/ranks/3`, gpus: `#/jobs/${jobs.slow.id}/gpus`, rendezvous: `#/jobs/${jobs.slow.id}/rendezvous`, logs: `#/jobs/${jobs.hostile.id}/logs`,
  events: `#/jobs/${jobs.slow.id}/events`, evidence: `#/jobs/${jobs.slow.id}/evidence`, profiles: `#/jobs/${jobs.slow.id}/profiles`, config: `#/jobs/${jobs.slow.id}/config`, again: `#/submit?from=${jobs.slow.id}`,
});

/** The page stands: nothing is on its way any more. */
const settled = async (tab) => {
  await tab.waitForSelector('main h1, main h2');
  await until(async () => (await tab.locator('.loading').count()) === 0, 'nothing loads any more');
};

test('axe finds nothing on any page, light and dark', async () => {
  await daemon.api('POST', `v1/jobs/${jobs.slow.id}/evidence`);
  await until(async () => (await daemon.api('GET', `v1/jobs/${jobs.slow.id}/evidence`)).items.length > 0, 'there is evidence');
  await daemon.api('POST', `v1/jobs/${jobs.slow.id}/profiles`, {ranks: '3', seconds: 1});
  await until(async () => (await daemon.api('GET', `v1/jobs/${jobs.slow.id}/profiles`)).items.length > 0, 'there is a profile');
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({colorScheme});
    for (const [name, where] of Object.entries(kPages())) {
      await goTo(where);
      await settled(page);
      await browser.axe(page, `${name}, ${colorScheme}`);
    }
  }
  await page.emulateMedia({colorScheme: 'light'});
  const tab = await browser.tab();
  await tab.goto(daemon.url);
  await tab.waitForSelector('#token');
  await browser.axe(tab, 'sign in');
  await tab.context().close();
});

test('to a screen reader everything has a name, every chart a table, and what changes is told', async () => {
  const wrong = [];
  for (const [name, where] of Object.entries(kPages())) {
    await goTo(where);
    await settled(page);
    wrong.push(...(await Tree.of(page)).wrong().map((what) => `${name}: ${what}`));
  }
  assert.deepEqual(wrong, []);
  // Arrow keys on a chart: its values are spoken.
  await goTo(`#/jobs/${jobs.done.id}`);
  await page.locator('.plot canvas').first().waitFor();
  const spoken = async (pattern) => until(async () => {
    const tree = await Tree.of(page);
    return tree.live().some((node) => pattern.test(tree.text(node)));
  }, async () => { const tree = await Tree.of(page); return `${pattern} is told: ${tree.live().map((node) => tree.text(node)).join(' | ')}`; });
  await page.locator('.plot').first().focus();
  await page.keyboard.press('Home');
  await spoken(/^step 1: median 2\.\d+/);
  // Every chart's table, by its name, with a header for each column and row.
  for (const button of await page.getByRole('button', {name: /: table, files and commands$/}).all()) {
    const title = (await button.getAttribute('aria-label')).replace(/: table.*/, '');
    await button.click();
    await page.getByRole('menuitem', {name: 'Table'}).click();
    const tree = await Tree.of(page);
    const table = tree.all('table').find((node) => tree.name(node) === title);
    assert.ok(table, `${title} has a table: ${tree.all('table').map(tree.name)}`);
    assert.ok(tree.all('columnheader', table).length > 1 && tree.all('rowheader', table).length > 10, title);
  }
  // The heatmap reads its cells; the table below has every rank.
  await goTo(`#/jobs/${jobs.slow.id}/ranks`);
  await page.locator('.heat-canvas').focus();
  await page.keyboard.press('ArrowLeft');
  await spoken(/^rank \d( on \S+)?, step [\d\u2009]+: /);
  await page.getByRole('table', {name: 'Ranks'}).waitFor();
  // What was done is told.
  await goTo(`#/jobs/${jobs.done.id}`);
  await page.getByRole('button', {name: 'Loss: table, files and commands'}).click();
  await page.getByRole('menuitem', {name: 'Copy command'}).click();
  await spoken(/^(Copied: lockstep series|This browser does not let)/);
  // Dialogs and the palette.
  await page.keyboard.press('Control+k');
  await page.getByRole('dialog').waitFor();
  const tree = await Tree.of(page);
  assert.deepEqual(tree.all('dialog').map(tree.name), ['Go to']);
  assert.ok(tree.all('option').every((node) => tree.name(node)), 'options have names');
  await page.keyboard.press('Escape');
});

test('who works by keys goes on at the button that opened a menu or a dialog', async () => {
  await goTo(`#/jobs/${jobs.slow.id}`);
  const here = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent);
  const isBack = (name) => until(async () => (await here()) === name, async () => `${name}, not ${await here()}`);
  const menu = 'Loss: table, files and commands';
  await page.getByRole('button', {name: menu}).focus();
  for (const key of ['Escape', 'Enter']) {
    await page.keyboard.press('Enter');
    await page.getByRole('menuitem', {name: 'Table'}).waitFor();
    await page.keyboard.press(key);
    await isBack(menu);
  }
  await page.keyboard.press('Control+k');
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  await isBack(menu);
  await page.getByRole('button', {name: 'Cancel', exact: true}).focus();
  for (const leave of ['Leave it', undefined]) {
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    if (leave) await page.getByRole('button', {name: leave}).click();
    else await page.keyboard.press('Escape');
    await isBack('Cancel');
  }
});

test('on a phone nothing is wider than the screen', async () => {
  await page.setViewportSize({width: 390, height: 844});
  for (const [name, where] of Object.entries(kPages())) {
    await goTo(where);
    await settled(page);
    const [wide, seen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= seen, `${name}: ${wide} of ${seen} px`);
  }
  await page.setViewportSize({width: 1440, height: 900});
});

test('every chart has a table in its place', async () => {
  await goTo(`#/jobs/${jobs.done.id}`);
  await page.getByRole('button', {name: 'Loss: table, files and commands'}).click();
  await page.getByRole('menuitem', {name: 'Table'}).click();
  const rows = page.getByRole('region', {name: 'Loss, values'}).locator('tbody tr');
  await until(async () => (await rows.count()) === 60, async () => `${await rows.count()} rows of 60 steps`);
  await page.getByRole('button', {name: 'Loss: table, files and commands'}).click();
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('menuitem', {name: 'CSV'}).click()]);
  const csv = fs.readFileSync(await file.path(), 'utf8').trim().split('\r\n');
  assert.equal(csv.length, 61);
  assert.match(csv[0], /^step,median/);
});

test('lockstepd goes and comes back under an open tab', async () => {
  await goTo(`#/jobs/${jobs.slow.id}`);
  const first = await until(stepNow, 'the loss is drawn');
  await daemon.kill9();
  await page.getByRole('alert').getByText('lockstepd does not answer').waitFor();
  await daemon.start();
  await page.getByRole('alert').getByText('lockstepd does not answer').waitFor({state: 'detached'});
  await page.locator('.live-on').waitFor();
  // The same sign-in, the same job, and no gap: its steps go on.
  await until(async () => (await stepNow()) > first + 20, async () => `steps go on after ${first}: ${await readout('Loss').innerText()}`, 30);
  assert.equal(await page.getByRole('heading', {name: 'slow-rank'}).count(), 1);
});

test('screenshots of every page', {skip: process.env.LOCKSTEP_WEB_SHOTS ? false : 'set LOCKSTEP_WEB_SHOTS=DIR to have them'}, async () => {
  const folder = process.env.LOCKSTEP_WEB_SHOTS;
  fs.mkdirSync(folder, {recursive: true});
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({colorScheme});
    for (const width of [1440, 390]) {
      for (const [name, where] of Object.entries(kPages())) {
        await page.setViewportSize({width, height: 900});
        await goTo(where);
        await settled(page);
        const height = await page.evaluate(() => document.documentElement.scrollHeight);
        await page.setViewportSize({width, height: Math.max(900, Math.min(3000, height))});
        await until(async () => (await page.locator('.plot').evaluateAll((all) => all.every((one) => one.querySelector('canvas, .plot-empty')))), 'charts are drawn');
        await page.screenshot({path: path.join(folder, `${name}-${colorScheme}-${width}.png`)});
      }
    }
  }
});

test('no page broke the content policy, asked another host or threw', () => {
  assert.deepEqual(browser.violations, []);
  assert.deepEqual(browser.errors, []);
});
