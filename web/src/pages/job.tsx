// The frame around the pages of one job: its name, state and actions, and where else to look.
import type {JSX} from 'preact';
import {grafanaLink} from '../lib/export';
import {clock, dateTime, seconds} from '../lib/format';
import {sizeText, stateOf} from '../lib/story';
import {pointText} from '../lib/sweep';
import {clipped} from '../lib/text';
import type {Job} from '../types';
import {send, sendOnce} from '../state/api';
import {now} from '../state/clock';
import {isOver, useEvents, useJob, type Asked} from '../state/data';
import {jobHref, place} from '../state/router';
import {identity, mayAct, maySubmit} from '../state/session';
import type {JobEvent} from '../types';
import type {ReadonlySignal} from '@preact/signals';
import {ActionButton, CopyButton, Loading, Safe, State, Trouble} from '../ui/basics';
import {kTabs} from '../ui/shell';
import {useEffect} from 'preact/hooks';

export interface JobPageProps {
  job: Job;
  events: ReadonlySignal<Asked<JobEvent[]>>;
  rest: string[];
}

function Actions({job, again}: {job: Job; again: () => void}): JSX.Element {
  const may = mayAct(job.user);
  const runs = job.state === 'running';
  const act = (verb: string, said: string) => async () => {
    await send<Job>('POST', `v1/jobs/${job.id}/${verb}`);
    again();
    return said;
  };
  const actOnce = (verb: string, said: string) => async () => {
    const done = await sendOnce<Job & {already_done?: boolean}>(`v1/jobs/${job.id}/${verb}`);
    again();
    return done.already_done ? `The ${verb} had been done already: only its answer was lost` : said;
  };
  const grafana = identity.value?.grafana_url;
  return <span class="actions">
    {grafana && job.started_at && <a class="button" href={grafanaLink(grafana, 'job', job)} target="_blank" rel="noopener">Open in Grafana</a>}
    {maySubmit.value && <a class="button" href={`#/submit?from=${job.id}`}>Again with changes</a>}
    {may && !isOver(job) && <>
      <ActionButton label="Checkpoint" question="Ask the ranks for a checkpoint?" detail="They get the signal at which they write one, and go on." disabled={!runs} why="Nothing runs" act={actOnce('checkpoint', 'The ranks were asked for a checkpoint')} />
      <ActionButton label="Evidence" question="Look at the ranks now?" detail="Their stacks and states are taken; nothing is stopped. It is there some seconds later." disabled={!runs} why="Nothing runs" act={act('evidence', 'Evidence is being taken; it is on its page in some seconds')} />
      <ActionButton label="Restart" question="Start the ranks anew?" detail={`They are ended and start again in the same allocation, ${job.checkpoint_step !== undefined ? `from the checkpoint at step ${job.checkpoint_step}` : 'from the beginning: there is no checkpoint'}.`} disabled={!runs} why="Nothing runs" act={actOnce('restart', 'The ranks are being started anew')} />
      <ActionButton label="Cancel" tone="bad" question={`End ${job.name}?`} detail="Its ranks are asked to stop and then ended; nodes are given back. This cannot be undone." disabled={!!job.cancel_requested_at} why="It is being ended" act={act('cancel', 'The job is being ended')} />
    </>}</span>;
}

export function JobFrame({pages}: {pages: Record<string, (props: JobPageProps) => JSX.Element | null>}): JSX.Element {
  const id = place.value.path[1]!;
  const page = place.value.path[2] ?? '';
  const {state, again} = useJob(id);
  const events = useEvents(id);
  const {value: job, error} = state.value;
  useEffect(() => {
    document.title = job ? `${job.name} · ${job.state} · Lockstep` : 'Lockstep';
    return () => { document.title = 'Lockstep'; };
  }, [job?.name, job?.state]);
  // On a phone not all pages are in the row.
  const known = !!job;
  useEffect(() => document.querySelector('.tabs [aria-current]')?.scrollIntoView({block: 'nearest', inline: 'nearest'}), [page, known]);
  if (!job) return <div class="page"><h1 class="away">Job</h1>{error ? <Trouble error={error} again={again} /> : <Loading what="the job" rows={6} />}</div>;
  const start = seconds(job.started_at);
  const end = seconds(job.finished_at);
  const Body = pages[page];
  return <div class="page">
    <header class="job-head">
      <div class="job-title"><a class="up quiet" href="#/jobs">Jobs</a><span class="quiet" aria-hidden="true">/</span><h1><Safe text={job.name} most={80} /></h1><State state={stateOf(job)} /></div>
      <Actions job={job} again={again} />
      <p class="job-facts quiet"><span class="id">{job.id} <CopyButton text={job.id} label="Copy the id" /></span><span><bdi>{job.user}</bdi></span><span>{job.framework}</span><span>{sizeText(job)}</span>
        <span title={dateTime(start)}>{start === undefined ? `submitted ${dateTime(seconds(job.submitted_at))}` : end !== undefined ? `ran ${clock(end - start)}, ended ${dateTime(end)}` : `running for ${clock(now.value - start)}`}</span>
        {job.sweep && <a class="chip" href={`#/jobs?sweep=${job.sweep.id}`} title={clipped(pointText(job.sweep.parameters), 400)}>{job.sweep.index + 1} of {job.sweep.size} of a sweep</a>}
        {Object.entries(job.labels).map(([name, value]) => <a key={name} class="chip" href={`#/jobs?label=${encodeURIComponent(`${name}:${value}`)}`}><Safe text={`${name}:${value}`} most={40} /></a>)}</p>
    </header>
    <nav class="tabs" aria-label="Pages of the job">{kTabs.map(([key, title]) => <a key={key} href={jobHref(id, key)} aria-current={page === key ? 'page' : undefined}>{title}</a>)}</nav>
    {error && error.status !== 0 && <p class="offline" role="alert"><Safe text={error.message} /></p>}
    {Body ? <Body key={`${page}/${place.value.path[3] ?? ''}`} job={job} events={events} rest={place.value.path.slice(3)} /> : <p class="quiet">There is no such page.</p>}
  </div>;
}
