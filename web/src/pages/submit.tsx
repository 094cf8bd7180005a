// Submitting: a form made of the API's own schema and the same document as text. What lockstepd would say is said while it
// is typed; what it would run is shown before it does.
import {batch, useSignal} from '@preact/signals';
import type {JSX} from 'preact';
import {useEffect, useLayoutEffect, useMemo, useRef} from 'preact/hooks';
import {dateTime, plural, seconds} from '../lib/format';
import {joinCommand, jsonOf, numberOf, resolve, splitCommand, valueAt, withoutMasked, withValue, type Schema} from '../lib/spec';
import {keep, kept, keyOf, settle} from '../lib/kept';
import {parameterLines, parametersOf, pointText} from '../lib/sweep';
import {clipped} from '../lib/text';
import {asTyped, readDocument, type Typed} from '../lib/yaml';
import type {Job, Render} from '../types';
import {ApiError, ask, send} from '../state/api';
import {useAsk} from '../state/data';
import {formatPlace, jobHref, query, setQuery} from '../state/router';
import {identity, maySubmit} from '../state/session';
import {Card, Code, Empty, Safe, Segments, Show, say} from '../ui/basics';
import {Diff} from './config';

type Document_ = Record<string, unknown>;
type Schemas = Record<string, Schema>;

const kFirst = ['name', 'framework', 'command', 'working_directory'];
const kHidden = ['recorded_environment', 'resources', 'train', 'sweep'];
const kStart: Document_ = {name: '', framework: 'pytorch', command: [], resources: {nodes: 1, ranks_per_node: 1}};
/** No answer about what was asked: the same may have another one soon. */
const isPassing = ({status = 0}: Partial<ApiError>) => status <= 0 || status >= 500 || status === 408 || status === 429;
/** What was written, until it is submitted or the tab is closed. `typed`: by hand, where the text was made of it. */
interface Draft extends Typed {typed?: Typed}

interface FieldProps {
  path: string[]; schema: Schema; all: Schemas; value: unknown; set: (path: string[], value: unknown) => void; errors: Map<string, string>; required?: boolean;
}

const title = (name: string) => (name.charAt(0).toUpperCase() + name.slice(1).replace(/_/g, ' ')).replace(/\b[CG]pus?\b/i, (word) => word.slice(0, 3).toUpperCase() + word.slice(3)).replace(/ mb\b/, ' (MiB)');

/** One field of the specification, by its type. */
function Field({path, schema: raw, all, value, set, errors, required}: FieldProps): JSX.Element {
  const schema = resolve(raw, all);
  const name = path[path.length - 1]!;
  const id = `f-${path.join('-')}`;
  const pointer = `/${path.join('/')}`;
  // Of a value that is in one field, though it has parts, the first error.
  const error = errors.get(pointer) ?? [...errors].find(([key]) => key.startsWith(`${pointer}/`))?.[1];
  const kind = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  /** As it is typed, while it is. */
  const text = useSignal<string | undefined>(undefined);
  const open = useSignal(false);
  if (kind === 'object' && schema.properties) {
    const used = value !== undefined;
    // What is open stays so when its last value is taken away, to type another one.
    return <details class="group" onToggle={(event) => { open.value = event.currentTarget.open; }} open={open.value || used || !!error}><summary>{title(name)}{used && <span class="chip">set</span>}</summary>
      <p class="quiet"><Safe text={schema.description ?? ''} most={600} /></p>
      <div class="fields">{Object.entries(schema.properties).filter(([, one]) => !one.deprecated).map(([key, one]) => <Field key={key} path={[...path, key]} schema={one} all={all} value={valueAt(value, [key])} set={set} errors={errors} />)}</div></details>;
  }
  const common = {id, 'aria-invalid': error ? true : undefined, 'aria-describedby': `${id}-hint${error ? ` ${id}-error` : ''}`, required};
  const hint = schema.default !== undefined && schema.default !== '' ? String(schema.default) : '';
  let control: JSX.Element;
  const area = (shown: string, parse: (typed: string) => unknown, rows: number, placeholder = '') => <textarea {...common} rows={Math.max(rows, Math.min(10, shown.split('\n').reduce((n, line) => n + Math.ceil(line.length / 32), 0)))} spellcheck={false} placeholder={placeholder} value={text.value ?? shown}
    onInput={(event) => { text.value = event.currentTarget.value; set(path, parse(event.currentTarget.value)); }} onBlur={() => { text.value = undefined; }} />;
  if (schema.enum) {
    control = <select {...common} value={String(value ?? '')} onChange={(event) => set(path, event.currentTarget.value || undefined)}>{(!required || value === undefined) && <option value="">{hint ? `${hint} (default)` : ''}</option>}{schema.enum.map((one) => <option key={one} value={one}>{one}</option>)}</select>;
  } else if (kind === 'boolean') {
    control = <select {...common} value={value === undefined ? '' : String(value)} onChange={(event) => set(path, event.currentTarget.value === '' ? undefined : event.currentTarget.value === 'true')}><option value="">{schema.default === true ? 'yes (default)' : 'no (default)'}</option><option value="true">yes</option><option value="false">no</option></select>;
  } else if (kind === 'integer' || kind === 'number') {
    // Of a field of type number the page is not told what is half written, as "1e-" is; and a phone's digits alone write no 1e-4.
    control = <input {...common} type="text" inputMode={kind === 'integer' && (schema.minimum ?? -1) >= 0 ? 'numeric' : undefined} autocomplete="off" placeholder={hint} value={text.value ?? (value === undefined ? '' : String(value))}
      onInput={(event) => { text.value = event.currentTarget.value; set(path, numberOf(event.currentTarget.value)); }} onBlur={() => { text.value = undefined; }} />;
  } else if (name === 'command') {
    control = area(Array.isArray(value) ? joinCommand(value.map(String)) : '', (typed) => (typed.trim() ? splitCommand(typed) : undefined), 2, 'python3 train.py --lr 0.1');
  } else if (kind === 'array' && resolve(schema.items ?? {}, all).type === 'string') {
    control = area(Array.isArray(value) ? value.join('\n') : '', (typed) => (typed.trim() ? typed.split('\n').map((line) => line.trim()).filter(Boolean) : undefined), 2, 'one per line');
  } else if (pointer === '/sweep/parameters') {
    control = area(value && typeof value === 'object' ? parameterLines(value as Record<string, unknown[]>) : '', parametersOf, 3, 'lr=0.1,0.01\nseed=1..3');
  } else if (kind === 'object' && typeof schema.additionalProperties === 'object' && schema.additionalProperties.type === 'string') {
    control = area(Object.entries((value as Record<string, string>) ?? {}).map(([key, one]) => `${key}=${one}`).join('\n'),
      (typed) => (typed.trim() ? Object.fromEntries(typed.split('\n').filter((line) => line.trim()).map((line) => [line.split('=', 1)[0]!.trim(), line.includes('=') ? line.slice(line.indexOf('=') + 1) : ''])) : undefined), 2, 'NAME=value, one per line');
  } else if (kind === 'string') {
    control = name === 'setup' ? area(String(value ?? ''), (typed) => typed || undefined, 3, 'module load cuda/12')
      : <input {...common} type="text" spellcheck={false} autocomplete="off" placeholder={hint || String(schema.examples?.[0] ?? '')} value={String(value ?? '')} onInput={(event) => set(path, event.currentTarget.value || undefined)} />;
  } else {
    control = area(value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value), jsonOf, 2, 'JSON');
  }
  return <div class={`field ${error ? 'field-bad' : ''}`}><label for={id}>{title(name)}{required && <span class="quiet"> required</span>}</label>{control}
    {error && <p class="bad" id={`${id}-error`}><Safe text={error} most={300} /></p>}<p class="quiet hint" id={`${id}-hint`}>{clipped(`${pointer === '/sweep/parameters' ? 'A line each: NAME=VALUE,VALUE; 1..4 is 1,2,3,4. ' : ''}${schema.description ?? ''}`, 1000)}</p></div>;
}

function Preview({render, warnings, estimate}: {render: Render; warnings: string[]; estimate: Render['start_estimate']}): JSX.Element {
  const {start, nodes, message} = estimate ?? {};
  const {sweep} = render;
  return <>
    {sweep && <p><b>{plural(sweep.size, 'job')}</b>, one for each combination of the values. This is the first: <Safe text={pointText(sweep.parameters)} most={400} /></p>}
    <p><b>{render.ranks !== undefined && plural(render.ranks, 'rank')}</b>{render.nodes !== undefined && ` on ${plural(render.nodes, 'node')}`}{start && <> · would start about <b>{dateTime(seconds(start))}</b>{nodes && <> on <Safe text={nodes} most={60} /></>}</>}</p>
    {message && <p class="weight-warn"><span class="chip chip-warn">Slurm says</span><Safe text={message} most={400} /></p>}
    {warnings.map((text) => <p key={text} class="weight-warn"><span class="chip chip-warn">warning</span><Safe text={text} most={400} /></p>)}
    <h3>Each rank runs</h3><Code label="Command" text={joinCommand(render.command)} />
    {render.script && <><h3>Batch script</h3><Code label="Batch script" text={render.script} /></>}
    <details><summary>Its environment, of rank 0 ({Object.keys(render.environment).length})</summary><Code label="Environment" text={Object.entries(render.environment).map(([name, value]) => `${name}=${value}`).join('\n')} /></details></>;
}

export function Submit(): JSX.Element {
  const {state: api} = useAsk<{components: {schemas: Schemas}}>('openapi.json');
  const from = query.value['from'];
  const {user} = useMemo(() => identity.peek()!, []);
  const draft = useMemo(() => kept<Draft>('draft', user, from), []);
  /** The text that it begins with; that of a job is on its way at first. */
  const begun = useSignal(from ? undefined : JSON.stringify(kStart, null, 2));
  const text = useSignal(draft?.text ?? begun.value ?? '');
  /** What the text is written in. */
  const isYaml = useSignal(draft?.yaml ?? false);
  const typed = useRef<Typed>(draft?.typed ?? {text: text.peek(), yaml: isYaml.peek()});
  const write = (next: Typed, byHand = true) => batch(() => {
    if (byHand) typed.current = next;
    text.value = next.text;
    isYaml.value = next.yaml;
  });
  const render = useSignal<Render | undefined>(undefined);
  const estimate = useSignal<Render['start_estimate']>(undefined);
  const problems = useSignal<{pointer: string; message: string}[]>([]);
  const refused = useSignal('');
  const checking = useSignal(false);
  const rendered = useRef<unknown>(undefined);  // the text that `render` is of
  /** Counts how often what was shown was no longer so. */
  const stale = useSignal(0);
  const lost = useSignal<unknown>(undefined);  // the text whose submission had no answer
  const busy = useSignal(false);
  const tried = useSignal(false);
  const as = query.value['as'];
  const asText = as === 'text' || as === 'yaml';
  const {state: shown, again} = useAsk<Document_>(from ? `v1/jobs/${from}/spec` : undefined);
  const original = shown.value.value;
  const {spec: whole, masked} = useMemo(() => withoutMasked(original ?? {}), [original]);
  const restart = () => write({text: begun.value!, yaml: false});
  useLayoutEffect(() => {
    if (!original || begun.peek() !== undefined) return;
    begun.value = JSON.stringify(whole, null, 2);
    if (!draft) restart();
  }, [original]);
  const here = useRef(true);
  useEffect(() => () => { here.current = false; }, []);
  const parsed = useMemo((): {value?: Document_; error?: string} => {
    try {
      const value = readDocument({text: text.value, yaml: isYaml.value});
      return value && typeof value === 'object' && !Array.isArray(value) ? {value: value as Document_} : {error: 'A specification is an object: { … }'};
    } catch (error) {
      return {error: (error as Error).message};
    }
  }, [text.value, isYaml.value]);
  // The text is written anew in the other language, not for a look at the form; what cannot be read stays as it is until it can.
  useLayoutEffect(() => {
    const want = as === 'yaml';
    if (asText && want !== isYaml.value && parsed.value) write(asTyped(parsed.value, typed.current, want), false);
  }, [as, parsed]);
  // Before anything is drawn: what is left at once is there again, too.
  useLayoutEffect(() => {
    if (begun.value !== undefined || draft) keep('draft', user, text.value === begun.value ? undefined : {text: text.value, yaml: isYaml.value, typed: typed.current} satisfies Draft, from);
  }, [parsed]);
  useEffect(() => {
    if (!parsed.value) {
      render.value = undefined;
      problems.value = [];
      return;
    }
    const stop = new AbortController();
    checking.value = true;
    estimate.value = undefined;
    // The scheduler plans a start for it: asked only once the typing has stopped.
    const later = setTimeout(() => void (async () => {
      if (render.value?.scheduler !== 'slurm') return;  // no other can tell
      try {
        const response = await ask('POST', 'v1/jobs/render?estimate=true', {body: parsed.value, signal: stop.signal});
        if (response.ok && !stop.signal.aborted) estimate.value = (await response.json() as Render).start_estimate;
      } catch {
        // without it
      }
    })(), 1500);
    const check = async () => {
      let error: ApiError | undefined;
      const found = await send<Render>('POST', 'v1/jobs/render', parsed.value, {}, stop.signal).catch((failed: ApiError) => { error = failed; });
      if (stop.signal.aborted) return;  // typed on: the next one says
      refused.value = !error || error.problem?.errors?.length ? '' : error.message;
      if (error && isPassing(error)) {
        timer = setTimeout(() => void check(), 3000);
        return;
      }
      rendered.current = parsed;
      render.value = found ?? undefined;
      problems.value = error?.problem?.errors ?? [];
      checking.value = false;
    };
    let timer = setTimeout(() => void check(), 250);
    return () => {
      clearTimeout(timer);
      clearTimeout(later);
      stop.abort();
    };
  }, [parsed, stale.value]);
  if (!maySubmit.value) return <Empty title="Your token may not submit jobs">A viewer reads; ask for a token of role user.</Empty>;
  if (from && !original && !draft) return <div class="page"><h1 class="page-title">Again with changes</h1><Show asked={shown.value} what="the specification" again={again}>{() => null}</Show></div>;
  const spec = parsed.value ?? {};
  const set = (path: string[], value: unknown) => write(asTyped(withValue(spec, path, value), typed.current), false);
  // A form that nobody has touched is not full of errors.
  const fresh = !tried.value && !from && JSON.stringify(spec) === JSON.stringify(kStart);
  const errors = new Map(fresh ? [] : problems.value.map((one) => [one.pointer, one.message]));
  // What is sent is what was shown: not while the answer is of an older text.
  const current = rendered.current === parsed ? render.value : undefined;
  const submit = async () => {
    tried.value = true;
    if (!current || !parsed.value || busy.peek()) return;
    busy.value = true;
    lost.value = undefined;
    const body = JSON.stringify(parsed.value);
    try {
      const job = await send<Job>('POST', 'v1/jobs', body, {'Idempotency-Key': keyOf(user, body), ...current.render_hash && {'If-Match': `"${current.render_hash}"`}});
      settle(user, body, 201);
      keep('draft', user, undefined, from);
      say(job.sweep ? `${plural(job.sweep.size, 'job was', 'jobs were')} submitted` : `${job.name} was submitted`);
      if (here.current) location.hash = job.sweep ? formatPlace(['jobs'], {sweep: job.sweep.id}) : jobHref(job.id);
    } catch (failed) {
      const error = failed as ApiError;
      settle(user, body, error.status ?? 0);
      if (isPassing(error) && error.status !== 429) lost.value = parsed;
      problems.value = error.problem?.errors ?? [];
      if (error.status === 412) {
        rendered.current = undefined;
        stale.value++;
      }
      say(error.message, true);
    }
    busy.value = false;
  };
  const all = api.value.value?.components.schemas;
  const top = all?.['JobSpec']?.properties ?? {};
  const field = (name: string, inner?: string) => {
    const schema = inner ? resolve(top[name] ?? {}, all!).properties?.[inner] : top[name];
    const path = inner ? [name, inner] : [name];
    return schema && <Field key={path.join()} path={path} schema={schema} all={all!} value={valueAt(spec, path)} set={set} errors={errors} required={name === 'name' || name === 'framework'} />;
  };
  const grouped = (name: string) => !!resolve(top[name] ?? {}, all!).properties;
  const native = spec['framework'] === 'native';
  const who = identity.value;
  // A browser cannot sign; what is written here is handed in where munge is.
  const signed = who?.identity === 'lockstep-exec';
  return <div class="page">
    <header class="job-head"><div class="job-title"><h1>{from ? 'Again with changes' : 'Submit a job'}</h1></div>
      {begun.value !== undefined && text.value !== begun.value && <button type="button" class="link-button" onClick={restart}>Start over</button>}
      <Segments label="Written as" value={asText ? as : ''} options={[['', 'Form'], ['text', 'JSON'], ['yaml', 'YAML']]} set={(as) => setQuery({as})} /></header>
    {who?.shared_account && <p class="weight-warn"><span class="chip chip-warn">shared account</span>Jobs of all users run as <Safe text={who.account ?? 'one user'} most={60} /> here: each can read the others' files and end their jobs.</p>}
    {signed && <p class="weight-warn"><span class="chip chip-warn">to be signed</span>Submissions are signed on this cluster, which a browser cannot do: check the specification here, copy it from JSON or YAML into a file, and <code>lockstep submit</code> it on a machine of the cluster.</p>}
    {masked.length > 0 && <p class="weight-warn"><span class="chip chip-warn">left out</span><Safe text={masked.join(', ')} most={400} />: values of its environment or whom it tells, which only its owner is shown</p>}
    <div class="submit-grid">
      <form class="card" aria-label="Specification" onSubmit={(event) => { event.preventDefault(); void submit(); }} noValidate>
        {asText || parsed.error ? <div class="field"><label for="text">Specification, as <code>lockstep submit</code> reads it{!isYaml.value && '; comments are allowed'}</label>
          <textarea id="text" class="editor" spellcheck={false} rows={30} value={text.value} aria-invalid={parsed.error ? true : undefined} onInput={(event) => write({text: event.currentTarget.value, yaml: isYaml.value})} />{parsed.error && <p class="bad" role="alert"><Safe text={parsed.error} /></p>}</div>
          : <Show asked={api.value} what="the form">{() => <>
            <div class="fields">{kFirst.filter((name) => name !== 'command' || !native).map((name) => field(name))}{['nodes', 'ranks_per_node', 'gpus_per_node', 'time_limit'].map((name) => field('resources', name))}</div>
            {native && field('train')}
            <details class="group"><summary>More of resources</summary><div class="fields">{['cpus_per_rank', 'memory_mb_per_node', 'gpu_type', 'spares', 'min_nodes', 'binding'].map((name) => field('resources', name))}</div></details>
            <div class="fields fields-more">{['setup', 'environment'].map((name) => field(name))}</div>
            {field('sweep')}
            {Object.keys(top).filter((name) => !kFirst.includes(name) && !kHidden.includes(name) && grouped(name)).map((name) => field(name))}
            <details class="group"><summary>Launch, order, labels</summary><div class="fields">{Object.keys(top).filter((name) => ![...kFirst, ...kHidden, 'setup', 'environment'].includes(name) && !grouped(name)).map((name) => field(name))}</div></details></>}</Show>}
        <div class="row end submit-row">{lost.value === parsed && <span role="status">Whether lockstepd has taken it is not known. Submit it again: it is not started twice.</span>}{errors.size > 0 && <span class="bad" role="status">{plural(errors.size, 'error')} to fix</span>}
          <button type="submit" class="button solid" disabled={busy.value || !current || signed}>{busy.value ? 'Submitting…' : current?.sweep ? `Submit ${plural(current.sweep.size, 'job')}` : 'Submit'}</button></div>
      </form>
      <div>
        <Card title="What would run" aside={<span class="quiet" role="status">{checking.value ? 'asking lockstepd…' : ''}</span>}>
          {render.value ? <Preview render={render.value} warnings={render.value.warnings} estimate={estimate.value} />
            : fresh ? <p class="quiet">Say what to run; lockstepd answers here as you type.</p>
            : refused.value ? <p class="bad"><Safe text={refused.value} most={500} /></p>
            : <div role="status"><ul class="plain">{problems.value.map((one) => <li key={one.pointer + one.message} class="bad"><code><Safe text={one.pointer} most={100} /></code> <Safe text={one.message} most={300} /></li>)}</ul></div>}</Card>
        {original && parsed.value && <Card title="Different from the job it was"><Diff a={original} b={parsed.value} names={['then', 'now']} /></Card>}
      </div></div></div>;
}
