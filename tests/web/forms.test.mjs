// What is typed, ticked and scrolled on the page, and what becomes of it when an answer is lost or late, the page is left or another
// person signs in.
import assert from 'node:assert/strict';
import os from 'node:os';
import {after, before, test} from 'node:test';
import {Browser, Daemon, has, signIn, until} from './support.mjs';

const daemon = new Daemon();
const browser = new Browser();
let page;

before(async () => {
  await daemon.start();
  await browser.start();
  page = await browser.tab();
  await signIn(page, daemon);
});
after(async () => {
  await browser.close();
  await daemon.cleanUp();
});
const shot = async (name, of = page) => process.env.LOCKSTEP_WEB_SHOTS && of.screenshot({path: `${process.env.LOCKSTEP_WEB_SHOTS}/${name}.png`, fullPage: true});
const goTo = async (where, of = page) => of.goto(daemon.url + where);
const submit = (of) => of.getByRole('button', {name: 'Submit', exact: true});
const called = async (name) => (await daemon.api('GET', `v1/jobs?name=${name}`)).items;
const isJobs = (url) => url.pathname.endsWith('/v1/jobs');

test('a submission whose answer was lost is the same one when it is sent again, also after a reload', async () => {
  let lost = 0;
  await page.route(isJobs, async (route) => {
    if (route.request().method() !== 'POST' || lost === 2) return route.fallback();
    assert.equal((await route.fetch()).status(), 201);
    return lost++ === 0 ? route.abort() : route.fulfill({status: 502, contentType: 'text/html', body: '<h1>Bad gateway</h1>'});
  });
  await goTo('#/submit');
  await page.getByLabel('Name required').fill('lost-answer');
  await page.getByLabel('Command', {exact: true}).fill('sleep 1000');
  await submit(page).click();
  await has(page, 'Submit it again: it is not started twice');
  assert.equal(lost, 1);
  await shot('submit-lost');
  await browser.axe(page, 'a submission without an answer');
  await submit(page).click();
  await until(() => lost === 2, 'a proxy answers instead');
  await has(page, 'Submit it again: it is not started twice');
  await submit(page).click();
  await page.getByRole('heading', {name: 'lost-answer'}).waitFor();
  await page.unroute(isJobs);
  assert.equal((await called('lost-answer')).length, 1);
  // What has been taken may be wanted once more.
  await goTo('#/submit?as=text');
  await page.locator('#text').fill('{"name": "lost-answer", "framework": "command", "command": ["sleep", "1000"]}');
  await submit(page).click();
  await page.getByRole('heading', {name: 'lost-answer'}).waitFor();
  assert.equal((await called('lost-answer')).length, 2);
});

test('a check that failed on its way is made again', async () => {
  const isCheck = (url) => url.pathname.endsWith('/v1/jobs/render');
  let checks = 0;
  await page.route(isCheck, (route) => (route.request().postData().includes('checked') && checks++ === 0 ? route.fulfill({status: 502, contentType: 'text/html', body: '<h1>Bad gateway</h1>'}) : route.fallback()));
  await goTo('#/submit?as=text');
  await page.locator('#text').fill('{"name": "checked", "framework": "command", "command": ["true"]}');
  await until(() => submit(page).isEnabled(), 'it may be submitted, without another letter');
  assert.equal(checks, 2);
  await page.unroute(isCheck);
});

test('changes of a job are there again after another page and a reload, and for nobody else', async () => {
  const {token} = await daemon.api('POST', 'v1/tokens', {name: 'test', user: 'ada', role: 'user'});
  const tab = await browser.tab();
  await signIn(tab, daemon, token);
  await goTo('#/submit?as=text', tab);
  await tab.locator('#text').fill('{"name": "of-ada", "framework": "command", "command": ["true"]}');
  await daemon.api('POST', 'v1/jobs', {name: 'to-change', framework: 'command', command: ['sleep', '1000']}, token);
  const [{id}] = await called('to-change');
  await goTo(`#/submit?from=${id}`, tab);
  await tab.getByLabel('Command', {exact: true}).fill('sleep 2000');
  await has(tab, 'Different from the job it was');
  await shot('submit-again', tab);
  await goTo('#/jobs', tab);
  await tab.getByRole('table').waitFor();
  await tab.goBack();
  const command = async () => tab.getByLabel('Command', {exact: true}).inputValue();
  await until(async () => (await command()) === 'sleep 2000', command);
  await tab.reload();
  await until(async () => (await command()) === 'sleep 2000', command);
  await has(tab, 'Different from the job it was');
  await tab.getByRole('button', {name: 'Start over'}).click();
  await until(async () => (await command()) === 'sleep 1000', command);
  await goTo('#/submit?as=text', tab);
  await until(async () => (await tab.locator('#text').inputValue()).includes('of-ada'), 'the other draft is there');
  await tab.getByRole('button', {name: 'ada', exact: true}).click();
  await tab.getByRole('menuitem', {name: 'Sign out'}).click();
  await tab.fill('#token', daemon.token);
  await tab.click('button[type=submit]');
  await tab.getByRole('heading', {name: 'Submit a job'}).waitFor();
  assert.doesNotMatch(await tab.locator('#text').inputValue(), /of-ada/);
  assert.equal(await tab.evaluate(() => JSON.stringify({...sessionStorage}).includes('of-ada')), false);
  await tab.context().close();
});

test('numbers are typed letter by letter, and the text is as it was typed after a look at the form', async () => {
  const written = '# how fast it learns\nname: typed\nframework: native\ntrain: {epochs: 1}\n';
  await goTo('#/submit?as=yaml');
  await page.locator('#text').fill(written);
  const view = (name) => page.getByRole('button', {name, exact: true}).click();
  await view('Form');
  const rate = page.getByLabel('Learning rate', {exact: true});
  await rate.waitFor();
  await view('YAML');
  await until(async () => (await page.locator('#text').inputValue()) === written, 'it is as it was typed');
  await view('JSON');
  await view('YAML');
  await until(async () => (await page.locator('#text').inputValue()) === written, 'it is as it was typed, after JSON too');
  await view('Form');
  for (const [letters, shown] of [['1e-4', '0.0001'], ['0.00025', '0.00025'], ['-1.', '-1']]) {
    await rate.fill('');
    await rate.pressSequentially(letters);
    assert.equal(await rate.inputValue(), letters);
    await rate.blur();
    assert.equal(await rate.inputValue(), shown);
  }
  // A group whose last value is taken away to type another one does not close.
  const spares = page.getByLabel('Max restarts');
  await page.getByText('Recovery', {exact: true}).click();
  await spares.pressSequentially('3');
  await spares.press('Backspace');
  await spares.pressSequentially('4');
  assert.equal(await spares.inputValue(), '4');
  await rate.fill('1e-');
  await page.locator('.field-bad', {has: rate}).getByText('must be').waitFor();
  await shot('submit-number');
  await rate.fill('1e-4');
  await view('JSON');
  await until(async () => JSON.parse(await page.locator('#text').inputValue()).train.learning_rate === 1e-4, 'it is a number');
});

test('a sweep is submitted by the form, with the number of its jobs before, and seen and cancelled after', async () => {
  await goTo('#/jobs');
  await goTo('#/submit');
  await page.getByRole('button', {name: 'Start over'}).click();
  await page.getByLabel('Name required').fill('swept');
  await page.getByLabel('Command', {exact: true}).fill('sleep {seconds}');
  await page.getByText('Sweep', {exact: true}).click();
  const parameters = page.getByLabel('Parameters', {exact: true});
  await parameters.fill('seconds=');
  await page.locator('.field-bad', {has: parameters}).waitFor();
  await parameters.fill('seconds=1000..1002\nlabels.try=a,b');
  await page.getByLabel('Max parallel').fill('1');
  await has(page, '6 jobs', {exact: true});
  await has(page, 'seconds=1000 labels.try=a');
  await shot('submit-sweep');
  await browser.axe(page, 'a sweep');
  await page.getByRole('button', {name: 'Submit 6 jobs'}).click();
  await page.getByRole('button', {name: 'one sweep ✕'}).waitFor();
  for (const [i, text] of ['seconds=1000 labels.try=a', 'seconds=1002 labels.try=b'].entries()) await page.getByRole('row', {name: new RegExp(`swept ${i ? 6 : 1}/6`)}).getByText(text).waitFor();
  assert.equal((await called('swept')).length, 6);
  await shot('sweep');
  await browser.axe(page, 'the jobs of a sweep');
  await page.getByRole('link', {name: 'swept'}).first().click();
  await page.getByRole('link', {name: /of 6 of a sweep$/}).click();
  await page.getByRole('button', {name: 'Cancel the sweep'}).click();
  await page.getByRole('dialog').getByRole('button', {name: 'Cancel the sweep'}).click();
  await until(async () => (await called('swept')).every((job) => job.state === 'cancelled'), 'all are cancelled');
  await until(async () => (await page.getByRole('button', {name: 'Cancel the sweep'}).count()) === 0, 'there is nothing left to cancel');
  // They share a name: what is different is beside it.
  await goTo(`#/compare?jobs=${(await called('swept')).map((job) => job.id).slice(0, 2)}`);
  for (const value of ['a', 'b']) await has(page, new RegExp(`^swept seconds=\\d+ labels\\.try=${value}$`));
});

test('the list is as it was on the way back from a job, and as long behind a copied address', async () => {
  const first = await daemon.api('POST', 'v1/jobs', {name: 'many', framework: 'command', command: ['sleep', '1000'], sweep: {parameters: {'labels.try': Array.from({length: 60}, (_, i) => `${i}`)}, max_parallel: 1}});
  await goTo('#/jobs?name=many');
  const rows = page.locator('tbody tr');
  await until(async () => (await rows.count()) === 50, 'the newest jobs');
  await page.getByRole('button', {name: 'Earlier jobs'}).click();
  await until(async () => (await rows.count()) === 60, 'all of them');
  assert.match(page.url(), /pages=2/);
  for (const n of [52, 54]) await rows.nth(n).getByRole('checkbox').check();
  await page.getByRole('link', {name: 'Compare 2'}).waitFor();
  await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight * 0.6));
  const y = await page.evaluate(() => scrollY);
  assert.ok(y > 500, `${y}`);
  await rows.nth(40).locator('a.row-link').evaluate((link) => link.click());
  await page.getByRole('heading', {name: 'many'}).waitFor();
  const same = async () => (await rows.count()) === 60 && Math.abs(await page.evaluate(() => scrollY) - y) < 30;  // less than a row
  const where = async () => `${await rows.count()} rows, ${await page.evaluate(() => scrollY)} of ${y}`;
  await page.goBack();
  await until(same, where);
  await page.getByRole('link', {name: 'Compare 2'}).waitFor();
  assert.equal(await rows.nth(52).getByRole('checkbox').isChecked(), true);
  await page.reload();
  await until(same, where);
  await page.getByRole('link', {name: 'Compare 2'}).waitFor();
  const copied = await browser.beside(page);
  await copied.goto(page.url());
  await until(async () => (await copied.locator('tbody tr').count()) === 60, 'as many rows in another tab');
  assert.equal(await copied.getByRole('link', {name: 'Compare 2'}).count(), 0);
  await copied.close();
  await daemon.api('POST', `v1/sweeps/${first.id}/cancel`);
});

test('words find a job that is none of the newest, in the list and in "Go to"', async () => {
  // The seventh of the sixty before: the list shows the newest fifty.
  await goTo('#/jobs');
  const rows = page.locator('tbody tr');
  await until(async () => (await rows.count()) === 50, 'the newest jobs');
  await page.getByLabel('Find jobs').fill('MANY try:7');
  await until(async () => (await rows.count()) === 1, 'the one that is meant');
  await rows.getByText('try:7', {exact: true}).waitFor();
  await shot('found');
  await page.getByLabel('Find jobs').fill('many nowhere');
  await has(page, 'No job is like that');
  await page.keyboard.press('Control+k');
  await page.getByRole('dialog').getByRole('combobox').fill('many try:7');
  await page.getByRole('option', {name: 'many'}).waitFor();
  assert.equal(await page.getByRole('option').count(), 1);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', {name: 'many'}).waitFor();
  const job = await daemon.api('GET', `v1/jobs/${page.url().match(/ls-\w+/)[0]}`);
  assert.equal(job.labels.try, '7');
});

test('Enter in "Go to" before lockstepd has answered goes there once it has', async () => {
  await daemon.api('POST', 'v1/jobs', {name: 'go-here', framework: 'command', command: ['true']});
  await goTo('#/queue');
  let answer;
  const wait = new Promise((resolve) => { answer = resolve; });
  const isList = (url) => isJobs(url) && url.searchParams.get('fields') === 'id,name,user,state';
  await page.route(isList, async (route) => {
    await wait;
    await route.fallback();
  });
  await page.keyboard.press('Control+k');
  await page.getByRole('dialog').getByRole('combobox').fill('go-here');
  await page.keyboard.press('Enter');
  await has(page, 'Goes there once lockstepd has answered');
  answer();
  await page.getByRole('heading', {name: 'go-here'}).waitFor();
  await page.unroute(isList);
});

test('keys that come before a dialog or a menu is drawn are meant for it', async () => {
  const tab = await browser.tab({late: 400});
  await signIn(tab, daemon);
  await tab.getByRole('link', {name: 'go-here'}).waitFor();
  await tab.keyboard.press('Control+k');
  await tab.keyboard.type('n');  // on the page it is "submit a job"
  assert.equal(await tab.getByRole('dialog').getByRole('combobox').inputValue(), 'n');
  assert.match(tab.url(), /#\/jobs$/);
  await tab.keyboard.press('Escape');
  await tab.getByRole('dialog').waitFor({state: 'detached'});
  const menu = tab.getByRole('button', {name: new RegExp(`^${os.userInfo().username}`)});
  await menu.focus();
  await tab.keyboard.press('Enter');
  await tab.keyboard.press('Escape');
  assert.equal(await tab.getByRole('menuitem').count(), 0);
  await tab.context().close();
});

test('no page broke a rule', () => {
  assert.deepEqual(browser.violations, []);
  assert.deepEqual(browser.errors, []);
});
