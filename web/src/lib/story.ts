// What happened to a job, from its events and attempts: sentences, marks on a time axis, phases.
import type {Cause, Generation, Job, JobEvent, Page} from '../types';
import {count, plural, seconds, timeOfDay} from './format';

export type Weight = 'bad' | 'warn' | 'good' | 'plain' | 'quiet';

const text = (value: unknown): string => (typeof value === 'string' ? value : typeof value === 'number' ? String(value) : '');

const kAnomalies: Record<string, string> = {
  straggler: 'slow rank', nonfinite: 'not a number', grad_norm_spike: 'gradient spike',
  divergence: 'loss diverges', data_starved: 'waits for data', rank_silent: 'silent rank',
};
/** What the detector says, without the score that it decided by. */
export const plainly = (message: unknown): string => text(message).replace(/ \(score [^)]*\)/, '');
export const anomalyName = (kind: string): string => kAnomalies[kind] ?? kind.replace(/_/g, ' ');

/** Ended, but not by a failure: somebody asked for it, or a node is back. */
const kAsked = ['cancelled_by_user', 'restart_requested', 'node_returned'];
export const isFailure = (cause: Partial<Cause> | undefined): boolean => !!cause?.message && !kAsked.includes(cause.class!);

/** One sentence about an event, and how much it matters. */
export function describe(event: JobEvent): {text: string; weight: Weight} {
  const d = event.data ?? {};
  const rank = event.rank !== undefined ? `rank ${event.rank}` : '';
  const node = event.node ?? '';
  const where = [rank, node && `on ${node}`].filter(Boolean).join(' ');
  const cause = (d['cause'] ?? {}) as Partial<Cause>;
  switch (event.kind) {
    case 'submitted': return {text: `Submitted by ${text(d['user'])}`, weight: 'plain'};
    case 'attempt_created': return {text: `Attempt ${event.attempt} begins`, weight: 'quiet'};
    case 'attempt_placed': return {text: `Attempt ${event.attempt} has nodes${d['scheduler_id'] ? ` (${text(d['scheduler_id'])})` : ''}`, weight: 'plain'};
    case 'agent_claimed': return {text: `${node || 'A node'} called in`, weight: 'quiet'};
    case 'agent_refused': return {text: `${node || 'A node'} was sent away: ${text(d['reason']) || text(d['message'])}`, weight: 'warn'};
    case 'dependency_failed': return {text: 'A job that this one was to follow has not succeeded', weight: 'bad'};
    case 'preflight': return {text: d['check'] ? `Pre-flight ${text(d['severity'])}: ${node} ${text(d['check'])}: found ${text(d['found'])}, expected ${text(d['expected'])}` : 'Pre-flight passed', weight: d['severity'] === 'fail' ? 'bad' : d['severity'] === 'warn' ? 'warn' : 'plain'};
    case 'generation_started': {
      const from = Number(d['resumed_from_step'] ?? -1);
      return {text: `Generation ${event.generation} is made up${from >= 0 ? `, from step ${count(from)}` : ''}${d['message'] ? `: ${text(d['message'])}` : ''}`, weight: d['message'] ? 'warn' : 'plain'};
    }
    case 'ranks_released': return {text: 'Every node is ready', weight: 'quiet'};
    case 'ranks_started': {
      const warm = Number(d['warm'] ?? 0);
      return {text: `Every rank runs${warm > 0 ? `; ${plural(warm, 'was a warm standby', 'were warm standbys')}` : ''}`, weight: 'plain'};
    }
    case 'rank_exited': {
      const code = d['exit_code'];
      const signal = d['signal'];
      if (d['stopped']) return {text: `${where} was stopped`, weight: 'quiet'};
      if (code === 0) return {text: `${where} ended`, weight: 'quiet'};
      const how = signal ? `was ended by signal ${text(signal)}` : `failed with exit code ${text(code)}`;
      return {text: `${where} ${how}${d['error_type'] ? `: ${text(d['error_type'])}: ${text(d['error'])}` : ''}${d['failure'] ? ` (${text(d['failure'])})` : ''}`, weight: 'bad'};
    }
    case 'gpu_xid': return {text: `GPU ${text(d['gpu'])} ${node && `of ${node} `}reported Xid ${text(d['xid'])}${rank && ` (${rank})`}`, weight: 'bad'};
    case 'fault': return {text: `${where ? `${where}: ` : ''}${text(d['message']) || text(cause.message) || 'a fault'}`, weight: 'bad'};
    case 'evidence_taken': return {text: `Evidence was taken: ${text(d['message']).replace(/^had: /, '') || text(d['reason'])}`, weight: 'plain'};
    case 'profile_taken': return {text: `${text(d['by'])} took a profile: ${text(d['message'])}`, weight: 'plain'};
    case 'checkpoint_requested': return {text: `A checkpoint was asked for by ${text(d['by']) || 'somebody'}`, weight: 'plain'};
    case 'checkpoint_saved': return {text: `Checkpoint at step ${count(Number(d['step']))}`, weight: 'good'};
    case 'anomaly': return {text: `${anomalyName(text(d['anomaly']))}${where ? `, ${where}` : ''}${d['step'] !== undefined ? `, step ${count(Number(d['step']))}` : ''}: ${plainly(d['message'])}${d['over'] ? ' (over)' : ''}`, weight: d['over'] ? 'good' : 'warn'};
    case 'warning': return {text: text(d['message']), weight: 'warn'};
    case 'generation_ended': case 'attempt_ended': {
      const what = event.kind === 'generation_ended' ? `Generation ${event.generation}` : `Attempt ${event.attempt}`;
      return {text: `${what} is over${cause.message ? `: ${cause.message}` : ''}`, weight: isFailure(cause) ? 'bad' : 'plain'};
    }
    case 'cancel_requested': return {text: `${text(d['by']) || 'Somebody'} asked for the end`, weight: 'plain'};
    case 'restart_requested': return {text: text(d['reason']) || `${text(d['by']) || 'Somebody'} asked for the ranks to be started anew`, weight: 'plain'};
    case 'finished': return {text: `Finished: ${text(d['state'])}${cause.message ? `: ${cause.message}` : ''}`, weight: d['state'] === 'succeeded' ? 'good' : d['state'] === 'failed' ? 'bad' : 'plain'};
    default: return {text: `${event.kind.replace(/_/g, ' ')}${where ? ` ${where}` : ''}${d['message'] ? `: ${text(d['message'])}` : ''}`, weight: 'plain'};
  }
}

export interface StoryMark {
  kind: 'restart' | 'checkpoint' | 'anomaly' | 'failure' | 'nonfinite';
  /** Of a restart: not after a failure. */
  asked?: boolean;
  step?: number;
  time?: number;
  label: string;
  rank?: number;
}

/** When what ended it was asked for, or as good as. */
export const askedAt = ({finished_at}: Generation): string => (finished_at ? ` at ${timeOfDay(seconds(finished_at))}` : '');

/** Restarts, failures, checkpoints and anomalies of a job. */
export function marksOf(job: Job, events: JobEvent[]): StoryMark[] {
  const out: StoryMark[] = [];
  const over = (event: JobEvent) => !!event.data?.['over'];
  for (const event of events) {
    const at = seconds(event.time);
    const step = typeof event.data?.['step'] === 'number' ? (event.data['step'] as number) : undefined;
    if (event.kind === 'checkpoint_saved') out.push({kind: 'checkpoint', step, time: at, label: describe(event).text});
    if (event.kind === 'anomaly' && !over(event)) {
      out.push({kind: event.data?.['anomaly'] === 'nonfinite' ? 'nonfinite' : 'anomaly', step, time: at, label: describe(event).text, rank: event.rank});
    }
  }
  let before: Generation | undefined;
  for (const attempt of job.attempts ?? []) {
    attempt.generations.forEach((generation, i) => {
      const first = i === 0 && attempt.number === 1;
      if (!first && generation.started_at) {
        const asked = !!before?.cause?.message && !isFailure(before.cause);
        out.push({kind: 'restart', asked, step: generation.resumed_from_step ?? 0, time: seconds(generation.running_at ?? generation.started_at),
          label: `Generation ${generation.number} starts${generation.resumed_from_step !== undefined ? ` from step ${count(generation.resumed_from_step)}` : ''}${asked ? `: ${before!.cause!.message}${askedAt(before!)}` : ''}`});
      }
      before = generation;
      if (generation.cause && isFailure(generation.cause) && generation.finished_at) {
        out.push({kind: 'failure', step: generation.step, time: seconds(generation.finished_at), label: `${generation.cause.class.replace(/_/g, ' ')}: ${generation.cause.message}`, rank: generation.cause.rank});
      }
    });
  }
  return out;
}

/** What was seen lately and is still to be looked at; each kind once, the newest; with `job` without the hang that a banner tells of. */
export function anomaliesOf(events: JobEvent[] | undefined, job?: Job): JobEvent[] {
  const last = new Map<string, JobEvent>();
  for (const event of events ?? []) {
    if (event.kind !== 'anomaly') continue;
    const key = `${event.data?.['anomaly']} ${event.rank ?? event.node ?? ''}`;
    last.delete(key);
    if (!event.data?.['over']) last.set(key, event);
  }
  return [...last.values()].reverse().filter((event) => !job || stateOf(job) !== 'hang' || event.data?.['anomaly'] !== 'hang');
}

/** Ranks reported a loss that is no number. Of other metrics fp16 makes an infinite one now and then, which says nothing of the loss. */
export const lossBroke = (events?: JobEvent[]): boolean => !!events?.some(({data}) => data?.['anomaly'] === 'nonfinite' && /^loss is /.test(String(data['message'])));

/** Generations that another one followed. */
export const restarted = (job: Job): Generation[] => (job.attempts ?? []).flatMap((attempt) => attempt.generations).slice(0, -1);

/** What became of the steps that restarts threw away; '': there are none. A step is made twice only once it has been made again. */
export function repeatedText(job: Job): string {
  const all = (job.attempts ?? []).flatMap((attempt) => attempt.generations);
  let lost = 0;
  let again = 0;
  all.forEach(({step, lost_steps: n}, i) => {
    if (!n || step === undefined) return;
    lost += n;
    const reached = Math.max(-1, ...all.slice(i + 1).map((later) => later.step ?? -1));
    again += Math.max(0, n - Math.max(0, step - reached));
  });
  if (!lost) return '';
  if (again >= lost) return `${plural(lost, 'step was', 'steps were')} made twice`;
  return again ? `${count(again)} of ${plural(lost, 'lost step')} made again` : plural(lost, 'step lost', 'steps lost');
}

export interface Phase {
  kind: 'queue' | 'launch' | 'rendezvous' | 'run' | 'stalled' | 'between';
  from: number;
  to: number;
  label: string;
  attempt: number;
  generation?: number;
  open?: boolean;
}

/** What the job was doing when, from the submission to `now` or its end. */
export function phasesOf(job: Job, now: number): Phase[] {
  const out: Phase[] = [];
  const end = seconds(job.finished_at) ?? now;
  let at = seconds(job.submitted_at) ?? end;
  const push = (kind: Phase['kind'], to: number | undefined, label: string, attempt: number, generation?: number) => {
    const until = to ?? end;
    if (until > at) out.push({kind, from: at, to: until, label, attempt, generation, open: to === undefined && !job.finished_at});
    at = Math.max(at, until);
  };
  for (const attempt of job.attempts ?? []) {
    const n = attempt.number;
    push('queue', seconds(attempt.started_at) ?? seconds(attempt.finished_at), 'waiting for nodes', n);
    attempt.generations.forEach((generation, i) => {
      push(i === 0 ? 'launch' : 'between', seconds(generation.started_at) ?? seconds(attempt.finished_at), i === 0 ? 'starting agents' : 'stopping and starting anew', n, generation.number);
      push('rendezvous', seconds(generation.running_at) ?? seconds(generation.finished_at), 'ranks meet', n, generation.number);
      if (!generation.running_at) return;
      const stuck = generation.finished_at ? undefined : seconds(job.hang?.since);
      push('run', stuck ?? seconds(generation.finished_at), `generation ${generation.number}`, n, generation.number);
      if (stuck) push('stalled', undefined, 'no rank makes a step', n, generation.number);
    });
    if (!attempt.generations.length && attempt.started_at) push('launch', seconds(attempt.finished_at), 'starting agents', n);
    if (attempt.finished_at) push('between', seconds(attempt.finished_at), 'ending', n);
  }
  return out;
}

/** Spans of a job in the order they are drawn, with what they mean. */
export const kSpans: [string, string, string][] = [
  ['productive_seconds', 'Productive', 'steps that count'], ['checkpoint_seconds', 'Checkpoints', 'writing them'],
  ['stalled_seconds', 'Stalled', 'no rank made a step'], ['lost_seconds', 'Lost', 'steps that a restart made again'],
  ['suspended_seconds', 'Suspended', 'by the scheduler'], ['init_seconds', 'Start of the script', 'ranks run, no step yet'], ['rendezvous_seconds', 'Rendezvous', 'ranks meet'],
  ['launch_seconds', 'Launch', 'agents start'], ['queue_seconds', 'Queue', 'waiting for nodes'],
];

/** Steps per second over what was productive; undefined: nothing to say. */
export function eta(job: Job, stepSeconds: number | undefined): number | undefined {
  if (job.step === undefined || !job.total_steps || !stepSeconds || job.total_steps <= job.step) return undefined;
  return (job.total_steps - job.step) * stepSeconds;
}

/** The last lines of a traceback are what a person looks for first. */
export function lastFrames(traceback: string, lines = 6): {head: string; tail: string} {
  const all = traceback.replace(/\s+$/, '').split('\n');
  const from = Math.max(0, all.length - lines);
  return {head: all.slice(0, from).join('\n'), tail: all.slice(from).join('\n')};
}

/** How a cause reads in one line: who, where, what. */
export function causeLine(cause: Cause): string {
  // Without a rank the exception is of one that only tells of another: the message says so.
  if (cause.exception && cause.rank !== undefined) return `${cause.exception.type}${cause.exception.message ? `: ${cause.exception.message}` : ''}`;
  // Rank and node are said beside it.
  return cause.rank === undefined ? cause.message : cause.message.replace(/^rank \d+ on \S+:? /, '');
}

/** What a person can do about each cause. */
export function advice(kind: string): string {
  const known: Record<string, string> = {
    user_error: 'The script or the specification is wrong.', rank_exit: 'The rank ended by itself; its log says why.',
    rank_signal: 'A signal ended the rank: a crash in native code, or somebody killed it.', oom: 'The node ran out of memory: a smaller batch, fewer workers, more of it (--mem).',
    node_lost: 'The node fell silent. Recovery with spares or min_nodes goes on without it.', gpu_fault: 'The GPU reported a fault; the node should be looked at.',
    hang: 'Nobody made a step. The evidence shows what every rank waited for.', nonfinite_loss: 'The loss stopped being a number; a lower learning rate or gradient clipping often helps.',
    rendezvous_timeout: 'Not every rank came to the start; the rendezvous page names the missing ones.', preempted: 'The scheduler took the nodes; recovery can requeue.',
    time_limit: 'The time limit came first: a longer one, or checkpoints and recovery.', scheduler: 'The scheduler refused or ended it.', dependency: 'A job before it failed.',
    internal: 'Lockstep itself failed; please report it with the log of lockstepd.',
  };
  return known[kind] ?? '';
}

/** Those of the newest generation, which may have fewer nodes than were asked for. */
export function ranksOf(job: Job): number | undefined {
  const newest = job.attempts?.at(-1)?.generations.at(-1);
  if (newest?.world_size) return newest.world_size;
  const {nodes, ranks_per_node: per} = job.resources;
  return nodes && per ? nodes * per : undefined;
}

export const sizeText = (job: Job): string => {
  const ranks = ranksOf(job);
  return ranks ? `${plural(ranks, 'rank')} on ${plural(job.resources.nodes ?? 1, 'node')}` : '';
};

const kOver = ['succeeded', 'failed', 'cancelled'];

/** A job that hangs runs, for the scheduler; not for people. */
export const stateOf = (job: Job): string => (job.hang && !kOver.includes(job.state) ? 'hang' : job.state);

/** Jobs to look at, those first that can still be helped: what hangs, what runs and is not well, what failed within a day. */
export function inTrouble(jobs: Job[], now: number): Job[] {
  const urgency = (job: Job) => (kOver.includes(job.state) ? (job.state === 'failed' && (seconds(job.finished_at) ?? 0) > now - 86_400 ? 1 : 0)
    : job.hang ? 3 : Object.keys(job.anomalies ?? {}).length ? 2 : 0);
  return jobs.filter((job) => urgency(job) > 0).sort((a, b) => urgency(b) - urgency(a));
}

export const kMostEvents = 20_000;
/** Every event of a job, oldest first; of more than kMostEvents the newest, the last failure among them. They are asked for from
 *  the newest on. */
export async function newestEvents(ask: (before?: string) => Promise<Page<JobEvent>>): Promise<JobEvent[]> {
  const all: JobEvent[] = [];
  let before: string | undefined;
  do {
    const page: Page<JobEvent> = await ask(before);
    all.push(...page.items);
    before = page.next_cursor;
  } while (before && all.length < kMostEvents);
  return all.slice(0, kMostEvents).reverse();
}

/** What was read, with the events that have come since reading began, whichever way each came. */
export function withNew(read: JobEvent[], came: JobEvent[]): JobEvent[] {
  const known = new Set(read.map((event) => event.seq));
  const more = came.filter(({seq}) => !known.has(seq) && known.add(seq));
  return more.length ? [...read, ...more].sort((a, b) => a.seq - b.seq).slice(-kMostEvents) : read;
}
