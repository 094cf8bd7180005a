// What a page shows in another way: specifications in YAML, steps counted in samples, folded charts, links to Grafana, the
// GPUs' history; and what was found by looking at every page.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {after, before, test} from 'node:test';
import {bin, Browser, Daemon, has, signIn, source, until} from './support.mjs';

// The agents open this for NVIDIA's library: FAKE_NVML names a script of what the driver says.
const nvml = path.join(bin, '../tests/fake_nvml/new');
const script = path.join(os.tmpdir(), `fake-nvml-${process.pid}`);
const drive = (...lines) => {
  fs.writeFileSync(`${script}.new`, `${['gpu * utilization 50', ...lines].join('\n')}\n`);
  fs.renameSync(`${script}.new`, script);
};

const daemon = new Daemon('--grafana-url', 'https://grafana.example/base');
const browser = new Browser();
let page;
let job;

before(async () => {
  drive();
  Object.assign(process.env, {LD_LIBRARY_PATH: nvml, FAKE_NVML: script});
  await daemon.start();
  delete process.env.LD_LIBRARY_PATH;
  await browser.start();
  job = await daemon.submit('counted', 'good', {steps: 100_000, pace: 0.05});
  page = await browser.tab();
  await signIn(page, daemon);
});
after(async () => {
  await browser.close();
  await daemon.cleanUp();
  fs.rmSync(script, {force: true});
});
const figure = (of) => page.locator('figure', {has: page.getByRole('heading', {name: of, exact: true})});
const shot = async (name, of = page) => process.env.LOCKSTEP_WEB_SHOTS && of.screenshot({path: `${process.env.LOCKSTEP_WEB_SHOTS}/${name}.png`, fullPage: true});

test('a specification is written in YAML, checked and submitted', async () => {
  await page.goto(`${daemon.url}#/submit`);
  // The daemon of the tests has --shared-account.
  await has(page, `Jobs of all users run as ${os.userInfo().username} here`);
  await page.getByLabel('Name required').fill('in-yaml');
  await page.getByRole('button', {name: 'YAML', exact: true}).click();
  const text = page.getByLabel(/^Specification, as/);
  await until(async () => (await text.inputValue()).startsWith('name: in-yaml\n'), 'what was typed is there as YAML');
  await text.fill('name: in-yaml\nframework: command\n# a number that is text\ncommand: [sleep, 1000]\nenvironment:\n  DEPTH: 3\nresources: {nodes: 1, time_limit: 01:00:00');
  await page.getByRole('alert').waitFor();
  assert.match(await page.getByRole('alert').innerText(), /line 7/);
  await text.fill('name: in-yaml\nframework: command\n# a number that is text\ncommand: [sleep, 1000]\nenvironment:\n  DEPTH: 3\nresources: {nodes: 1, time_limit: 01:00:00}\n');
  await has(page, 'sleep 1000');
  await shot('submit-yaml');
  await browser.axe(page, 'submit in YAML');
  // The form and JSON say the same.
  await page.getByRole('button', {name: 'Form', exact: true}).click();
  assert.equal(await page.getByLabel('Time limit').inputValue(), '01:00:00');
  await page.getByRole('button', {name: 'JSON', exact: true}).click();
  await until(async () => (await text.inputValue()).startsWith('{'), 'it is JSON');
  assert.equal(JSON.parse(await text.inputValue()).environment.DEPTH, '3');
  await page.getByRole('button', {name: 'YAML', exact: true}).click();
  await until(async () => (await text.inputValue()).includes('# a number that is text'), 'it is YAML again, as it was typed');
  await page.getByRole('button', {name: 'Submit', exact: true}).click();
  await page.getByRole('heading', {name: 'in-yaml'}).waitFor();
  const id = page.url().match(/ls-[0-9A-Z]{26}/)[0];
  assert.deepEqual((await daemon.api('GET', `v1/jobs/${id}/spec`)).command, ['sleep', '1000']);
  await daemon.api('POST', `v1/jobs/${id}/cancel`);
});

test('where submissions are signed the page says how to hand one in, and does not', async () => {
  const tab = await browser.tab();
  await signIn(tab, daemon);
  await tab.route('**/v1/whoami', async (route) => {
    const answer = await route.fetch();
    await route.fulfill({response: answer, json: {...await answer.json(), identity: 'lockstep-exec', signing: {audience: 'a', gres: false}}});
  });
  await tab.goto(`${daemon.url}#/submit`);
  await tab.reload();
  await has(tab, 'Submissions are signed on this cluster');
  await tab.getByLabel('Name required').fill('unsigned');
  await tab.getByLabel('Command').fill('sleep 1');
  // What is to be done about the specification is done: it is disabled for nothing else.
  await tab.getByRole('heading', {name: 'Each rank runs'}).waitFor();
  assert.equal(await tab.getByRole('button', {name: 'Submit', exact: true}).isDisabled(), true);
  await shot('submit-signed', tab);
  await browser.axe(tab, 'submit where submissions are signed');
  await tab.close();
});

test('steps are counted in samples', async () => {
  await daemon.waitFor(job.id, (one) => (one.step ?? 0) > 20, 'it runs');
  await page.goto(`${daemon.url}#/jobs/${job.id}`);
  await page.getByRole('button', {name: 'Samples', exact: true}).click();
  assert.match(page.url(), /x=samples/);
  // Two ranks of 32 each: 64 a step.
  const seen = async () => Number((await figure('Loss').locator('.readout-x').innerText()).match(/^([\d\u2009]+) samples$/)?.[1].replace(/\u2009/g, '') ?? 0);
  const first = await until(seen, 'the axis has samples');
  assert.equal(first % 64, 0);
  await until(async () => (await seen()) > first, 'it goes on');
  const box = await figure('Loss').locator('.plot').boundingBox();
  await page.mouse.move(box.x + box.width * 0.4, box.y + 120);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.7, box.y + 130, {steps: 4});
  await page.mouse.up();
  await page.getByRole('button', {name: 'Reset zoom'}).waitFor();
  const [low, high] = decodeURIComponent(page.url()).match(/zoom=([\d.]+)~([\d.]+)/).slice(1).map(Number);
  await until(async () => {
    await page.mouse.move(box.x + box.width * 0.5, box.y + 100);
    await page.mouse.move(box.x + box.width * 0.5, box.y + 110);
    const at = await seen();
    return at >= low * 0.97 && at <= high * 1.03;
  }, async () => `between the ends of the zoom: ${await figure('Loss').locator('.readout').innerText()}, ${page.url()}`);
  await shot('samples');
  await page.getByRole('button', {name: 'Reset zoom'}).click();
  await page.getByRole('button', {name: 'Step', exact: true}).click();
});

test('a folded chart stays folded, and comes back', async () => {
  await page.getByRole('button', {name: 'Fold Step time'}).click();
  await until(() => figure('Step time').locator('.plot').isHidden(), 'it is folded');
  await page.reload();
  await page.getByRole('button', {name: 'Unfold Step time'}).waitFor();
  assert.equal(await figure('Step time').locator('canvas').count(), 0);
  await shot('folded');
  await browser.axe(page, 'a folded chart');
  await page.getByRole('button', {name: 'Unfold Step time'}).click();
  await until(async () => (await figure('Step time').locator('canvas').boundingBox())?.width > 100, 'it is drawn');
});

test('jobs and ranks have their dashboards', async () => {
  const link = (name) => page.getByRole('link', {name, exact: true});
  assert.match(await link('Open in Grafana').getAttribute('href'), new RegExp(`^https://grafana\\.example/base/d/lockstep-job\\?var-job_id=${job.id}&from=\\d{13}&to=now$`));
  await page.goto(`${daemon.url}#/jobs/${job.id}/ranks/1`);
  await page.getByRole('heading', {name: 'Rank 1'}).waitFor();
  assert.match(await link('Rank 1 in Grafana').getAttribute('href'), /lockstep-rank\?.*var-rank=1&var-node=/);
});

test('what the GPUs did is drawn while the job runs and after its end', async (t) => {
  if (!fs.existsSync(path.join(nvml, 'libnvidia-ml.so.1'))) {
    t.skip('the fake driver is not built: target fake_nvml_new');
    return;
  }
  const ranks = await until(async () => {
    const {items} = await daemon.api('GET', `v1/jobs/${job.id}/ranks`);
    return items.every((one) => one.pid) && items;
  }, 'ranks have processes');
  const processes = ranks.map((one) => `gpu ${one.rank} process ${one.pid} 1000`);
  drive(...processes);
  await until(async () => (await daemon.api('GET', `v1/jobs/${job.id}/gpus`)).items.filter((one) => one.ranks.length).length === 2, 'the GPUs of both ranks are known');
  await page.goto(`${daemon.url}#/jobs/${job.id}/gpus`);
  await page.getByRole('button', {name: 'Since start'}).click();
  const use = figure('GPU utilization').locator('.readout');
  await until(async () => /GPU 0 50\.0 %/.test(await use.innerText()), async () => `the history: ${await use.innerText()}`);
  drive(...processes, 'gpu 1 utilization 7');
  // The lowest is the worst, and named.
  await until(async () => /GPU 1 7\.0 %/.test(await use.innerText()), async () => `the idle GPU is named: ${await use.innerText()}`);
  await shot('gpus');
  await browser.axe(page, 'GPUs');
  await page.goto(`${daemon.url}#/jobs/${job.id}/ranks/1`);
  await until(async () => /GPU 1 7\.0 %/.test(await use.innerText()), 'the GPU of rank 1 beside all');
  await shot('rank-gpus');
  await daemon.api('POST', `v1/jobs/${job.id}/cancel`);
  await daemon.waitFor(job.id, (one) => one.state === 'cancelled', 'it is over');
  await page.goto(`${daemon.url}#/jobs/${job.id}/gpus?x=time`);
  await page.reload();
  await has(page, 'cancelled');
  await until(async () => /GPU 1 7\.0 %/.test(await use.innerText()), async () => `the history stays: ${await use.innerText()}`);
  await page.emulateMedia({colorScheme: 'dark'});
  await shot('gpus-over-dark');
});

test('the range that is selected is the one under the mouse, though the chart grows meanwhile', async () => {
  const {id} = await daemon.api('POST', 'v1/jobs', {name: 'drawn', framework: 'command', command: ['/bin/sleep', '100000'], resources: {nodes: 1}});
  await daemon.waitFor(id, (one) => one.state === 'running', 'it runs');
  let x = Array.from({length: 101}, (_, i) => i);
  const tab = await browser.tab();  // of its own: a clock is one of all tabs of a person
  await tab.clock.install();
  await tab.route(new RegExp(`${id}/metrics`), (route) => route.fulfill({json: {items: ['loss']}}));
  await tab.route(new RegExp(`${id}/series`), (route) => route.fulfill({json: {metric: 'loss', x: 'step', series: [], bands: {x, min: x, p5: x, median: x, p95: x, max: x}}}));
  await signIn(tab, daemon, daemon.token, `#/jobs/${id}`);
  const figure_ = tab.locator('figure', {has: tab.getByRole('heading', {name: 'Loss', exact: true})});
  await figure_.locator('.readout', {hasText: 'step 100'}).waitFor();
  const box = await figure_.locator('.u-over').boundingBox();
  const to = (part) => tab.mouse.move(box.x + box.width * part, box.y + 50, {steps: 4});
  await to(0.3).then(() => tab.mouse.down()).then(() => to(0.6));
  x = Array.from({length: 1001}, (_, i) => i);
  await Promise.all([tab.waitForResponse((answer) => /metric=loss/.test(answer.url()) && answer.text().then((text) => text.includes('1000'))), tab.clock.fastForward(30_000)]);
  await tab.evaluate(() => new Promise((drawn) => { requestAnimationFrame(() => requestAnimationFrame(drawn)); }));
  await tab.mouse.up();
  const zoom = (await until(() => tab.url().match(/zoom=([\d.]+)(?:~|%7E)([\d.]+)/), 'it is zoomed')).slice(1).map(Number);
  assert.ok(zoom.every((at, i) => Math.abs(at - [30, 60][i]) < 1), `${zoom}`);
  await tab.context().close();
});

test('steps that a restart undid are on no curve, before the others are made again', async () => {
  const pipe = path.join(daemon.root, 'steps');
  execFileSync('mkfifo', [pipe]);
  const script_ = `import lockstep\nfor line in open(${JSON.stringify(pipe)}): lockstep.report(step=int(line), loss=1 / int(line), step_seconds=0.1)`;
  const {id} = await daemon.api('POST', 'v1/jobs', {name: 'undone', framework: 'pytorch', command: ['/usr/bin/python3', '-c', script_], environment: {PYTHONPATH: path.join(source, 'job/rank/python')}, resources: {nodes: 1}});
  const to = fs.openSync(pipe, 'r+');  // never its end, whoever reads
  const make = (from, until_) => fs.writeSync(to, Array.from({length: until_ - from + 1}, (_, i) => `${from + i}\n`).join(''));
  make(1, 40);
  await daemon.waitFor(id, (one) => one.step === 40, 'steps are made');
  await page.goto(`${daemon.url}#/jobs/${id}`);
  const newest = (step) => figure('Loss').locator('.readout', {hasText: new RegExp(`step ${step}(?!\\d)`)}).waitFor();
  await newest(40);
  make(41, 60);
  await newest(60);
  await daemon.api('POST', `v1/jobs/${id}/restart`);
  await daemon.waitFor(id, ({state, attempts: [{generations}]}) => state === 'running' && generations.length === 2, 'the ranks are started anew');
  make(21, 25);
  await newest(25);
  make(26, 30);
  await newest(30);
  fs.closeSync(to);
});

test('the log of a failed job opens at the rank that broke it', async () => {
  const crash = await daemon.submit('broken', 'crash');
  await daemon.waitFor(crash.id, (one) => one.state === 'failed', 'it fails', 60);
  await page.goto(`${daemon.url}#/jobs/${crash.id}/logs`);
  await page.getByRole('log', {name: 'Log of rank 1'}).getByText("KeyError: 'labels'").waitFor();
  assert.equal(await page.getByLabel('Rank', {exact: true}).inputValue(), '1');
  await page.getByLabel('Rank', {exact: true}).fill('0');
  await page.keyboard.press('Enter');
  await page.getByRole('log', {name: 'Log of rank 0'}).waitFor();
});

test('what waits is told apart, the first to start on top, and nothing touches', async () => {
  const fields = {perNode: 60, steps: 100_000};
  const running = await daemon.submit('all-cores', 'good', fields);
  await daemon.waitFor(running.id, (one) => one.state === 'running' || one.pending_reason, 'it runs or waits', 60);
  const wide = await daemon.submit('needs-all-cores', 'good', fields);
  const sweep = await daemon.submit('lr', 'good', {...fields, sweep: {parameters: {'labels.try': ['a', 'b', 'c']}}});
  await page.goto(`${daemon.url}#/queue`);
  const names = () => page.locator('tbody .row-link').allInnerTexts();
  await until(async () => (await names()).filter((name) => name.startsWith('lr')).join() === 'lr 1/3,lr 2/3,lr 3/3', names);
  const [above, below] = await Promise.all([page.locator('.table-wrap').boundingBox(), page.getByRole('region', {name: 'How long jobs waited'}).boundingBox()]);
  assert.ok(below.y - above.y - above.height >= 10, JSON.stringify([above, below]));
  await shot('queue-of-a-sweep');
  const left = (await daemon.api('GET', `v1/jobs?sweep=${sweep.sweep?.id ?? sweep.id}`)).items;
  for (const one of [...left, wide, running]) await daemon.request('POST', `v1/jobs/${one.id}/cancel`);
});

test('a sentence with a link is one line, and an address that leads nowhere says so', async () => {
  await page.goto(`${daemon.url}#/compare`);
  const said = await page.getByText('Add them above, or tick them').boundingBox();
  assert.ok(said.height < 40, JSON.stringify(said));
  await page.goto(`${daemon.url}#/nowhere`);
  await has(page, 'There is no such page');
  await browser.axe(page, 'an address that leads nowhere');
  await shot('nowhere');
  await page.getByRole('link', {name: 'All jobs'}).click();
  await page.getByRole('heading', {name: 'Jobs'}).waitFor();
});

test('a run that is gone does not take the others of a comparison with it', async () => {
  const gone = `${job.id.slice(0, -4)}0000`;
  await page.goto(`${daemon.url}#/compare?jobs=${job.id},${gone}`);
  await has(page, `There is no job ${gone}, or it is not yours to see.`);
  await figure('Loss').waitFor();
  await browser.axe(page, 'a comparison of which one is gone');
  await shot('compare-gone');
  await page.getByRole('button', {name: 'Leave it out'}).click();
  await until(async () => (await page.getByText('There is no job').count()) === 0 && !page.url().includes(gone), 'it is left out');
  await page.goto(`${daemon.url}#/jobs/${gone}`);
  await has(page, 'There is no such thing, or it is not yours to see');
  await browser.axe(page, 'a job that is gone');
});

test('the queue, opened while lockstepd is away, comes by itself once it is back', async () => {
  const tab = await browser.tab();
  await signIn(tab, daemon);
  const away = (route) => route.abort('connectionrefused');
  await tab.route('**/*', away);
  await tab.goto(`${daemon.url}#/queue`);
  await has(tab, 'lockstepd did not send this page');
  await tab.unroute('**/*', away);
  await tab.getByRole('heading', {name: 'Queue', exact: true}).waitFor();
  await tab.context().close();
});

test('where only the stream of events is held back, the page says that and asks instead', async () => {
  const held = (url) => url.pathname.endsWith('/v1/events');
  const away = (route) => route.abort();
  const refuse = (route) => route.fulfill({status: 503, contentType: 'application/problem+json',
    body: JSON.stringify({type: 'unavailable', title: 'lockstepd is at a limit', status: 503, detail: 'too many streams are open'})});
  const own = await daemon.submit('held-back', 'good', {steps: 1_000_000, pace: 0.05});
  const tab = await browser.tab();
  await signIn(tab, daemon);
  await tab.route(held, refuse);
  await tab.evaluate(() => new MutationObserver(() => { window.wrong ||= document.body.innerText.includes('lockstepd does not answer'); })
    .observe(document.body, {subtree: true, childList: true, characterData: true}));
  await tab.goto(`${daemon.url}#/jobs/${own.id}`);
  const told = tab.getByRole('status').getByText('Live updates are cut off');
  await told.waitFor();
  await tab.getByRole('status').getByText('lockstepd refuses them: too many streams are open').waitFor();
  await tab.route(held, away);
  await tab.getByRole('status').getByText('a proxy or an extension').waitFor();
  await tab.unroute(held, refuse);
  await browser.axe(tab, 'without the stream');
  await shot('held-back', tab);
  const at = async () => Number((await tab.locator('figure', {has: tab.getByRole('heading', {name: 'Loss', exact: true})}).locator('.readout').first().innerText()).match(/step ([\d\u2009]+)/)?.[1].replace(/\u2009/g, '') ?? 0);
  const first = await until(at, 'the loss is drawn');
  await until(async () => (await at()) > first, 'the loss goes on');
  await tab.goto(`${daemon.url}#/jobs/${own.id}/events`);
  await has(tab, 'Every rank runs');
  await daemon.waitFor(own.id, (one) => one.step > 5, 'it runs');
  await daemon.api('POST', `v1/jobs/${own.id}/restart`);
  await has(tab, 'asked for the ranks to be started anew');
  assert.equal(await tab.evaluate(() => !!window.wrong), false);
  await tab.unroute(held, away);
  await tab.locator('.live-on').waitFor();
  await told.waitFor({state: 'detached'});
  await daemon.api('POST', `v1/jobs/${own.id}/cancel`);
  await tab.context().close();
});

test('where all streams are held back, a log that is followed grows all the same', async () => {
  const own = await daemon.submit('held-log', 'good', {steps: 1_000_000, pace: 0.05, perNode: 1});
  const tab = await browser.tab();
  await signIn(tab, daemon);
  // Neither answered nor refused.
  await tab.route((url) => url.pathname.endsWith('/v1/events') || url.searchParams.get('follow') === 'true', () => undefined);
  await tab.goto(`${daemon.url}#/jobs/${own.id}/logs`);
  const newest = async () => Number((await tab.getByRole('log', {name: 'Log of rank 0'}).innerText()).match(/step (\d+)\/\d+ loss .*\s*$/)?.[1] ?? 0);
  await tab.getByRole('status').getByText('Live updates are cut off').waitFor();
  for (let i = 0; i < 2; i++) {
    const before_ = await newest();
    await until(async () => (await newest()) > before_, 'what is printed comes');
  }
  await daemon.api('POST', `v1/jobs/${own.id}/cancel`);
  await tab.context().close();
});

// Its first bytes, as many as the attempt before had printed, were never shown.
test('where all streams are held back, the log of another attempt is read from its beginning', async () => {
  const own = await daemon.submit('held-attempt', 'good', {steps: 1_000_000, pace: 0.05, perNode: 1});
  const tab = await browser.tab();
  await signIn(tab, daemon);
  const follows = (url) => url.searchParams.get('follow') === 'true';
  await tab.route((url) => url.pathname.endsWith('/v1/events') || follows(url), () => undefined);
  let asked = 0;
  await tab.route((url) => url.pathname.endsWith('/logs') && !follows(url), (route) => {
    const text = asked++ ? 'the second begins\nand goes on\n' : 'the first\n';
    const offset = Number(new URL(route.request().url()).searchParams.get('offset') ?? 0);
    return route.fulfill({body: text.slice(offset), headers: {'Content-Type': 'text/plain', 'Lockstep-Log-Attempt': asked > 1 ? '2' : '1',
      'Lockstep-Log-Offset': `${offset}`, 'Lockstep-Log-Next': `${text.length}`}});
  });
  await tab.goto(`${daemon.url}#/jobs/${own.id}/logs`);
  const log = tab.getByRole('log', {name: 'Log of rank 0'});
  await log.getByText('the first').waitFor();
  await log.getByText('the second begins').waitFor();
  await log.getByText('and goes on').waitFor();
  await daemon.api('POST', `v1/jobs/${own.id}/cancel`);
  await tab.context().close();
});

// The stream went on into the next attempt, whose lines were glued to these. And a rank that there is not had "printed nothing yet".
test('a log is followed to the end of its attempt, and there is no rank beyond the last', async () => {
  const own = await daemon.submit('two-attempts', 'good', {steps: 1_000_000, pace: 0.05, perNode: 2});
  const tab = await browser.tab();
  await signIn(tab, daemon);
  await tab.route((url) => url.pathname.endsWith('/v1/events'), () => undefined);
  const followed = [];
  await tab.route((url) => url.pathname.endsWith('/logs'), (route) => {
    const asked = new URL(route.request().url()).searchParams;
    const attempt = followed.length === 0 ? '1' : '2';
    const whole = attempt === '1' ? 'the first\n' : 'the second begins\n';
    const text = asked.get('follow') === 'true' ? (attempt === '1' ? 'its end\n' : '') : whole.slice(Number(asked.get('offset') ?? 0));
    if (asked.get('follow') === 'true') followed.push(`${asked.get('rank')} ${asked.get('attempt')}`);
    return route.fulfill({body: text, headers: {'Content-Type': 'text/plain', 'Lockstep-Log-Attempt': attempt,
      'Lockstep-Log-Offset': `${Math.min(Number(asked.get('offset') ?? 0), whole.length)}`, 'Lockstep-Log-Next': `${whole.length}`}});
  });
  await tab.goto(`${daemon.url}#/jobs/${own.id}/logs?rank=99`);
  const log = tab.getByRole('log', {name: 'Log of rank 1'});
  await log.getByText('its end').waitFor();
  await log.getByText('the second begins').waitFor();
  assert.equal(await log.getByText('its end').count(), 0, 'of another log');
  assert.equal(followed[0], '1 1');
  await daemon.api('POST', `v1/jobs/${own.id}/cancel`);
  await tab.context().close();
});

test('who is signed out without having asked for it is told why', async () => {
  const made = await daemon.api('POST', 'v1/tokens', {name: 'short', user: 'ada', role: 'user'});
  const tab = await browser.tab();
  await signIn(tab, daemon, made.token);
  await daemon.api('DELETE', `v1/tokens/${made.id}`);
  await has(tab, /^You are signed out: the token was revoked at (?!\d{4}-\d\d-\d\dT)/);
  await browser.axe(tab, 'signed out');
  await shot('signed-out', tab);
  await tab.reload();
  await has(tab, 'the token was revoked at');
  await tab.fill('#token', made.token);
  await tab.click('button[type=submit]');
  await tab.getByRole('alert').getByText(/^the token was revoked/).waitFor();
  await signIn(tab, daemon);
  await tab.goto(`${daemon.url}#/queue`);
  await tab.getByRole('heading', {name: 'Queue', exact: true}).waitFor();
  // Whoever signs out knows why.
  await tab.getByRole('button', {name: new RegExp(`^${(await daemon.api('GET', 'v1/whoami')).user}( |$)`)}).click();
  await tab.getByRole('menuitem', {name: 'Sign out'}).click();
  await tab.getByLabel('Or a token').waitFor();
  assert.equal(await tab.getByRole('alert').count(), 0);
  await tab.context().close();
});

test('on a phone nothing is wider than the screen, and everything has a name', async () => {
  const phone = await browser.tab({viewport: {width: 390, height: 844}});
  await signIn(phone, daemon);
  for (const where of ['#/jobs', '#/queue', '#/compare', '#/submit?as=yaml', `#/jobs/${job.id}/gpus`, `#/jobs/${job.id}?x=samples`]) {
    await phone.goto(daemon.url + where);
    await phone.getByRole('heading').first().waitFor();
    await until(() => phone.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${where} fits`);
    await browser.axe(phone, where);
  }
  if (process.env.LOCKSTEP_WEB_SHOTS) {
    await phone.screenshot({path: `${process.env.LOCKSTEP_WEB_SHOTS}/phone-samples.png`});
    await phone.goto(`${daemon.url}#/submit?as=yaml`);
    await phone.screenshot({path: `${process.env.LOCKSTEP_WEB_SHOTS}/phone-yaml.png`});
  }
  await phone.context().close();
});

test('no page broke a rule', () => {
  assert.deepEqual(browser.violations, []);
  assert.deepEqual(browser.errors, []);
});
