// Files that the page saves: those of evidence, and those that lockstepd gives in more than one slice.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import {after, before, test} from 'node:test';
import {Browser, Daemon, has, signIn, until} from './support.mjs';

const daemon = new Daemon();
const browser = new Browser();
let job;
let page;

before(async () => {
  await browser.start();  // first: whichever fails, after() ends both
  await daemon.start();
  job = await daemon.api('POST', 'v1/jobs', {name: 'sleeper', framework: 'command', command: ['/bin/sleep', '100000'], resources: {nodes: 1, ranks_per_node: 1}});
  page = await browser.tab();
  await signIn(page, daemon);
  await daemon.waitFor(job.id, (one) => one.state === 'running', 'it runs');
});
after(async () => {
  await browser.close();
  await daemon.cleanUp();
});

const goTo = (where) => page.goto(daemon.url + where);
const shot = async (name) => process.env.LOCKSTEP_WEB_SHOTS && page.screenshot({path: `${process.env.LOCKSTEP_WEB_SHOTS}/${name}.png`, fullPage: true});
async function saved(button) {
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', {name: button}).click()]);
  return {name: file.suggestedFilename(), content: fs.readFileSync(await file.path())};
}

test('files of evidence are shown and saved', async () => {
  await daemon.api('POST', `v1/jobs/${job.id}/evidence`);
  const {items: [look]} = await until(async () => {
    const all = await daemon.api('GET', `v1/jobs/${job.id}/evidence`);
    return all.items.length && all;
  }, 'there is evidence');
  const file = look.ranks[0].files.find((one) => one.name === 'state.txt');
  await goTo(`#/jobs/${job.id}/evidence`);
  await page.getByText('Ranks and files').click();
  await page.getByRole('button', {name: 'state.txt of rank 0', exact: true}).click();
  const text = await (await daemon.request('GET', `v1/jobs/${job.id}/evidence/state.txt?attempt=1&generation=1&rank=0`)).text();
  await page.getByRole('region', {name: 'state.txt of rank 0'}).getByText(text.split('\n')[0]).first().waitFor();
  await shot('evidence-files');
  await browser.axe(page, 'files of evidence');
  const {name, content} = await saved('Download state.txt of rank 0');
  assert.equal(name, 'rank-0.state.txt');
  assert.equal(content.length, file.size);
  assert.equal(content.toString(), text);
});

const kSlice = 1 << 20;
const trace = Buffer.from(Uint8Array.from({length: 2 * kSlice + 12_345}, (_, i) => (i * 31) % 251));
/** As lockstepd gives a trace of that size; `trouble` answers in its place. */
async function recorded(size, trouble) {
  await page.unrouteAll();
  const one = {attempt: 1, generation: 1, profile: 1, time: '2026-11-23T08:00:00Z', by: 'ada', seconds: 5, message: '1 rank was recorded', ranks: [{rank: 0, node: 'n0', files: [{name: 'trace.json.gz', size}], missing: []}]};
  await page.route(/\/profiles$/, (route) => route.fulfill({json: {items: [one]}}));
  await page.route(/\/profiles\/trace\.json\.gz\?/, (route) => {
    const offset = Number(new URL(route.request().url()).searchParams.get('offset'));
    const other = trouble?.(offset);
    if (other) return route.fulfill(other);
    const body = trace.subarray(offset, offset + kSlice);
    return route.fulfill({body, contentType: 'application/octet-stream', headers: {'Lockstep-Log-Offset': String(offset), 'Lockstep-Log-Next': String(offset + body.length)}});
  });
  await goTo('#/jobs');
  await page.getByRole('region', {name: 'Jobs', exact: true}).waitFor();
  await goTo(`#/jobs/${job.id}/profiles`);
  await page.getByRole('heading', {name: 'Profile 1, generation 1', exact: true}).waitFor();
}
const button = 'Download trace.json.gz of rank 0';

test('a profile of more than 1 MiB is saved whole, though lockstepd is busy for a moment', async () => {
  let busy = 2;
  await recorded(trace.length, (offset) => offset && busy-- > 0 && {status: 503, json: {type: 'busy', title: 'busy', status: 503, detail: 'busy'}});
  const {name, content} = await saved(button);
  assert.equal(name, 'rank-0.trace.json.gz');
  assert.ok(content.equals(trace), `${content.length} bytes of ${trace.length}`);
  assert.ok(busy <= 0, 'it was refused before');
});

test('what is not whole is not saved, and the reason is told', async () => {
  const downloads = [];
  const seen = (file) => downloads.push(file.suggestedFilename());
  page.on('download', seen);
  await recorded(trace.length + 1);
  await page.getByRole('button', {name: button}).click();
  await has(page, `rank-0.trace.json.gz: It has ${trace.length} bytes, and ${trace.length + 1} when it was listed; nothing was saved`);
  await recorded(trace.length, (offset) => offset && {status: 404, json: {type: 'not_found', title: 'not found', status: 404, detail: 'there is no trace.json.gz of this rank'}});
  await page.getByRole('button', {name: button}).click();
  await has(page, 'rank-0.trace.json.gz: there is no trace.json.gz of this rank');
  await shot('profile-not-saved');
  await page.unrouteAll();
  page.off('download', seen);
  assert.deepEqual(downloads, []);
});

test('under a new look of evidence no stack of an earlier one is shown, however late it comes', async () => {
  const looks = [{time: '2026-11-23T08:00:00Z', text: 'at the old place\n'}, {time: '2026-11-23T08:01:00Z', text: 'at the new place\n'}];
  let newest = 0;
  let late;
  const asked = [];
  await page.route(/\/evidence$/, (route) => route.fulfill({json: {items: [{attempt: 1, generation: 1, time: looks[newest].time, reason: 'asked for by ada', message: `had: look ${newest}`,
    ranks: [{rank: 0, node: 'n0', pid: 7, behind: false, frame: 'main', files: [{name: 'python.txt', size: looks[newest].text.length}], missing: []}]}]}}));
  await page.route(/\/evidence\/python\.txt\?/, async (route) => {
    const {text} = looks[newest];
    asked.push(newest);
    // Of the first look: answered when the second is there, and again if anybody still asks.
    if (asked.length === 1) await new Promise((resolve) => { late = resolve; });
    await route.fulfill({body: text, contentType: 'text/plain', headers: {'Lockstep-Log-Offset': '0', 'Lockstep-Log-Next': String(text.length)}}).catch(() => undefined);
  });
  await goTo('#/jobs');
  await page.getByRole('region', {name: 'Jobs', exact: true}).waitFor();
  await goTo(`#/jobs/${job.id}/evidence`);
  await has(page, 'Taken: look 0');
  await page.getByText('Ranks and files').click();
  await page.getByRole('button', {name: 'python.txt of rank 0', exact: true}).click();
  await until(() => late, 'the first is asked for');
  newest = 1;
  await has(page, 'Taken: look 1');
  const text = page.getByRole('region', {name: 'python.txt of rank 0'});
  await text.getByText('at the new place').waitFor();
  late();
  // A further look at the same file goes on showing what it has.
  await page.waitForResponse(/\/evidence$/);
  assert.match(await text.innerText(), /^at the new place/);
  assert.deepEqual(asked, [0, 1]);
  await page.unrouteAll();
});

test('no page broke the content policy, asked another host or threw', () => {
  assert.deepEqual(browser.violations, []);
  assert.deepEqual(browser.errors, []);
});
