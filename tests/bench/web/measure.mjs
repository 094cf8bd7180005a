// measure.mjs URL TOKEN JOB PID PREPARED: prints "name value unit" lines for bench_web.py.
import fs from 'node:fs';
import http from 'node:http';
import {createRequire} from 'node:module';
import path from 'node:path';
import {drawn} from './drawn.mjs';

const [url, token, job, pid, prepared] = process.argv.slice(2);
const {chromium} = createRequire(path.join(prepared, 'package.json'))('playwright-core');
const print = (name, value, unit) => console.log(`${name} ${value.toFixed(3)} ${unit}`);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const kHertz = 10;
const kSteps = 200;

/** In front of lockstepd: passes everything on, and repeats the newest step of each metric ten times a second. */
function relay() {
  const streams = new Set();
  const newest = new Map();
  let next = 0;
  const emitted = new Map();
  const came = [];
  const upstream = new URL(url);
  const server = http.createServer((request, response) => {
    const onward = http.request({host: upstream.hostname, port: upstream.port, method: request.method, path: request.url, headers: {...request.headers, 'accept-encoding': 'identity'}}, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      if (!request.url.startsWith('/v1/events')) {
        answer.pipe(response);
        return;
      }
      streams.add(response);
      let rest = '';
      answer.setEncoding('utf8');
      answer.on('data', (text) => {
        const parts = (rest + text).split('\n\n');
        rest = parts.pop();
        for (const part of parts) {
          const data = /^event: steps\ndata: (.*)$/m.exec(part)?.[1];
          if (!data) response.write(`${part}\n\n`);
          else {
            const event = JSON.parse(data);
            if (newest.has(event.metric)) came.push(Date.now() - event.time * 1000);  // its last report; the first may be older
            newest.set(event.metric, event);
            next = Math.max(next, event.step + 1);
          }
        }
      });
      answer.on('end', () => response.end());
    });
    onward.on('error', () => response.destroy());
    response.on('close', () => {
      streams.delete(response);
      onward.destroy();
    });
    request.pipe(onward);
  });
  const timer = setInterval(() => {
    if (!newest.size) return;
    const step = next++;
    emitted.set(step, Date.now());
    for (const event of newest.values()) {
      const text = `event: steps\ndata: ${JSON.stringify({...event, step, time: Date.now() / 1000})}\n\n`;
      for (const stream of streams) stream.write(text);
    }
  }, 1000 / kHertz);
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve({
    address: `http://127.0.0.1:${server.address().port}/`, emitted, came, close: () => { clearInterval(timer); server.closeAllConnections?.(); server.close(); }})));
}

const dist = path.join(prepared, 'dist');
// What index.html names; the rest is fetched when it is used.
const packed = ['index.html', ...[...fs.readFileSync(path.join(dist, 'index.html'), 'utf8').matchAll(/(?:src|href)="([^"]*)"/g)].map((match) => match[1])].map((name) => path.join(dist, `${name}.gz`));
print('bundle', packed.reduce((sum, file) => sum + fs.statSync(file).size, 0) / 1000, 'kB');

const base = url.replace(/\/?$/, '/');
const browser = await chromium.launch({executablePath: process.env.LOCKSTEP_CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--enable-precise-memory-info']});
const page = await (await browser.newContext({viewport: {width: 1440, height: 900}})).newPage();
const signIn = async (where) => {
  await page.goto(where);
  await page.fill('#token', token);
  await page.click('button[type=submit]');
  await page.waitForSelector('header.top');
};
await signIn(base);
await sleep(20_000);  // the job has steps
for (const [name, where, canvas] of [['overview', `#/jobs/${job}`, '.uplot canvas'], ['ranks', `#/jobs/${job}/ranks`, '.heat-canvas']]) {
  for (let i = 0; i < 5; i++) {
    await page.goto('about:blank');
    const began = Date.now();
    await page.goto(base + where, {waitUntil: 'commit'});
    await page.waitForFunction(drawn, canvas, {polling: 'raf', timeout: 60_000});
    print(name, Date.now() - began, 'ms');
  }
}

const front = await relay();
await signIn(front.address);
await page.goto(`${front.address}#/jobs/${job}/ranks`);
await page.waitForSelector('.heat-canvas');
await sleep(3000);
const tools = await page.context().newCDPSession(page);
await tools.send('Performance.enable');
const busy = async () => (await tools.send('Performance.getMetrics')).metrics.find((one) => one.name === 'TaskDuration').value;
const before = await busy();
// The heatmap's axis says its last step; what a frame shows is there with the next one.
const seen = await page.evaluate((steps) => new Promise((resolve) => {
  const out = [];
  let last = '';
  let waiting;
  const frame = () => {
    if (waiting !== undefined) out.push([waiting, Date.now()]);
    waiting = undefined;
    const text = document.querySelector('.heat-axis span:last-child').textContent;
    if (text !== last) {
      last = text;
      waiting = Number(text.replace(/\D/g, ''));
    }
    if (out.length < steps) requestAnimationFrame(frame);
    else resolve(out);
  };
  requestAnimationFrame(frame);
}), kSteps);
const spent = await busy() - before;
const late = seen.slice(2).map(([step, at]) => at - (front.emitted.get(step) ?? NaN)).filter((ms) => ms >= 0).sort((a, b) => a - b);
if (late.length < kSteps / 2) throw new Error(`only ${late.length} of ${kSteps} steps were seen as emitted`);
const behind = [...front.came].sort((a, b) => a - b);
if (behind.length < 10) throw new Error(`lockstepd told of ${behind.length} steps`);
print('came_p50', behind[Math.floor(behind.length * 0.5)], 'ms');
print('came_p95', behind[Math.floor(behind.length * 0.95)], 'ms');
print('emit_p50', late[Math.floor(late.length * 0.5)], 'ms');
print('emit_p95', late[Math.floor(late.length * 0.95)], 'ms');
print('step_cost', (spent * 1000) / (seen[seen.length - 1][0] - seen[0][0]), 'ms');

await page.goto(`${front.address}#/jobs/${job}`);
await page.waitForSelector('.uplot canvas');
await sleep(2000);
for (let i = 0; i < 5; i++) {
  print('interaction', await page.evaluate(() => new Promise((resolve) => {
    const began = performance.now();
    [...document.querySelectorAll('.toggle')].find((one) => one.textContent === 'log y').click();
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - began)));
  })), 'ms');
  await sleep(300);
}
print('heap', (await page.evaluate(() => performance.memory.usedJSHeapSize)) / 1e6, 'MB');
const renderers = fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name)).map((name) => {
  try {
    // Its own pages, as Chromium's task manager counts: most of what is resident is the program, shared by all tabs.
    return fs.readFileSync(`/proc/${name}/cmdline`, 'latin1').includes('--type=renderer') ? Number(/Private_Dirty:\s+(\d+)/.exec(fs.readFileSync(`/proc/${name}/smaps_rollup`, 'utf8'))?.[1] ?? 0) / 1024 : 0;
  } catch {
    return 0;
  }
});
print('tab', Math.max(...renderers), 'MiB');
await browser.close();
front.close();

// What an open tab costs lockstepd: a hundred streams of what the overview wants, and none.
const used = () => fs.readdirSync(`/proc/${pid}/task`).reduce((sum, task) => sum + Number(fs.readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]) / 1e9, 0);
const share = async (seconds) => {
  const [from, at] = [used(), Date.now()];
  await sleep(seconds * 1000);
  return (used() - from) / ((Date.now() - at) / 1000);
};
const alone = await share(10);
let received = 0;
const streams = Array.from({length: 100}, () => http.get(`${base}v1/events?topics=job.${job},steps.${job}.loss%2Bstep_seconds%2Bbusy_seconds`, {headers: {Authorization: `Bearer ${token}`}}, (answer) => answer.on('data', (data) => {
  received += data.length;
})));
await sleep(2000);
print('alone', alone, 'cores');
print('hundred', await share(10), 'cores');
if (received < 1e6) throw new Error(`a hundred streams had ${received} bytes`);
streams.forEach((one) => one.destroy());
