// What ranks did for some seconds: recorded now, shown as a flame graph and a table, and given away as files.
import {useSignal} from '@preact/signals';
import type {JSX} from 'preact';
import {useEffect} from 'preact/hooks';
import {dateTime, percent, plural, seconds, timeOfDay} from '../lib/format';
import {hottest, threads, type Frame} from '../lib/stacks';
import type {Captured, Profile, ProfileAsked} from '../types';
import {parameters, send, type ApiError} from '../state/api';
import {now} from '../state/clock';
import {isOver, useAsk} from '../state/data';
import {jobHref, place} from '../state/router';
import {mayAct} from '../state/session';
import {Card, Code, Empty, Grid, Safe, Segments, Show} from '../ui/basics';
import {Files, FileText, readable} from '../ui/save';
import type {JobPageProps} from './job';

const kSmallest = 0.004;  // of the width: what is narrower is not drawn
const kRows = 48;
const kThreads = 8;       // to choose from

/** A frame above its callees, as wide as it was often there. */
function Flame({frame, whole, zoom, rows = kRows}: {frame: Frame; whole: number; zoom: (frame: Frame) => void; rows?: number}): JSX.Element {
  const drawn = rows > 0 ? frame.callees.filter((one) => one.count >= whole * kSmallest) : [];
  const left = frame.count - drawn.reduce((sum, one) => sum + one.count, 0);
  return <div class="flame" style={{flexGrow: frame.count}}>
    <button type="button" tabIndex={-1} title={`${frame.name}: ${percent(frame.count / whole)}`} onClick={() => zoom(frame)}><Safe text={frame.name} /></button>
    {drawn.length > 0 && <div>{drawn.map((one) => <Flame key={one.name} frame={one} whole={whole} zoom={zoom} rows={rows - 1} />)}{left > 0 && <i style={{flexGrow: left}} />}</div>}</div>;
}

function Stacks({text}: {text: string}): JSX.Element {
  const all = threads(text);
  const chosen = useSignal(0);
  const near = useSignal<Frame | undefined>(undefined);
  const thread = all[chosen.value];
  if (!thread) return <p class="quiet">No Python was seen in these seconds.</p>;
  return <>
    {all.length > 1 && <Segments label="Thread" value={String(chosen.value)} options={all.slice(0, kThreads).map((one, i): [string, string] => [String(i), one.name.slice(0, 30)])} set={(i) => { chosen.value = Number(i); near.value = undefined; }} />}{all.length > kThreads && <span class="quiet"> and {all.length - kThreads} more in the file</span>}
    <Grid label={`Where ${thread.name} was`} heads={['Line of code', '>Share of its time']} rows={hottest(thread, 8).map(({name, self}) => [<Safe text={name} />, percent(self / thread.count)])} />
    <div class="row"><span class="quiet">Who called whom, as wide as it took{near.value ? <>; below <Safe text={near.value.name} most={80} /></> : ''}</span>{near.value && <button type="button" class="link-button" onClick={() => { near.value = undefined; }}>All of {thread.name}</button>}</div>
    <div class="flames" aria-hidden="true"><Flame frame={near.value ?? thread} whole={(near.value ?? thread).count} zoom={(frame) => { near.value = frame; }} /></div></>;
}

function Taken({job, one, newest}: {job: JobPageProps['job']; one: Profile; newest: boolean}): JSX.Element {
  const open = useSignal<{rank: number; file: Captured} | undefined>(newest ? one.ranks.flatMap(({rank, files}) => files.map((file) => ({rank, file}))).find(({file}) => readable(file)) : undefined);
  const path = (rank: number) => (name: string) => (offset: number) => `v1/jobs/${job.id}/profiles/${encodeURIComponent(name)}${parameters({attempt: one.attempt, generation: one.generation, profile: one.profile, rank, offset})}`;
  const shown = open.value;
  return <Card title={`Profile ${one.profile}, generation ${one.generation}${one.attempt > 1 ? ` of attempt ${one.attempt}` : ''}`} aside={<span class="quiet">{dateTime(seconds(one.time))} · <bdi>{one.by}</bdi> · {one.seconds} s</span>}>
    <p><Safe text={one.message} most={400} /></p>
    <ul class="plain">{one.ranks.map(({rank, node, files, missing}) => <li key={rank} class="row"><a href={jobHref(job.id, `ranks/${rank}`)}>rank {rank}</a><span class="quiet"><bdi>{node}</bdi></span><Files files={files} rank={rank} path={path(rank)} shown={shown?.rank === rank ? shown.file.name : undefined} show={(file) => { open.value = {rank, file}; }} />
      {missing.map((gap) => <span key={gap.what} class="quiet">no {gap.what === 'all' ? 'profile' : <Safe text={gap.what} />}: <Safe text={gap.why} /></span>)}</li>)}</ul>
    {shown && <FileText key={`${shown.rank} ${shown.file.name}`} path={path(shown.rank)(shown.file.name)} of={one.time} file={shown.file}>{(text) => (shown.file.name.endsWith('stacks.txt') ? <Stacks text={text} /> : <Code label={`${shown.file.name} of rank ${shown.rank}`} text={text} />)}</FileText>}</Card>;
}

export function Profiles({job}: JobPageProps): JSX.Element {
  const ranks = useSignal(place.value.query['ranks'] ?? '0');
  const length = useSignal('5');
  const wanted = useSignal<ProfileAsked & {until: number} | undefined>(undefined);
  const trouble = useSignal('');
  const {state, again} = useAsk<{items: Profile[]}>(`v1/jobs/${job.id}/profiles`, wanted.value ? 1 : isOver(job) ? undefined : 5);
  const asked = wanted.value;
  const here = asked && state.value.value?.items.some((one) => one.attempt === asked.attempt && one.generation === asked.generation && one.profile === asked.profile);
  useEffect(() => {
    if (here) wanted.value = undefined;
  }, [here]);
  const late = !!asked && now.value > asked.until;
  const record = async (event: Event) => {
    event.preventDefault();
    trouble.value = '';
    try {
      const answer = await send<ProfileAsked>('POST', `v1/jobs/${job.id}/profiles`, {...ranks.value.trim() && {ranks: ranks.value.trim()}, seconds: Number(length.value)});
      wanted.value = {...answer, until: Date.now() / 1000 + answer.patience_seconds + 5};
      again();
    } catch (error) {
      trouble.value = (error as ApiError).message;
    }
  };
  return <>
    {mayAct(job.user) && !isOver(job) && <Card title="Record now"><form class="row" aria-label="Record now" onSubmit={(event) => void record(event)}>
      <label class="field-inline">Ranks <input type="text" size={10} value={ranks.value} placeholder="first 16" spellcheck={false} onInput={(event) => { ranks.value = event.currentTarget.value; }} /></label>
      <label class="field-inline">Seconds <input type="number" min="1" max="60" required value={length.value} onInput={(event) => { length.value = event.currentTarget.value; }} /></label>
      <button class="button solid" disabled={job.state !== 'running' || (!!asked && !late)}>{asked && !late ? 'Recording…' : 'Record'}</button>
      <span class="quiet" role="status">{asked && (late ? 'There is no answer: lockstepd was started again meanwhile, or is busy.' : `${plural(asked.ranks.length, 'rank')} for ${asked.seconds} s, and the step before; here by ${timeOfDay(asked.until)}.`)}</span></form>
      {trouble.value && <p class="bad" role="alert"><Safe text={trouble.value} most={400} /></p>}</Card>}
    <Show asked={state.value} what="profiles" again={again}>{({items}) => (items.length === 0
      ? <Empty title="No profile was recorded">What ranks do for some seconds: where Python is, and with torch or JAX a trace, from scripts that nobody has prepared. Also <code>lockstep profile</code>.</Empty>
      : <>{items.map((one, i) => <Taken key={`${one.attempt} ${one.generation} ${one.profile}`} job={job} one={one} newest={i === 0} />)}<p class="quiet">trace.json.gz opens in Perfetto, ui.perfetto.dev, and in chrome://tracing.</p></>)}</Show></>;
}
