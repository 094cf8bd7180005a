// beside.mjs URL TOKEN JOB PREPARED TENSORBOARD-URL: from the address to the first chart of one and the same run, here and in
// TensorBoard, in turn, by one Chromium with nothing cached; prints "name value unit" lines for bench_web.py.
import {createRequire} from 'node:module';
import path from 'node:path';
import {drawn} from './drawn.mjs';

const [url, token, job, prepared, tensorboard] = process.argv.slice(2);
const {chromium} = createRequire(path.join(prepared, 'package.json'))('playwright-core');
const browser = await chromium.launch({executablePath: process.env.LOCKSTEP_CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox']});
const base = url.replace(/\/?$/, '/');

async function look(name, address, selector, prepare) {
  const context = await browser.newContext({viewport: {width: 1440, height: 900}});
  await prepare?.(context);
  const page = await context.newPage();
  let bytes = 0;
  const cdp = await context.newCDPSession(page);
  await cdp.send('Network.enable');
  cdp.on('Network.loadingFinished', (one) => { bytes += one.encodedDataLength; });
  const began = performance.now();
  await page.goto(address, {waitUntil: 'commit'});
  await page.waitForFunction(drawn, selector, {polling: 'raf', timeout: 60_000});
  console.log(`${name} ${(performance.now() - began).toFixed(1)} ms`);
  console.log(`${name}_bytes ${(bytes / 1000).toFixed(1)} kB`);
  if (process.env.LOCKSTEP_WEB_SHOTS) await page.screenshot({path: `${process.env.LOCKSTEP_WEB_SHOTS}/beside-${name}.png`});
  await context.close();
}

const signedIn = (context) => context.request.post(`${base}v1/session`, {data: {token}, headers: {'X-Lockstep-Request': '1'}});
for (let i = 0; i < 5; i++) {
  await look('first_chart', `${base}#/jobs/${job}`, 'figure canvas', signedIn);
  await look('tensorboard', `${tensorboard}#timeseries`, 'line-chart .series-view > canvas, line-chart .series-view > svg path', undefined);
}
await browser.close();
