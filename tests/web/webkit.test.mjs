// The page in WebKitGTK, the engine of Safari as Debian has it, driven by its own WebDriver. Safari itself runs on no Linux.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import fs from 'node:fs';
import {after, before, test} from 'node:test';
import {Daemon, quietPort, until} from './support.mjs';

const daemon = new Daemon();
const jobs = {};
const programs = [];
let session;

const browser = () => fs.readdirSync('/usr/lib').map((name) => `/usr/lib/${name}/webkit2gtk-4.1/MiniBrowser`).find((file) => fs.existsSync(file));

before(async () => {
  await daemon.start();
  jobs.live = await daemon.submit('in-webkit', 'straggler', {steps: 1_000_000, pace: 0.05, perNode: 4});
  jobs.crash = await daemon.submit('bad-labels', 'crash');
  const screen = spawn('Xvfb', ['-displayfd', '3', '-screen', '0', '1500x1000x24', '-nolisten', 'tcp'], {stdio: ['ignore', 'ignore', 'ignore', 'pipe']});
  programs.push(screen);
  const display = await new Promise((resolve, reject) => {
    screen.stdio[3].once('data', (text) => resolve(String(text).trim()));
    screen.once('exit', () => reject(new Error('Xvfb has ended')));
  });
  const port = await quietPort();
  // Its sandbox needs user namespaces, which a container may not have; the pages are ours.
  programs.push(spawn('WebKitWebDriver', [`--port=${port}`], {stdio: 'ignore', env: {...process.env, HOME: daemon.root, XDG_RUNTIME_DIR: daemon.root, DISPLAY: `:${display}`, LANG: 'C', GDK_BACKEND: 'x11',
    NO_AT_BRIDGE: '1', LIBGL_ALWAYS_SOFTWARE: '1', WEBKIT_DISABLE_DMABUF_RENDERER: '1', WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS: '1'}}));
  const base = `http://127.0.0.1:${port}/session`;
  await until(() => fetch(`http://127.0.0.1:${port}/status`).then((answer) => answer.ok, () => false), 'WebKitWebDriver listens');
  const {sessionId} = await command(base, 'POST', {capabilities: {alwaysMatch: {browserName: 'MiniBrowser', 'webkitgtk:browserOptions': {binary: browser(), args: ['--automation']}}}});
  session = `${base}/${sessionId}`;
  await command(`${session}/window/rect`, 'POST', {width: 1440, height: 980});
});
after(async () => {
  if (session) await command(session, 'DELETE').catch(() => undefined);
  for (const program of programs.reverse()) program.kill();
  await daemon.cleanUp();
});

/** https://www.w3.org/TR/webdriver1/ */
async function command(address, method, body) {
  const answer = await fetch(address, {method, headers: {'Content-Type': 'application/json'}, body: body && JSON.stringify(body)});
  const {value} = await answer.json();
  if (!answer.ok) throw new Error(`${method} ${address}: ${value.error}: ${value.message}`);
  return value;
}
const run = (work, ...args) => command(`${session}/execute/sync`, 'POST', {script: `return (${work}).apply(null, arguments)`, args});
const goTo = (where) => run((to) => { location.hash = to; }, where);
const textOf = (selector) => run((wanted) => document.querySelector(wanted)?.innerText ?? '', selector);
const has = (text) => until(async () => (await textOf('body')).includes(text), async () => `"${text}" in: ${(await textOf('body')).slice(0, 2000)}`);
const element = async (selector) => Object.values(await command(`${session}/element`, 'POST', {using: 'css selector', value: selector}))[0];
const type = async (selector, text) => command(`${session}/element/${await element(selector)}/value`, 'POST', {text});
const click = async (selector) => command(`${session}/element/${await element(selector)}/click`, 'POST', {});
async function shot(name) {
  if (process.env.LOCKSTEP_WEB_SHOTS) fs.writeFileSync(`${process.env.LOCKSTEP_WEB_SHOTS}/webkit-${name}.png`, Buffer.from(await command(`${session}/screenshot`, 'GET'), 'base64'));
}
/** How many colours a canvas shows: nothing drawn is one. */
const colours = (selector) => run((wanted) => {
  const canvas = document.querySelector(wanted);
  if (!canvas?.width) return 0;
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}, selector);
const lossStep = async () => Number((await textOf('figure .readout')).match(/step ([\d\u2009]+)/)?.[1].replace(/\u2009/g, '') ?? 0);

test('signs in, and the loss of a job moves by itself', async () => {
  await command(`${session}/url`, 'POST', {url: daemon.url});
  await until(() => run(() => !!document.querySelector('#token')), 'the form of the token');
  await run(() => {
    window.complaints = [];
    document.addEventListener('securitypolicyviolation', (event) => window.complaints.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
    window.addEventListener('error', (event) => window.complaints.push(event.message));
    window.addEventListener('unhandledrejection', (event) => window.complaints.push(String(event.reason)));
  });
  await type('#token', daemon.token);
  await click('button[type=submit]');
  await has('in-webkit');
  await goTo(`#/jobs/${jobs.live.id}`);
  const first = await until(lossStep, 'the loss is drawn');
  await until(async () => (await lossStep()) > first + 20, async () => `the loss moves on from step ${first}: ${await lossStep()}`);
  assert.ok((await colours('figure canvas')) > 3, 'lines are drawn');
  await shot('overview');
});

test('the heatmap draws, and the cause of a failed job is named', async () => {
  await goTo(`#/jobs/${jobs.live.id}/ranks?metric=busy_seconds`);
  await until(async () => (await colours('.heat-canvas')) > 2, 'cells have colours');
  await shot('ranks');
  await daemon.waitFor(jobs.crash.id, (job) => job.state === 'failed', 'it fails', 60);
  await goTo(`#/jobs/${jobs.crash.id}`);
  await has("KeyError: 'labels'");
  await shot('failed');
});

test('logs come as they are printed; the form answers; a job is cancelled in the dialog', async () => {
  await goTo(`#/jobs/${jobs.live.id}/logs`);
  await until(async () => /step \d+0\//.test(await textOf('.log')), async () => `its log: ${await textOf('.log')}`);
  await goTo(`#/submit?from=${jobs.live.id}`);
  await has('They say the same');
  await shot('again');
  await goTo(`#/jobs/${jobs.live.id}`);
  await until(() => run(() => !!document.querySelector('.actions .button-bad')), 'it can be cancelled');
  await click('.actions .button-bad');
  await until(() => run(() => !!document.querySelector('dialog[open] .button-bad')), 'it is asked once');
  await click('dialog[open] .button-bad');
  await daemon.waitFor(jobs.live.id, (job) => job.state === 'cancelled', 'it is cancelled');
});

test('no page broke the content policy or threw', async () => {
  assert.deepEqual(await run(() => window.complaints), []);
});
