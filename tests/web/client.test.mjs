// /openapi.json is good enough for a typed client: the types are generated from a real lockstepd, the examples are compiled
// with them and run against it, what must not compile does not, and what is answered is what the schemas say.
import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import {after, before, test} from 'node:test';
import {Daemon, here, packageOf, prepared, source, until} from './support.mjs';

const daemon = new Daemon();
// Below what has been prepared, so that the packages are found.
const folder = path.join(prepared, 'client');
const at = (name) => path.join(folder, name);
const readme = fs.readFileSync(path.join(source, 'daemon/http/README.md'), 'utf8');
const blocks = (text, language) => [...text.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, 'gm'))].map((match) => match[1]);
let api;

before(async () => {
  fs.rmSync(folder, {recursive: true, force: true});
  fs.mkdirSync(folder, {recursive: true});
  await daemon.start();
  api = await daemon.api('GET', 'openapi.json');
});
after(() => daemon.cleanUp());

function run(program, ...parameters) {
  const done = spawnSync(program, parameters, {cwd: folder, encoding: 'utf8', timeout: 120_000, env: {...process.env, LOCKSTEP_URL: daemon.url.replace(/\/$/, ''), LOCKSTEP_TOKEN: daemon.token}});
  return {status: done.status, said: `${done.stdout}${done.stderr}${done.error ?? ''}`};
}
const tool = (name) => path.join(prepared, 'node_modules/.bin', name);
function compile(...files) {
  fs.writeFileSync(at('tsconfig.json'), JSON.stringify({files, compilerOptions: {strict: true, noUncheckedIndexedAccess: true, target: 'ES2022', module: 'ESNext', moduleResolution: 'Bundler',
    lib: ['ES2022', 'DOM', 'DOM.AsyncIterable'], types: ['node'], skipLibCheck: true, outDir: 'out'}}));
  return run(tool('tsc'), '-p', '.');
}

test('the types are made as the README says', () => {
  const [, command] = blocks(readme, 'sh').join('').match(/^npx (openapi-typescript .*)$/m);
  const [name, ...parameters] = command.split(' ');
  const {status, said} = run(tool(name), ...parameters.map((one) => one.replace('http://127.0.0.1:8470/', daemon.url)));
  assert.equal(status, 0, said);
  assert.match(fs.readFileSync(at('lockstep.d.ts'), 'utf8'), /submitJob/);
});

test("the README's program and every example of a specification compile, and the program runs", () => {
  const [program, ...more] = blocks(readme, 'ts');
  assert.equal(more.length, 0);
  fs.writeFileSync(at('package.json'), '{"type": "module"}');
  fs.writeFileSync(at('readme.ts'), program);
  const examples = fs.readdirSync(path.join(source, 'deploy/examples')).filter((name) => name.endsWith('.json')).map((name) => fs.readFileSync(path.join(source, 'deploy/examples', name), 'utf8'));
  const documents = [...examples, ...blocks(fs.readFileSync(path.join(source, 'README.md'), 'utf8'), 'json')];
  assert.ok(documents.length > 4);
  fs.writeFileSync(at('documents.ts'), `import type {components} from './lockstep';\nexport const documents: components['schemas']['JobSpec'][] = [\n${documents.join(',\n')}];\n`);
  const compiled = compile('readme.ts', 'documents.ts');
  assert.equal(compiled.status, 0, compiled.said);
  const {status, said} = run('node', 'out/readme.js');
  assert.equal(status, 0, said);
  assert.match(said, /^1 submitted$/m);
  assert.match(said, /^succeeded {2}\[ \[ [01], /m);
});

test('what is wrong does not compile, each mistake by itself', () => {
  const text = fs.readFileSync(path.join(here, 'wrong.ts'), 'utf8');
  fs.writeFileSync(at('wrong.ts'), text);
  const {status, said} = compile('wrong.ts');
  assert.notEqual(status, 0);
  const found = new Set([...said.matchAll(/^wrong\.ts\((\d+),/gm)].map((match) => Number(match[1])));
  const meant = text.split('\n').flatMap((line, index) => (line.endsWith('// wrong') ? [index + 1] : []));
  assert.ok(meant.length >= 10);
  assert.deepEqual([...found].sort((a, b) => a - b), meant, said);
});

// Nothing may be answered that the schemas do not describe: objects are closed, but for those that are put together.
function closed(schema, parts) {
  if (Array.isArray(schema)) return schema.map((one) => closed(one, parts));
  if (typeof schema !== 'object' || schema === null) return schema;
  const out = Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, key === 'example' || key === 'examples' ? undefined : closed(value, parts)]));
  if (schema.properties && !('additionalProperties' in schema) && !parts.has(schema)) out.additionalProperties = false;
  return out;
}
function validators() {
  const Ajv = packageOf('ajv/dist/2020.js').default;
  const parts = new Set();
  for (const {allOf = []} of Object.values(api.components.schemas)) {
    for (const part of allOf) parts.add(part.$ref ? api.components.schemas[part.$ref.split('/').pop()] : part);
  }
  const ajv = new Ajv({strict: false, validateFormats: false, allErrors: true});
  ajv.addSchema({$id: 'lockstep', components: {schemas: closed(api.components.schemas, parts)}});
  return (name) => ajv.getSchema(`lockstep#/components/schemas/${name}`);
}
const nameOf = (content) => content?.['application/json']?.schema?.$ref?.split('/').pop();

test('every example is what its schema says', () => {
  const valid = validators();
  let checked = 0;
  for (const item of Object.values(api.paths)) {
    for (const operation of Object.values(item)) {
      for (const {content} of [operation.requestBody ?? {}, ...Object.values(operation.responses)]) {
        const name = nameOf(content);
        const example = content?.['application/json']?.example;
        if (!name || example === undefined) continue;
        const check = valid(name);
        assert.ok(check(example), `${operation.operationId}: ${JSON.stringify(check.errors, null, 1)}`);
        checked++;
      }
    }
  }
  assert.ok(checked > 30, `${checked} examples`);
});

/** Page by page from the newest event on is what it is from the first one on, the other way round. */
async function newestFirst(id, ask) {
  const all = (await ask('?limit=1000')).items.map(({seq}) => seq);
  assert.ok(all.length > 6, `${all}`);
  const found = [];
  for (let before; ;) {
    const page = await ask(`?order=desc&limit=3${before ? `&before=${before}` : ''}`);
    found.push(...page.items.map(({seq}) => seq));
    before = page.next_cursor;
    if (!before) break;
    assert.equal(page.items.length, 3);
  }
  assert.deepEqual(found, all.reverse());
  for (const wrong of ['order=up', 'order=desc&after=3', 'before=3']) assert.equal((await daemon.request('GET', `v1/jobs/${id}/events?${wrong}`)).status, 400, wrong);
}

test('what lockstepd answers is what the schemas say, and all of it is described', async () => {
  const valid = validators();
  const asked = new Set();
  async function look(method, route, {path: where = route, body, query = ''} = {}) {
    const operation = api.paths[route][method];
    const success = Object.keys(operation.responses).find((code) => code.startsWith('2'));
    const answer = await daemon.api(method.toUpperCase(), where.slice(1) + query, body);
    const name = nameOf(operation.responses[success].content);
    const check = valid(name);
    assert.ok(check(answer), `${method} ${where}${query}, ${name}: ${JSON.stringify(check.errors, null, 1)}\n${JSON.stringify(answer)}`);
    asked.add(operation.operationId);
    return answer;
  }
  const command = (text) => ({name: 'a', framework: 'command', command: ['/usr/bin/python3', '-c', text], setup: 'true', environment: {A: 'b'}, resources: {ranks_per_node: 2, time_limit: '10:00'}});
  const bad = await look('post', '/v1/jobs', {body: command('print("step=1 loss=nan", flush=True)\nraise KeyError("labels")')});
  await look('post', '/v1/jobs', {body: {...command('print("{x}")'), sweep: {parameters: {x: [1, 2]}, max_parallel: 1}}});
  await look('post', '/v1/jobs/render', {body: command('pass')});
  await daemon.waitFor(bad.id, (job) => job.state === 'failed', 'it fails');
  const id = (rest) => ({path: `/v1/jobs/${bad.id}${rest}`});
  await look('get', '/v1/jobs');
  await look('get', '/v1/jobs', {query: '?fields=id,state'});
  const failed = await look('get', '/v1/jobs/{id}', id(''));
  assert.equal(failed.cause.exception.type, 'KeyError');
  for (const rest of ['/spec', '/events', '/ranks', '/nodes', '/evidence', '/disk', '/metrics', '/samples']) await look('get', `/v1/jobs/{id}${rest}`, id(rest));
  await newestFirst(bad.id, (query) => look('get', '/v1/jobs/{id}/events', {...id('/events'), query}));
  for (const query of ['', '?metric=loss,step_seconds', '?stat=min,median&worst=2&x=time']) await look('get', '/v1/jobs/{id}/series', {...id('/series'), query});
  await look('get', '/v1/jobs/{id}/logs/search', {...id('/logs/search'), query: '?q=KeyError'});
  await look('get', '/v1/cluster');
  const {items: [node]} = await look('get', '/v1/nodes');
  await look('get', '/v1/nodes/{name}', {path: `/v1/nodes/${node.name}`});
  await look('post', '/v1/tokens', {body: {name: 'a'}});
  for (const route of ['/v1/tokens', '/v1/whoami', '/healthz', '/readyz', '/v1/prometheus/targets']) await look('get', route);
  const {code} = await look('post', '/v1/session/codes');
  await look('post', '/v1/session', {body: {code}});
  const noAgent = async () => /^lockstep_agents_connected 0$/m.test(await (await daemon.request('GET', 'metrics')).text());
  await until(noAgent, 'its agents have left');
  await look('delete', '/v1/jobs/{id}', id(''));
  assert.ok(asked.size >= 22, [...asked].join(' '));
});
