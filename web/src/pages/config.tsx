// The specification, the batch script, and what is different from a run before.
import type {JSX} from 'preact';
import {useMemo} from 'preact/hooks';
import {dateTime, seconds} from '../lib/format';
import {diffJson} from '../lib/spec';
import {download, fileName} from '../lib/export';
import type {Job, Page} from '../types';
import {get, getText} from '../state/api';
import {useAsk, useWork} from '../state/data';
import {query, setQuery} from '../state/router';
import {maySubmit} from '../state/session';
import {Card, Code, CopyButton, Empty, Grid, Safe, Show} from '../ui/basics';
import type {JobPageProps} from './job';

const side = (value: string | undefined, look: string) => (value === undefined ? <span class="quiet">not there</span> : <code class={`diff ${look}`}><Safe text={value} most={2000} /></code>);

export function Diff({a, b, names}: {a: unknown; b: unknown; names: [string, string]}): JSX.Element {
  const rows = useMemo(() => diffJson(a, b), [a, b]);
  if (!rows.length) return <Empty title="They say the same" />;
  return <Grid label="Differences" heads={['Field', ...names]} rows={rows.map((row) => [<code>{row.path}</code>, side(row.a, 'minus'), side(row.b, 'plus')])} />;
}

export function Config({job}: JobPageProps): JSX.Element {
  const {state: spec} = useAsk<Record<string, unknown>>(`v1/jobs/${job.id}/spec`);
  const {state: script} = useWork<string>(`script ${job.id}`, (stop) => getText(`v1/jobs/${job.id}/script`, stop));
  const {state: runs} = useAsk<Page<Job>>(`v1/jobs?name=${encodeURIComponent(job.name)}&limit=20&fields=id,name,state,submitted_at`);
  const earlier = (runs.value.value?.items ?? []).filter((one) => one.id !== job.id);
  const other = query.value['with'] ?? '';
  const {state: before} = useWork<Record<string, unknown>>(other ? `spec ${other}` : undefined, (stop) => get(`v1/jobs/${other}/spec`, stop));
  const text = JSON.stringify(spec.value.value, null, 2) ?? '';
  return <>
    {earlier.length > 0 && <Card title="Different from" aside={<select aria-label="Another run of that name" value={other} onChange={(event) => setQuery({with: event.currentTarget.value})}><option value="">choose a run of that name</option>{earlier.map((one) => <option key={one.id} value={one.id}>{dateTime(seconds(one.submitted_at))} {one.state}</option>)}</select>}>
      {other && <Show asked={before.value} what="the other specification">{(old) => (spec.value.value ? <Diff a={old} b={spec.value.value} names={['then', 'now']} /> : null)}</Show>}</Card>}
    <Card title="Specification" aside={<><CopyButton text={text} label="Copy the specification">Copy</CopyButton><button type="button" class="link-button" onClick={() => download(`${fileName(job.name)}.json`, text, 'application/json')}>Download</button>{maySubmit.value && <a class="button" href={`#/submit?from=${job.id}`}>Again with changes</a>}</>}>
      <Show asked={spec.value} what="the specification">{() => <Code label="Specification" text={text} most={1e6} />}</Show></Card>
    <Card title="Batch script">{script.value.error?.status === 404 ? <p class="quiet">The local scheduler uses none.</p> : <Show asked={script.value} what="the script">{(value) => <Code label="Batch script" text={value} most={1e6} />}</Show>}</Card>
    <Card title="From a shell"><Code label="Commands" text={`lockstep show ${job.id}\nlockstep top ${job.id}\nlockstep logs ${job.id} --rank 0 -f\nlockstep export ${job.id} --csv run.csv`} /></Card>
  </>;
}
