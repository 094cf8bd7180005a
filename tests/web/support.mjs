// A real lockstepd, a real Chromium, and what the tests of the page ask of them.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import fs from 'node:fs';
import {createRequire} from 'node:module';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import {fileURLToPath} from 'node:url';

export const here = path.dirname(fileURLToPath(import.meta.url));
export const source = path.resolve(here, '../..');
export const bin = process.env.LOCKSTEP_BIN ?? path.join(source, 'build/bin');
/** Where node_modules and the built page are: tests/web/prepare puts them there. */
export const prepared = process.env.LOCKSTEP_WEB_PREPARED ?? path.join(source, 'web');
const require_ = createRequire(path.join(prepared, 'package.json'));
export const packageOf = (name) => require_(name);
const chromiumPath = process.env.LOCKSTEP_CHROMIUM ?? '/usr/bin/chromium';

/** Every deadline is that much longer: Chromium and up to 16 ranks may share two busy cores. */
const kPatience = Number(process.env.LOCKSTEP_TEST_PATIENCE ?? 3);

/** LOCKSTEP_TEST_DRAG=150: all tabs are so many milliseconds late, which shows what reads a page before it stands. */
const kDrag = Number(process.env.LOCKSTEP_TEST_DRAG ?? 0);

/** Asks until the answer is true; gives it. */
export async function until(ask, what, seconds = 20) {
  seconds *= kPatience;
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() > deadline) assert.fail(`not within ${seconds} s: ${typeof what === 'function' ? await what() : what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** A port that is the same again after a restart: below those that the kernel gives to whoever asks for any. */
export async function quietPort() {
  const low = Number(fs.readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').split(/\s/)[0]);
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * (low - 10_000));
    const probe = net.createServer();
    const free = await new Promise((resolve) => probe.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true)));
    if (!free) continue;
    await new Promise((resolve) => probe.close(resolve));
    return port;
  }
}

export class Daemon {
  constructor(...settings) {
    this.root = fs.mkdtempSync(path.join(os.tmpdir(), 'lockstep-web-'));
    this.data = path.join(this.root, 'data');
    this.settings = settings;
    this.port = 0;
  }
  async start() {
    this.port ||= await quietPort();
    const file = path.join(this.data, 'url');
    fs.rmSync(file, {force: true});
    const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('LOCKSTEP_')));
    environment.HOME = this.root;  // a setup's login shell reads nothing of whoever runs the tests
    const log = fs.openSync(path.join(this.root, 'lockstepd.log'), 'a');
    // More cores than there are: the jobs of the tests sleep.
    this.process = spawn(path.join(bin, 'lockstepd'), ['--listen', `127.0.0.1:${this.port}`, '--data-dir', this.data, '--scheduler', 'local', '--shared-account', '--local-cores', '64',
      '--web-root', path.join(prepared, 'dist'), ...this.settings], {stdio: ['ignore', log, log], env: environment});
    fs.closeSync(log);
    this.url = (await until(() => {
      assert.equal(this.process.exitCode, null, this.log());
      return fs.existsSync(file) && fs.readFileSync(file, 'utf8').trim();
    }, 'lockstepd listens')).replace(/\/?$/, '/');
    this.port = Number(new URL(this.url).port);
    this.token = fs.readFileSync(path.join(this.data, 'token'), 'utf8').trim();
    await until(() => this.request('GET', 'healthz').then((answer) => answer.ok, () => false), 'lockstepd is healthy');
    return this;
  }
  log() {
    return fs.readFileSync(path.join(this.root, 'lockstepd.log'), 'utf8').slice(-4000);
  }
  /** As a power cut; agents and ranks go on. */
  async kill9() {
    const ended = new Promise((resolve) => this.process.once('exit', resolve));
    this.process.kill('SIGKILL');
    await ended;
  }
  async request(method, where, body, token = this.token) {
    const ask = () => fetch(this.url + where, {method, headers: {Authorization: `Bearer ${token}`, ...(body ? {'Content-Type': 'application/json'} : {})}, body: body && JSON.stringify(body)});
    try {
      return await ask();
    } catch (error) {
      // lockstepd has ended a connection that was idle while this process was busy with something else: nothing was read of it.
      if (!['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE'].includes(error.cause?.code)) throw error;
      return ask();
    }
  }
  async api(method, where, body, token) {
    const answer = await this.request(method, where, body, token);
    const text = await answer.text();
    assert.ok(answer.ok, `${method} ${where}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : undefined;
  }
  submit(name, mode, {steps = 400, pace = 0.03, nodes = 1, perNode = 2, token, ...fields} = {}) {
    return this.api('POST', 'v1/jobs', {name, framework: 'pytorch', command: ['/usr/bin/python3', path.join(here, 'train.py'), mode, String(steps), String(pace)],
      environment: {PYTHONPATH: path.join(source, 'job/rank/python')}, resources: {nodes, ranks_per_node: perNode}, ...fields}, token);
  }
  job(id) {
    return this.api('GET', `v1/jobs/${id}`);
  }
  waitFor(id, condition, what, seconds = 30) {
    return until(async () => {
      const job = await this.job(id);
      return condition(job) && job;
    }, async () => `${what}: ${JSON.stringify(await this.job(id))}`, seconds);
  }
  async cleanUp() {
    if (this.process?.exitCode === null && this.process.signalCode === null) await this.kill9();
    await until(() => {
      let left = 0;
      for (const entry of fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)) {
        try {
          if (fs.readFileSync(`/proc/${entry}/cmdline`, 'latin1').includes(this.root) || fs.readFileSync(`/proc/${entry}/environ`, 'latin1').includes(`${this.root}/`)) {
            left++;
            process.kill(Number(entry), 'SIGKILL');
          }
        } catch {
          // it is gone, or not ours
        }
      }
      return left === 0;
    }, 'agents and ranks are gone', 10);
    fs.rmSync(this.root, {recursive: true, force: true, maxRetries: 5, retryDelay: 100});
  }
}

/** One Chromium; what a page must never do is collected from all its tabs. */
export class Browser {
  async start() {
    const {chromium} = require_('playwright-core');
    this.browser = await chromium.launch({executablePath: chromiumPath, args: ['--no-sandbox', '--disable-dev-shm-usage'], timeout: 30_000 * kPatience});
    this.violations = [];
    this.errors = [];
    return this;
  }
  /** `late`: milliseconds by which it draws and asks late, as on a slow machine. */
  async tab({late = kDrag, ...options} = {}) {
    const context = await this.browser.newContext({viewport: {width: 1440, height: 900}, reducedMotion: 'reduce', ...options});
    context.setDefaultTimeout(20_000 * kPatience);  // of its other pages too
    if (late) {
      await context.addInitScript((by) => {
        window.requestAnimationFrame = (step) => setTimeout(() => step(performance.now()), by);
        window.cancelAnimationFrame = (frame) => clearTimeout(frame);
        const ask = window.fetch.bind(window);
        window.fetch = async (...of) => {
          await new Promise((on) => { setTimeout(on, by); });
          return ask(...of);
        };
      }, late);
    }
    return this.watched(await context.newPage());
  }
  /** Another tab of the same person. */
  async beside(page) {
    return this.watched(await page.context().newPage());
  }
  async watched(page) {
    await page.exposeFunction('reportViolation', (text) => this.violations.push(text));
    await page.addInitScript(() => {
      document.addEventListener('securitypolicyviolation', (event) => window.reportViolation(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber} ${event.sample}`));
    });
    page.on('pageerror', (error) => this.errors.push(error.stack ?? String(error)));
    page.on('dialog', (dialog) => {
      this.errors.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on('request', (request) => {
      const {protocol, hostname} = new URL(request.url());
      if (/^https?:$/.test(protocol) && hostname !== '127.0.0.1') this.errors.push(`request to ${request.url()}`);
    });
    return page;
  }
  async axe(page, what) {
    if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(fs.readFileSync(require_.resolve('axe-core/axe.min.js'), 'utf8'));
    const found = await page.evaluate(() => window.axe.run(document, {resultTypes: ['violations']}));
    assert.deepEqual(found.violations.map((one) => `${what}: ${one.id}: ${one.nodes.slice(0, 3).map((node) => `${node.target.join(' ')} ${node.failureSummary}`).join(' | ')}`), []);
  }
  close() {
    return this.browser?.close();
  }
}

export async function signIn(page, daemon, token = daemon.token, where = '#/jobs') {
  await page.goto(daemon.url + where);
  await page.fill('#token', token);
  await page.click('button[type=submit]');
  await page.waitForSelector('header.top');
}

export const has = (page, text, options) => page.getByText(text, options).first().waitFor();
