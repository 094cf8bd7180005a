// page.mjs URL TOKEN JOB, for test_page.py: JOB waits, the whole cluster being taken for an hour. Says "waits: seen" once every page
// tells so, and "starts: seen" once the open page says that it runs.
import assert from 'node:assert/strict';
import {Browser, has, signIn, until} from '../web/support.mjs';

const [url, token, id] = process.argv.slice(2);
const daemon = {url: url.replace(/\/?$/, '/'), token};
const browser = await new Browser().start();
const shot = (page, name) => process.env.LOCKSTEP_WEB_SHOTS && page.screenshot({path: `${process.env.LOCKSTEP_WEB_SHOTS}/slurm-${name}.png`, fullPage: true});
try {
  const page = await browser.tab();
  await signIn(page, daemon);
  const job = async () => (await fetch(`${daemon.url}v1/jobs/${id}`, {headers: {Authorization: `Bearer ${token}`}})).json();
  /** As the page writes it: the date only when it is not today's. */
  const local = async () => {
    const at = new Date((await job()).expected_start);
    const pad = (n) => String(n).padStart(2, '0');
    return {at, text: `${at.toDateString() === new Date().toDateString() ? '' : `${pad(at.getMonth() + 1)}-${pad(at.getDate())} `}${pad(at.getHours())}:${pad(at.getMinutes())}`};
  };
  const {at} = await local();
  const minutes = (at - Date.now()) / 60_000;
  assert.ok(minutes > 30 && minutes < 90, `it starts in ${minutes} min`);
  // Slurm plans again every second: what is shown is what lockstepd says by then.
  const says = async (what, of) => until(async () => {
    const {text} = await local();
    return (await of().innerText().catch(() => '')).includes(text);
  }, async () => `${what}: ${(await local()).text}, it is ${await of().innerText().catch(String)}`);
  await says('the list', () => page.getByRole('row', {name: /after-the-other/}));
  await shot(page, 'jobs');
  await page.goto(`${daemon.url}#/queue`);
  await says('the queue', () => page.getByRole('row', {name: /after-the-other/}));
  const reason = (await job()).pending_reason;
  assert.ok(reason.length > 10, reason);
  await has(page, reason);
  await browser.axe(page, 'queue with a job that waits');
  await shot(page, 'queue');
  // The form: a job for everything that there is would start after that one, a bad one is refused in Slurm's words.
  await page.goto(`${daemon.url}#/submit?as=text`);
  await page.locator('#text').fill('{"name": "not-yet", "framework": "command", "command": ["true"], "resources": {"nodes": 2, "time_limit": "00:10:00"}}');
  await has(page, /would start about/);
  const would = await page.getByText(/would start about/).innerText();
  assert.match(would, /2 ranks on 2 nodes · would start about (\d\d-\d\d )?\d\d:\d\d on n\[1-2\]/);
  await shot(page, 'submit');
  await page.locator('#text').fill('{"name": "not-yet", "framework": "command", "command": ["true"], "slurm": {"directives": {"comment": "refused"}}}');
  await has(page, /You have no allocation on this cluster/);
  assert.equal(await page.getByText(/would start about/).count(), 0);
  await shot(page, 'submit-never');
  await page.goto(`${daemon.url}#/jobs/${id}`);
  await says('the job', () => page.locator('.banner', {hasText: 'expects a start about'}));
  await browser.axe(page, 'a job that waits');
  await shot(page, 'job');
  await page.emulateMedia({colorScheme: 'dark'});
  await page.setViewportSize({width: 390, height: 844});
  await shot(page, 'job-phone-dark');
  await page.setViewportSize({width: 1440, height: 900});
  console.log('waits: seen');
  await page.locator('.job-title').getByText('running').waitFor();
  assert.equal(await page.getByText('expects a start about').count(), 0);
  assert.deepEqual([...browser.violations, ...browser.errors], []);
  console.log('starts: seen');
} finally {
  await browser.close();
}
