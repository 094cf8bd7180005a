// The page as a site serves it: behind nginx over TLS and below a path, with deploy/nginx/lockstep.conf as it is, and over
// lockstepd's own TLS. From signing in to cancelling a job.
import assert from 'node:assert/strict';
import {execFile, execFileSync, spawn} from 'node:child_process';
import fs from 'node:fs';
import https from 'node:https';
import path from 'node:path';
import {after, before, test} from 'node:test';
import {promisify} from 'node:util';
import {bin, Browser, Daemon, has, quietPort, source, until} from './support.mjs';

process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';  // lockstepd's own certificate; nginx's is checked
const run = promisify(execFile);
const nginxPath = fs.existsSync('/usr/bin/openssl') && ['/usr/sbin/nginx', '/usr/bin/nginx'].find((name) => fs.existsSync(name));
const daemon = new Daemon();
const secure = new Daemon('--tls', 'always');
const browser = new Browser();
const site = {};
const context = {ignoreHTTPSErrors: true};

/** nginx with a certificate made for it, on a port of its own; keeps all it writes in the daemon's folder. */
async function startNginx() {
  const folder = path.join(daemon.root, 'nginx');
  fs.mkdirSync(folder);
  site.certificate = path.join(folder, 'site.pem');
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1',
    '-keyout', path.join(folder, 'site.key'), '-out', site.certificate], {stdio: 'pipe'});
  site.port = await quietPort();
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((one) => `${one}_temp_path ${folder}/${one};`).join(' ');
  fs.writeFileSync(path.join(folder, 'nginx.conf'), `
pid ${folder}/nginx.pid;
error_log ${folder}/error.log;
events {}
http {
    access_log ${folder}/access.log;
    ${temporary}
    gzip on;
    gzip_types application/json;
    upstream lockstepd { server 127.0.0.1:${daemon.port}; keepalive 16; }
    server {
        listen 127.0.0.1:${site.port} ssl http2;
        ssl_certificate ${site.certificate};
        ssl_certificate_key ${folder}/site.key;
        include ${source}/deploy/nginx/lockstep.conf;
    }
}
`);
  site.process = spawn(nginxPath, ['-p', folder, '-c', path.join(folder, 'nginx.conf'), '-g', 'daemon off; master_process off;'], {stdio: 'ignore'});
  site.log = () => fs.readFileSync(path.join(folder, 'error.log'), 'utf8');
  site.url = `https://127.0.0.1:${site.port}/lockstep/`;
  await until(async () => {
    assert.equal(site.process.exitCode, null, fs.existsSync(path.join(folder, 'error.log')) ? site.log() : 'nginx ended');
    return (await ask('healthz').catch(() => undefined))?.status === 200;
  }, 'nginx answers for lockstepd');
}

/** Through nginx, whose certificate is checked: status, headers and body. */
function ask(where, {method = 'GET', headers = {}, body, servername} = {}) {
  return new Promise((resolve, reject) => {
    const request = https.request(new URL(where, site.url), {method, headers, servername, ca: fs.readFileSync(site.certificate), rejectUnauthorized: servername === undefined}, (answer) => {
      let text = '';
      answer.on('data', (part) => { text += part; });
      answer.on('end', () => resolve({status: answer.statusCode, headers: answer.headers, text}));
    });
    request.on('error', reject);
    request.end(body);
  });
}

before(async () => {
  await browser.start();  // first: whichever fails, after() ends all
  await Promise.all([daemon.start(), secure.start()]);
  if (nginxPath) await startNginx();
});
after(async () => {
  await browser.close();
  if (site.process && site.process.exitCode === null) {
    const ended = new Promise((resolve) => site.process.once('exit', resolve));
    site.process.kill('SIGTERM');
    await ended;
  }
  await Promise.all([daemon.cleanUp(), secure.cleanUp()]);
});

const noProxy = (t) => !nginxPath && (t.skip('no nginx or no openssl (Debian: nginx, openssl)'), true);
const step = async (page) => Number((await page.locator('figure', {has: page.getByRole('heading', {name: 'Loss', exact: true})}).locator('.readout').first().innerText()).match(/step ([\d\u2009]+)/)?.[1].replace(/\u2009/g, '') ?? 0);

/** From the address to a cancelled job; the page is left signed in. */
async function wholeDay(page, url, of) {
  const job = await of.submit('watched', 'good', {steps: 1_000_000, pace: 0.05});
  await page.goto(url);
  await page.fill('#token', of.token);
  await page.click('button[type=submit]');
  await page.getByRole('link', {name: 'watched'}).click();
  await page.getByRole('heading', {name: 'watched', exact: true}).waitFor();
  await page.locator('.live-on').waitFor();
  const first = await until(() => step(page), 'the loss is drawn');
  // More than an answer every 20 s brings: steps come by themselves.
  const asked = [];
  page.on('request', (request) => { if (request.url().includes('/series?')) asked.push(request.url()); });
  await until(async () => (await step(page)) > first + 20, 'the loss moves');
  await page.getByRole('button', {name: 'Cancel', exact: true}).click();
  await page.getByRole('dialog').getByRole('button', {name: /cancel/i}).first().click();
  await of.waitFor(job.id, (one) => one.state === 'cancelled', 'it is cancelled');
  await page.getByText('cancelled').first().waitFor();
  assert.ok(page.url().startsWith(url), page.url());
  return job;
}

test('behind nginx, over TLS and below a path: sign in, watch the loss, cancel', async (t) => {
  if (noProxy(t)) return;
  const page = await browser.tab(context);
  await wholeDay(page, site.url, daemon);
  const [cookie] = await page.context().cookies(`${site.url}v1/whoami`);
  assert.deepEqual([cookie.name, cookie.path, cookie.secure, cookie.httpOnly, cookie.sameSite], [`lockstep_session_${site.port}`, '/lockstep/v1', true, true, 'Strict']);
  assert.deepEqual(await page.context().cookies(new URL('/', site.url).href), [], 'the site beside it gets no cookie');
  // By the link of `lockstep open`, in a browser that nobody is signed in with.
  const {code} = await daemon.api('POST', 'v1/session/codes');
  const other = await browser.tab(context);
  await other.goto(`${site.url}#/signin?code=${code}&next=/queue`);
  await other.getByRole('heading', {name: 'Queue'}).first().waitFor();
  await other.context().close();
  // Without the slash, too.
  await page.goto(site.url.replace(/\/$/, ''));
  await has(page, 'watched');
  assert.equal(new URL(page.url()).pathname, '/lockstep/');
  await page.getByRole('button', {name: /admin/}).click();
  await page.getByRole('menuitem', {name: 'Sign out'}).click();
  await page.getByLabel('Or a token').waitFor();
  assert.deepEqual(await page.context().cookies(), []);
  await page.context().close();
});

test('nginx passes events on as they come, and a log that is followed', async (t) => {
  if (noProxy(t)) return;
  const job = await daemon.submit('streamed', 'good', {steps: 1_000_000, pace: 0.05});
  const first = (where) => new Promise((resolve, reject) => {
    let text = '';
    setTimeout(() => reject(new Error(`nothing of ${where} in 60 s but "${text}"`)), 60_000).unref();
    const request = https.get(new URL(where, site.url), {headers: {Authorization: `Bearer ${daemon.token}`}, ca: fs.readFileSync(site.certificate)}, (answer) => {
      answer.on('data', (part) => {
        text += part;
        if (/event: steps|step 20\//.test(text)) {
          request.destroy();
          resolve(answer.headers);
        }
      });
      answer.on('error', () => undefined);
    });
    request.on('error', reject);
  });
  // Neither ends by itself: what is not passed on before that is not passed on.
  assert.equal((await first(`v1/events?topics=steps.${job.id}.loss`))['content-type'], 'text/event-stream');
  await first(`v1/jobs/${job.id}/logs?rank=0&offset=0&follow=true`);
  await daemon.api('POST', `v1/jobs/${job.id}/cancel`);
});

test('another origin, another host and strangers are refused through nginx, too', async (t) => {
  if (noProxy(t)) return;
  const signed = await ask('v1/session', {method: 'POST', headers: {'Content-Type': 'application/json', Origin: `https://127.0.0.1:${site.port}`}, body: JSON.stringify({token: daemon.token})});
  assert.equal(signed.status, 200);
  const cookie = signed.headers['set-cookie'][0].split(';')[0];
  const code = (headers) => ask('v1/session/codes', {method: 'POST', headers: {Cookie: cookie, 'X-Lockstep-Request': '1', 'Content-Length': 0, ...headers}}).then(({status}) => status);
  assert.equal(await code({Origin: `https://127.0.0.1:${site.port}`}), 201);
  assert.equal(await code({Origin: 'https://evil.example'}), 403);
  assert.equal(await code({Origin: `https://127.0.0.1:${daemon.port}`}), 403);
  assert.equal(await code({'X-Lockstep-Request': '0'}), 403);
  assert.equal((await ask('v1/whoami', {headers: {Host: 'evil.example', Cookie: cookie}, servername: ''})).status, 421);
  // Programs on lockstepd's machine read /metrics without a token. What nginx passes on comes from anywhere.
  assert.equal((await fetch(`${daemon.url}metrics`)).status, 200);
  assert.equal((await ask('metrics')).status, 401);
  assert.equal((await ask('metrics', {headers: {Authorization: `Bearer ${daemon.token}`}})).status, 200);
});

test('the command line works through nginx', async (t) => {
  if (noProxy(t)) return;
  const environment = {...process.env, HOME: daemon.root, LOCKSTEP_TOKEN: daemon.token, LOCKSTEP_URL: site.url, SSL_CERT_FILE: site.certificate};
  const lockstep = async (...words) => (await run(path.join(bin, 'lockstep'), words, {env: environment})).stdout;
  const {id} = await daemon.submit('by-path', 'good', {steps: 3, perNode: 1});
  assert.match(await lockstep('jobs'), /by-path/);
  assert.match(await lockstep('logs', id, '--follow'), /rank 0 starts/);
  assert.ok((await lockstep('open', '--print', id)).startsWith(`${site.url}#/signin?code=`));
  // Logged in once, the path is kept with the address.
  const home = path.join(daemon.root, 'person');
  fs.mkdirSync(home);
  const person = {...process.env, HOME: home, SSL_CERT_FILE: site.certificate, LOCKSTEP_TOKEN: '', LOCKSTEP_URL: '', XDG_CONFIG_HOME: '', XDG_DATA_HOME: ''};
  const asked = run(path.join(bin, 'lockstep'), ['login', site.url], {env: person});
  asked.child.stdin.end(`${daemon.token}\n`);
  await asked;
  assert.ok(fs.readFileSync(path.join(home, '.config/lockstep/config.toml'), 'utf8').includes(`"${site.url.replace(/\/$/, '')}"`));
  assert.match((await run(path.join(bin, 'lockstep'), ['jobs'], {env: person})).stdout, /by-path/);
});

test('over lockstepd\'s own TLS: sign in, watch the loss, cancel', async () => {
  const page = await browser.tab(context);
  await wholeDay(page, secure.url, secure);
  const [cookie] = await page.context().cookies(`${secure.url}v1/whoami`);
  assert.deepEqual([cookie.path, cookie.secure, cookie.httpOnly, cookie.sameSite], ['/v1', true, true, 'Strict']);
  await page.context().close();
});

test('no page broke the content policy, asked another host or threw', () => {
  assert.deepEqual(browser.violations, []);
  assert.deepEqual(browser.errors, []);
});
