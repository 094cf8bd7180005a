// One stream of events for the whole tab. Whoever wants topics says so; the stream is opened anew with all of them and
// goes on after the last event it has seen, also after lockstepd or the network was away. A tab that is not seen has none:
// browsers open at most six connections to one server.
import {signal} from '@preact/signals';
import {MessageReader, type Message} from '../lib/sse';
import {ApiError, follow, reach, signedOut} from './api';

export type LiveState = 'idle' | 'connecting' | 'live' | 'waiting';
export const live = signal<LiveState>('idle');

interface Subscriber {
  topics: string[];
  take: (message: Message) => void;
  /** The stream was away and is back: what is not resumed (snapshots, steps) is to be asked for again. */
  back?: () => void;
}

const subscribers = new Set<Subscriber>();
let open: AbortController | undefined;
let wanted = '';
let lastId: string | undefined;
let wasLive = false;
let failures = 0;
let timer: ReturnType<typeof setTimeout> | undefined;
/** Longer than two heartbeats of lockstepd: a connection that is silent for that long is dead. */
const kSilence = 45_000;

function topicsNow(): string {
  const all = new Set<string>();
  const steps = new Map<string, Set<string>>();
  for (const one of subscribers) {
    for (const topic of one.topics) {
      // steps.<id>.<metric>: the metrics of one job go into one topic.
      const match = /^(steps\.[^.]+)\.(.+)$/.exec(topic);
      if (!match) {
        all.add(topic);
        continue;
      }
      const set = steps.get(match[1]!) ?? new Set<string>();
      match[2]!.split('+').forEach((metric) => set.add(metric));
      steps.set(match[1]!, set);
    }
  }
  for (const [prefix, metrics] of steps) all.add(`${prefix}.${[...metrics].sort().join('+')}`);
  return [...all].sort().join(',');
}

function later(milliseconds: number): void {
  clearTimeout(timer);
  timer = setTimeout(refresh, milliseconds);
}

function refresh(): void {
  clearTimeout(timer);
  const topics = document.hidden ? '' : topicsNow();
  if (open && topics === wanted) return;
  open?.abort();
  open = undefined;
  wanted = topics;
  if (!topics) {
    live.value = 'idle';
    return;
  }
  void run(topics);
}

async function run(topics: string): Promise<void> {
  const stop = new AbortController();
  open = stop;
  live.value = 'connecting';
  const reader = new MessageReader();
  const decoder = new TextDecoder();
  let silence: ReturnType<typeof setTimeout> | undefined;
  let silent = false;
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => {
      silent = true;
      stop.abort();
    }, kSilence);
  };
  try {
    heard();
    await follow(`v1/events?topics=${encodeURIComponent(topics)}`, lastId === undefined ? {} : {'Last-Event-ID': lastId}, stop.signal,
      (chunk) => {
        heard();
        const messages = reader.push(decoder.decode(chunk, {stream: true}));
        lastId = reader.lastId ?? lastId;
        for (const message of messages) for (const one of [...subscribers]) one.take(message);
      },
      () => {
        live.value = 'live';
        failures = 0;
        if (wasLive) for (const one of [...subscribers]) one.back?.();
        wasLive = true;
      });
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      clearTimeout(silence);
      if (open === stop) open = undefined;
      live.value = 'idle';
      return;
    }
    if (error instanceof ApiError && error.status >= 400 && error.status < 500) failures += 3;
  }
  clearTimeout(silence);
  if (open !== stop && !silent) return;  // another one has taken over
  open = undefined;
  failures++;
  live.value = 'waiting';
  later(Math.min(10_000, 250 * 2 ** failures) * (0.75 + Math.random() / 2));
}

document.addEventListener('visibilitychange', () => later(document.hidden ? 30_000 : 0));
addEventListener('online', () => later(0));
reach.subscribe(({ok}) => {
  if (ok && live.peek() === 'waiting') later(0);
});

/** Wants topics until the returned function is called. */
export function listen(topics: string[], take: (message: Message) => void, back?: () => void): () => void {
  const one: Subscriber = {topics, take, back};
  subscribers.add(one);
  later(20);
  return () => {
    subscribers.delete(one);
    later(200);
  };
}

/** Signed out, or in as somebody else: nothing of the stream before counts. */
export function restartStream(): void {
  lastId = undefined;
  wasLive = false;
  failures = 0;
  wanted = '';
  later(0);
}
signedOut.subscribe(() => {
  open?.abort();
  open = undefined;
});
