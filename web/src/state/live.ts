// One stream of events for all tabs that look at this lockstepd: browsers open at most six connections to one server. The tab
// that holds a lock has it, with what every tab wants, and passes on what comes; when that tab goes, the lock goes to another,
// which goes on after the last event. (A shared worker would need a Trusted Types policy, and the page has none.) Where a
// browser has no locks, and where tabs want more than one stream carries, a tab has a stream of its own. Tabs that are not seen
// want nothing after 30 s.
import {signal} from '@preact/signals';
import {MessageReader, type Message} from '../lib/sse';
import {kWhoAmI} from '../lib/paths';
import {ApiError, ask, follow, reach, signedOut} from './api';

export type LiveState = 'idle' | 'connecting' | 'live' | 'waiting';
export const live = signal<LiveState>('idle');
/** lockstepd answers, and its stream does not come through: a proxy or an extension holds it back. Whoever listens asks instead. */
export const cut = signal(false);
/** What lockstepd itself said when it refused the stream, as of too many; "" = it is not heard. */
export const refusal = signal('');
/** Counts how often another tab has signed in or out. */
export const signedElsewhere = signal(0);

interface Subscriber {
  topics: string[];
  take: (message: Message) => void;
  /** The stream was away and is back: what is not resumed (snapshots, steps) is to be asked for again. */
  back?: () => void;
  /** The stream brings all of it. */
  has?: boolean;
}

/** What tabs say to each other. Tabs of two versions of the page may be open: what is unknown is passed over. */
interface Word {
  /** To the tab that has the stream. */
  from?: string;
  wants?: string[];
  /** From it: who wants what? What comes; what became of the stream; a tab whose topics it has no room for. */
  ask?: boolean;
  messages?: Message[];
  state?: LiveState;
  topics?: string[];
  lastId?: string;
  full?: string;
  refusal?: string;
  /** To everybody: signed in or out. */
  signed?: boolean;
}

/** Longer than two heartbeats of lockstepd: a connection that is silent for that long is dead. */
export const kSilence = 45_000;
/** lockstepd sends something at once. What has sent a head alone for so long is a proxy that keeps the rest. */
const kFirst = 10_000;
/** One stream carries 256, and an address of 8 KiB. */
const kTopics = 160;

/** A stream that does not come for so long is cut off; then every kInstead what it would bring is asked for. */
const kCut = 10_000;
export const kInstead = 5;  // seconds

export const name = `lockstep ${location.pathname}`;
export const locks = navigator.locks as LockManager | undefined;
const bus = locks && new BroadcastChannel(name);
const me = bus ? crypto.randomUUID() : '';
const subscribers = new Set<Subscriber>();
/** In the tab that has the stream: what the others want. */
const others = new Map<string, string[]>();
/** Messages that have been passed on: two streams overlap while topics change. */
const seen = new Set<string>();
let alone = !bus;
let turn: AbortController | undefined;  // the lock is held or waited for
let leads = false;
let known = false;  // the lock of this tab's own name is held
let asleep = document.hidden;
let told: string | undefined;
let open: AbortController | undefined;
let wanted = '';
let lastId: string | undefined;
let wasLive = false;
let failures = 0;
let timer: ReturnType<typeof setTimeout> | undefined;
let nap: ReturnType<typeof setTimeout> | undefined;
let watch: ReturnType<typeof setTimeout> | undefined;
let without: ReturnType<typeof setTimeout> | undefined;

const say = (word: Word) => bus?.postMessage(word);

function later(milliseconds: number): void {
  clearTimeout(timer);
  timer = setTimeout(refresh, milliseconds);
}

function askInstead(): void {
  cut.value = reach.peek().ok;
  without = setTimeout(askInstead, kInstead * 1000);
  if (cut.peek()) for (const one of [...subscribers]) one.back?.();
}

/** What has become of the stream, here or in the tab that has it. */
function became(state: LiveState, topics: string[] = []): void {
  live.value = state;
  if (state === 'live' || state === 'idle') {
    clearTimeout(without);
    without = undefined;
    wasLive ||= cut.peek();
    cut.value = false;
  } else without ??= setTimeout(askInstead, kCut);
  for (const one of [...subscribers]) {
    const has = state === 'live' && one.topics.every((topic) => topics.includes(topic));
    if (has && !one.has && wasLive) one.back?.();
    one.has = has;
  }
  wasLive ||= state === 'live';
}

function tell(state: LiveState, topics?: string[]): void {
  became(state, topics);
  if (leads) say({state, topics, lastId, refusal: refusal.peek()});
}

function deliver(messages: Message[], id: string | undefined): void {
  lastId = id ?? lastId;
  for (const message of messages) {
    if (message.id) {
      if (seen.has(message.id)) continue;
      if (seen.size > 20_000) seen.clear();
      seen.add(message.id);
    }
    for (const one of [...subscribers]) one.take(message);
  }
}

function hangUp(): void {
  open?.abort();
  open = undefined;
  wanted = '';
}

/** Gives the lock back, or waits for it no longer. */
function resign(): void {
  turn?.abort();
  turn = undefined;
  leads = false;
  told = undefined;
  others.clear();
  hangUp();
  became('idle');
}

function standForLead(steal: boolean): void {
  const mine = new AbortController();
  turn = mine;
  became('connecting');
  locks!.request(name, steal ? {steal} : {signal: mine.signal}, () => new Promise<void>((resolve) => {
    if (mine.signal.aborted) return resolve();
    mine.signal.addEventListener('abort', () => resolve());
    leads = true;
    clearTimeout(watch);
    tell('connecting');
    say({ask: true});
    later(20);
  })).catch(() => undefined).finally(() => {
    if (turn !== mine) return;
    resign();  // another tab has taken it
    later(0);
  });
}

/** The tab that has the stream is heard; one that the browser has frozen is not, and loses it. */
function leaderLives(): void {
  clearTimeout(watch);
  if (!asleep && !leads) {
    watch = setTimeout(() => {
      if (leads || !turn) return;
      resign();
      standForLead(true);
    }, kSilence + 15_000);
  }
}

function allTopics(own: Iterable<string>): string[] {
  let all = new Set(own);
  for (const [tab, wants] of others) {
    const more = new Set([...all, ...wants]);
    if (more.size > kTopics) {
      others.delete(tab);
      say({full: tab});
    } else all = more;
  }
  return [...all].sort();
}

function refresh(): void {
  clearTimeout(timer);
  const own = asleep ? [] : [...new Set([...subscribers].flatMap((one) => one.topics))].sort();
  if (!alone) {
    if (!own.length && turn) resign();
    if (own.length && !turn) {
      standForLead(false);
      leaderLives();
    }
    if (!leads) {
      if (!known) return;
      if (told !== own.join()) say({from: me, wants: own});
      told = own.join();
      return;
    }
  }
  const topics = allTopics(own);
  if (!topics.length) {
    hangUp();
    tell('idle');
  } else if (!open || topics.join() !== wanted) void run(topics, open);
  else if (live.peek() === 'live') tell('live', topics);  // somebody has asked
}

/** steps.<id>.<metric>: the metrics of one job go into one topic. */
function address(topics: string[]): string {
  const all = new Map<string, string>();
  for (const topic of topics) {
    const [, job = topic, metric] = /^(steps\.[^.]+)\.(.+)$/.exec(topic) ?? [];
    all.set(job, metric ? (all.has(job) ? `${all.get(job)}+${metric}` : topic) : topic);
  }
  return `v1/events?topics=${encodeURIComponent([...all.values()].join())}`;
}

/** Ends a request when so many milliseconds have gone by since the last call; without a number it may last. */
export function endAfter(stop: AbortController): (patience?: number) => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  return (patience) => {
    clearTimeout(timer);
    if (patience) timer = setTimeout(() => stop.abort(), patience);
  };
}

/** A stream; the one before, with other topics, ends when this one has begun: nobody misses anything. */
async function run(topics: string[], before?: AbortController): Promise<void> {
  const stop = new AbortController();
  open = stop;
  wanted = topics.join();
  if (!before) tell('connecting');
  const reader = new MessageReader();
  const decoder = new TextDecoder();
  const heard = endAfter(stop);
  let began = false;
  const begin = () => {
    began = true;
    before?.abort();
    failures = 0;
    refusal.value = '';
    if (open === stop) tell('live', topics);
  };
  try {
    heard(kSilence);
    await follow(address(topics), lastId === undefined ? {} : {'Last-Event-ID': lastId}, stop.signal,
      (chunk) => {
        heard(kSilence);
        if (!began) begin();
        const messages = reader.push(decoder.decode(chunk, {stream: true}));
        deliver(messages, reader.lastId);
        if (others.size) say({messages, lastId});
      },
      () => { heard(kFirst); });
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      if (open === stop) hangUp();
      tell('idle');
    } else if (error instanceof ApiError) {
      refusal.value = error.problem ? error.message : '';
      if (error.status >= 400 && error.status < 500) failures += 3;
    } else refusal.value = '';
  }
  heard();
  before?.abort();
  if (open !== stop) {
    if (open && !stop.signal.aborted) tell('connecting');  // it ended before the next one had begun
    return;
  }
  open = undefined;
  // It may be the stream alone.
  void ask('GET', kWhoAmI).catch(() => undefined);
  failures++;
  tell('waiting');
  later(Math.min(10_000, 250 * 2 ** failures) * (0.75 + Math.random() / 2));
}

/** Nothing of the stream before counts. */
function anew(): void {
  lastId = undefined;
  wasLive = false;
  failures = 0;
  told = undefined;
  seen.clear();
  hangUp();
  later(0);
}

if (bus) {
  // Held as long as this tab lives: whoever is given it knows that the tab is gone. It wants nothing of others before that.
  void locks!.request(me, () => {
    known = true;
    later(0);
    return new Promise(() => undefined);
  });
  bus.onmessage = ({data: word}: MessageEvent<Word>) => {
    if (word.signed) {
      anew();
      signedElsewhere.value++;
    }
    const {from, wants} = word;
    if (leads) {
      if (!from || !wants) return;
      if (!others.has(from)) {
        void locks!.request(from, () => {
          others.delete(from);
          later(0);
        });
      }
      others.set(from, wants);
      later(20);
    } else if (!from) {
      leaderLives();
      if (word.ask) {
        told = undefined;
        later(0);
      }
      if (word.full === me) {
        resign();
        alone = true;
        later(0);
      }
      if (asleep || alone) return;
      deliver(word.messages ?? [], word.lastId);
      if (word.state) {
        refusal.value = word.refusal ?? '';
        became(word.state, word.topics);
      }
    }
  };
}

document.addEventListener('visibilitychange', () => {
  clearTimeout(nap);
  nap = setTimeout(() => {
    asleep = document.hidden;
    later(0);
  }, document.hidden ? 30_000 : 0);
});
addEventListener('online', () => later(0));
let reached = true;
reach.subscribe(({ok}) => {
  // Not at each answer: a stream that is held back is asked for ever less often.
  if (ok && !reached && live.peek() === 'waiting') later(0);
  reached = ok;
});

/** Wants topics until the returned function is called. */
export function listen(topics: string[], take: (message: Message) => void, back?: () => void): () => void {
  // Every metric of steps.<id>.<metric>+<metric> is a topic.
  const single = topics.flatMap((topic) => topic.split('+').map((metric, i) => (i ? topic.replace(/[^.]*$/, metric) : metric)));
  const one: Subscriber = {topics: single, take, back};
  subscribers.add(one);
  later(20);
  return () => {
    subscribers.delete(one);
    later(200);
  };
}

/** Signed out, or in as somebody else. */
export function restartStream(): void {
  anew();
  say({signed: true});
}
signedOut.subscribe(hangUp);
