// How the ranks came together, generation by generation, and who did not come.
import type {JSX} from 'preact';
import {duration, plural, seconds, timeOfDay} from '../lib/format';
import type {JobEvent} from '../types';
import {now} from '../state/clock';
import {isOver, useAsk} from '../state/data';
import {Card, Empty, Grid, More, Name, Safe, Show} from '../ui/basics';
import type {JobPageProps} from './job';

const kAttempts = 20;
const kBars = 300;

interface NodeOf {node: string; node_rank?: number; ranks?: string | number; state?: string; report_age_seconds?: number; notes?: string[] | string}

interface Bar {label: string; from: number; to: number; kind: string}

/** The phases of one attempt as bars: each node's way to its call, then what all did together. */
export function waterfall(events: JobEvent[], attempt: number, end: number): Bar[] {
  const own = events.filter((event) => event.attempt === attempt);
  const at = (kind: string, generation?: number) => seconds(own.find((event) => event.kind === kind && (generation === undefined || event.generation === generation))?.time);
  const created = at('attempt_created');
  if (created === undefined) return [];
  const placed = at('attempt_placed');
  const bars: Bar[] = [{label: 'waiting for nodes', from: created, to: placed ?? end, kind: 'queue'}];
  for (const event of own) if (event.kind === 'agent_claimed' && placed !== undefined) bars.push({label: `${event.node ?? 'a node'} calls in`, from: placed, to: seconds(event.time) ?? end, kind: 'launch'});
  for (const event of own) {
    if (event.kind !== 'generation_started') continue;
    const n = event.generation;
    const start = seconds(event.time)!;
    const released = at('ranks_released', n);
    const running = at('ranks_started', n);
    const over = at('generation_ended', n) ?? end;
    bars.push({label: `generation ${n}: nodes get ready`, from: start, to: released ?? over, kind: 'rendezvous'});
    if (released !== undefined) bars.push({label: `generation ${n}: ranks start`, from: released, to: running ?? over, kind: 'rendezvous'});
  }
  return bars;
}

export function Rendezvous({job, events}: JobPageProps): JSX.Element {
  const {state} = useAsk<{items: NodeOf[]}>(job.started_at || job.attempts?.length ? `v1/jobs/${job.id}/nodes` : undefined, isOver(job) ? undefined : 3);
  const end = seconds(job.finished_at) ?? now.value;
  return <Show asked={events.value} what="events">{(list) => {
    const attempts = job.attempts ?? [];
    if (!attempts.length) return <Empty title="There was no attempt yet" />;
    return <>{[...attempts].reverse().slice(0, kAttempts).map((attempt) => {
      const bars = waterfall(list, attempt.number, end);
      const first = bars[0]?.from ?? 0;
      const last = Math.max(...bars.map((bar) => bar.to), first + 0.001);
      const missing = attempt.nodes.length && !attempt.generations.length && !attempt.finished_at ? attempt.nodes.filter((node) => !list.some((event) => event.kind === 'agent_claimed' && event.attempt === attempt.number && event.node === node)) : [];
      const refused = list.filter((event) => event.attempt === attempt.number && (event.kind === 'agent_refused' || event.kind === 'preflight' && event.data?.['check']));
      return <Card key={attempt.number} title={`Attempt ${attempt.number}`} aside={<span class="quiet">{plural(attempt.nodes.length, 'node')}{attempt.scheduler_id && ` · ${attempt.scheduler_id}`}</span>}>
        {missing.length > 0 && <p class="bad">Not here yet: <Safe text={missing.join(', ')} most={400} /></p>}
        {attempt.cause && attempt.cause.class === 'rendezvous_timeout' && <p class="bad"><Safe text={attempt.cause.message} most={600} /></p>}
        <table class="waterfall"><caption class="away">Phases of attempt {attempt.number}</caption><thead class="away"><tr><th scope="col">Phase</th><td /><th scope="col">Took</th></tr></thead><tbody>{bars.slice(0, kBars).map((bar, i) => <tr key={i}><th scope="row"><Safe text={bar.label} most={60} /></th><td class="waterfall-track"><span class={`phase phase-${bar.kind}`} style={{left: `${((bar.from - first) / (last - first)) * 100}%`, width: `max(2px, ${((bar.to - bar.from) / (last - first)) * 100}%)`}} title={`${timeOfDay(bar.from, true)} to ${timeOfDay(bar.to, true)}`} /></td><td class="right num">{duration(bar.to - bar.from)}</td></tr>)}</tbody></table><More of={bars.length} most={kBars} what="phase" />
        {refused.map((event) => <p key={event.seq} class="weight-warn"><span class="chip chip-warn">{event.kind.replace('_', ' ')}</span><Safe text={`${event.node ?? ''} ${JSON.stringify(event.data ?? {})}`} most={300} /></p>)}</Card>;
    })}
    <More of={attempts.length} most={kAttempts} what="attempt">, earlier ones</More>
    {state.value.value && state.value.value.items.length > 0 && <Card title="Nodes"><Grid label="Nodes of the job" heads={['Node', 'Ranks', 'State', '>Last heard']} rows={state.value.value.items.map((node) => [<Name of={node.node} />, node.ranks, node.state, node.report_age_seconds !== undefined && !isOver(job) && `${duration(node.report_age_seconds)} ago`])} /></Card>}</>;
  }}</Show>;
}
