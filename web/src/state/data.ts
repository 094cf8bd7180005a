// Hooks that hold what the API answers.
import {useComputed, useSignal, type ReadonlySignal, type Signal} from '@preact/signals';
import {useEffect, useLayoutEffect, useRef} from 'preact/hooks';
import {eventsPath, jobPath} from '../lib/paths';
import {newestEvents, kMostEvents, withNew} from '../lib/story';
import type {Job, JobEvent, Page, StepsEvent} from '../types';
import {ApiError, get} from './api';
import {cut, listen} from './live';

export interface Asked<T> {
  value?: T;
  error?: ApiError;
  loading: boolean;
}

/** Asks `path` (undefined: nothing) and again whenever it changes, every `seconds` and when `again` is called; the value
 *  before stays while another is asked for, unless the path has changed. */
export function useAsk<T>(path: string | undefined, seconds?: number): {state: Signal<Asked<T>>; again: () => void} {
  return useWork<T>(path, (signal) => get<T>(path!, signal), seconds);
}

/** As useAsk for any work; `key` names it. */
export function useWork<T>(key: string | undefined, work: (signal: AbortSignal) => Promise<T>, seconds?: number):
    {state: Signal<Asked<T>>; again: () => void} {
  const state = useSignal<Asked<T>>({loading: key !== undefined});
  const runner = useRef<() => void>(() => undefined);
  const latest = useRef(work);
  latest.current = work;
  const asked = useRef<string | undefined>(undefined);
  const paused = useRef<number | undefined>(undefined);
  // Before the browser draws: what is asked for is not to wait for a frame.
  useLayoutEffect(() => {
    if (key === undefined) {
      state.value = {loading: false};
      return;
    }
    const same = asked.current === key;
    asked.current = key;
    // A job that is over is asked for less often, not once more.
    const calmer = same && seconds! > paused.current! && state.peek().value !== undefined;
    paused.current = seconds;
    let stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let busy = false;
    let more = false;
    if (!same) state.value = {loading: true};
    const run = async () => {
      if (busy) {
        more = true;
        return;
      }
      busy = true;
      clearTimeout(timer);
      stop = new AbortController();
      const mine = stop;
      try {
        const value = await latest.current(mine.signal);
        if (!mine.signal.aborted) state.value = {value, loading: false};
      } catch (error) {
        if (!mine.signal.aborted) {
          state.value = {...state.peek(), loading: false,
            error: error instanceof ApiError ? error : new ApiError(-1, undefined, String(error))};
        }
      }
      busy = false;
      if (mine.signal.aborted) return;
      if (more) {
        more = false;
        void run();
        return;
      }
      const failed = state.peek().error;
      const pause = failed ? (failed.status === 0 || failed.status >= 500 || failed.status === 429 ? 3 : seconds) : seconds;
      if (pause !== undefined) timer = setTimeout(tick, pause * 1000);
    };
    const tick = () => {
      if (document.hidden) timer = setTimeout(tick, 1000);
      else void run();
    };
    runner.current = () => void run();
    if (calmer) timer = setTimeout(tick, seconds! * 1000);
    else void run();
    return () => {
      stop.abort();
      clearTimeout(timer);
      runner.current = () => undefined;
    };
  }, [key, seconds]);
  return {state, again: () => runner.current()};
}

/** Calls at most once in `milliseconds`, the last call always. */
export function throttled(work: () => void, milliseconds: number): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let last = -Infinity;
  return () => {
    if (timer) return;
    const wait = Math.max(0, last + milliseconds - performance.now());
    timer = setTimeout(() => {
      timer = undefined;
      last = performance.now();
      work();
    }, wait);
  };
}

export const kFinal = ['succeeded', 'failed', 'cancelled'];
export const isOver = (job: {state: string}) => kFinal.includes(job.state);

/** One job, asked for again whenever an event of it comes. */
export function useJob(id: string): {state: Signal<Asked<Job>>; again: () => void} {
  const over = useSignal(false);
  const {state, again} = useAsk<Job>(jobPath(id), over.value ? 60 : 3);
  over.value = !!state.value.value && isOver(state.value.value);
  useEffect(() => {
    const soon = throttled(again, 300);
    return listen([`job.${id}`], (message) => {
      if (message.event !== 'ranks' && message.event !== 'steps' && message.data.includes(id)) soon();
    }, again);
  }, [id]);
  return {state, again};
}

/** The events of a job, oldest first; new ones are added as they come, also while older ones are still read. */
export function useEvents(id: string): ReadonlySignal<Asked<JobEvent[]>> {
  const came = useSignal<JobEvent[]>([]);
  const {state, again} = useWork<JobEvent[]>(`events ${id}`, (stop) => newestEvents((before) => get<Page<JobEvent>>(eventsPath(id, before), stop)));
  useEffect(() => listen([`job.${id}`], (message) => {
    if (message.event === 'ranks' || message.event === 'steps') return;
    try {
      const event = JSON.parse(message.data) as JobEvent;
      if (event.job === id) came.value = [...came.peek(), event].slice(-kMostEvents);
    } catch {
      // no event of ours
    }
  }, () => {
    if (!cut.peek()) { again(); return; }
    // Every few seconds: the newest of them are enough.
    void get<Page<JobEvent>>(eventsPath(id)).then(({items}) => { came.value = withNew(came.peek(), items); }, () => undefined);
  }), [id]);
  return useComputed(() => (state.value.value ? {...state.value, value: withNew(state.value.value, came.value)} : state.value));
}

/** Steps of every rank as they are made. */
export function useSteps(id: string, metrics: string[], take: (event: StepsEvent) => void, back: () => void, on: boolean): void {
  const latest = useRef(take);
  latest.current = take;
  const key = metrics.join('+');
  useEffect(() => {
    if (!on || !key) return;
    return listen([`steps.${id}.${key}`], (message) => {
      if (message.event !== 'steps') return;
      const event = JSON.parse(message.data) as StepsEvent;
      if (event.id === id && metrics.includes(event.metric)) latest.current(event);
    }, back);
  }, [id, key, on]);
}
