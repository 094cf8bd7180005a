// Questions to lockstepd. Addresses are relative: the page may lie below a prefix.
import {signal} from '@preact/signals';
import {newKey} from '../lib/kept';
import type {Problem} from '../types';

export {parameters} from '../lib/paths';

export class ApiError extends Error {
  constructor(readonly status: number, readonly problem: Problem | undefined, message: string) {
    super(message);
  }
}

/** Does lockstepd answer? `since`: when it last did, in seconds since the epoch. */
export const reach = signal<{ok: boolean; since: number}>({ok: true, since: Date.now() / 1000});

/** Set when an answer says that nobody is signed in, with what it says of that; the session listens. */
export const signedOut = signal<{detail: string} | undefined>(undefined);

interface Options {
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Held back alone it says nothing of lockstepd. */
  aside?: boolean;
}

function answered(): void {
  const at = Date.now() / 1000;
  if (!reach.peek().ok || at - reach.peek().since > 1) reach.value = {ok: true, since: at};
}

function unanswered(): void {
  if (reach.peek().ok) reach.value = {ok: false, since: reach.peek().since};
}

/** Answers that early.ts has asked for; each is taken once. */
const early = (globalThis as {early?: Map<string, Promise<Response>>}).early ?? new Map<string, Promise<Response>>();

/** The answer, whatever its status; throws ApiError with status 0 if there is none. */
export async function ask(method: string, path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = {...options.headers};
  if (method !== 'GET') headers['X-Lockstep-Request'] = '1';
  let body: string | undefined;
  if (options.body !== undefined) {
    headers['Content-Type'] ??= 'application/json';
    body = typeof options.body === 'string' ? options.body : JSON.stringify(options.body);
  }
  let response: Response;
  try {
    const before = method === 'GET' ? early.get(path) : undefined;
    early.delete(path);
    response = await (before ?? fetch(path, {method, headers, body, signal: options.signal}));
  } catch (error) {
    if (options.signal?.aborted) throw error;
    if (!options.aside) unanswered();
    throw new ApiError(0, undefined, 'lockstepd does not answer');
  }
  const {status} = response;
  // A proxy's word for a lockstepd that it does not reach; lockstepd's own 503 is a problem document.
  if (status !== 502 && status !== 504 && (status !== 503 || response.headers.get('Content-Type')?.includes('problem+json'))) answered();
  else if (!options.aside) unanswered();
  return response;
}

async function failure(response: Response): Promise<ApiError> {
  let problem: Problem | undefined;
  try {
    problem = (await response.json()) as Problem;
  } catch {
    // no problem document: a proxy's page, or nothing
  }
  if (response.status === 401) signedOut.value = {detail: problem?.detail ?? ''};
  const first = problem?.errors?.[0];
  return new ApiError(response.status, problem,
    problem ? problem.detail || (first ? `${first.pointer}: ${first.message}` : problem.title) : `HTTP status ${response.status}`);
}

// Lists and documents asked for again are often the same: the tag is sent along and the answer kept.
const kKept = 64;
const kept = new Map<string, {tag: string; value: unknown}>();

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const before = kept.get(path);
  const response = await ask('GET', path, {signal, headers: before ? {'If-None-Match': before.tag} : {}});
  if (response.status === 304 && before) return before.value as T;
  if (!response.ok) throw await failure(response);
  const value = (await response.json()) as T;
  const tag = response.headers.get('ETag');
  kept.delete(path);
  if (tag) {
    kept.set(path, {tag, value});
    if (kept.size > kKept) kept.delete(kept.keys().next().value!);
  }
  return value;
}

export function forget(): void {
  kept.clear();
  early.clear();
}

/** The answer whose status is good; throws ApiError. */
export async function good(path: string, signal?: AbortSignal, headers?: Record<string, string>, aside?: boolean): Promise<Response> {
  const response = await ask('GET', path, {signal, headers, aside});
  if (!response.ok) throw await failure(response);
  return response;
}

export const getText = async (path: string, signal?: AbortSignal): Promise<string> => (await good(path, signal)).text();
export const getBytes = async (path: string, signal?: AbortSignal): Promise<ArrayBuffer> => (await good(path, signal)).arrayBuffer();

export async function send<T>(method: 'POST' | 'PUT' | 'DELETE', path: string, body?: unknown,
                              headers: Record<string, string> = {}, signal?: AbortSignal): Promise<T> {
  const response = await ask(method, path, {body, headers, signal});
  if (!response.ok) throw await failure(response);
  return (response.status === 204 ? undefined : await response.json()) as T;
}

const unsure = new Map<string, {key: string; since: number}>();
const kUnsure = 300_000;  // milliseconds; who asks later than that wants it once more
/** A command that is done once: after an answer that was lost the next try has the same key, until lockstepd says done or no. */
export async function sendOnce<T>(path: string): Promise<T> {
  const before = unsure.get(path);
  const {key, since} = before && Date.now() - before.since < kUnsure ? before : {key: newKey(), since: Date.now()};
  unsure.set(path, {key, since});
  try {
    const answer = await send<T>('POST', path, undefined, {'Idempotency-Key': key});
    unsure.delete(path);
    return answer;
  } catch (error) {
    const status = error instanceof ApiError ? error.status : 0;
    if (status !== 0 && !(status >= 502 && status <= 504)) unsure.delete(path);
    throw error;
  }
}

/** A stream's chunks as they come. Aborted by the signal. */
export async function follow(path: string, headers: Record<string, string>, stop: AbortSignal,
                             take: (chunk: Uint8Array) => void, opened?: () => void): Promise<void> {
  const response = await good(path, stop, headers, true);
  opened?.();
  const reader = response.body!.getReader();
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    take(value);
  }
}

const flying = new Map<string, Promise<unknown>>();
/** The answer that is on its way to whoever asked the same. */
export function together<T>(key: string, work: () => Promise<T>): Promise<T> {
  const before = flying.get(key) as Promise<T> | undefined;
  if (before) return before;
  const answer = work();
  flying.set(key, answer);
  const gone = () => flying.delete(key);
  answer.then(gone, gone);
  return answer;
}

/** Runs at most four questions at a time: small pictures of a long list do not stand in the way of a click. Of those that have time
 *  one at a time, and only where no other waits. */
const kAtATime = 4;
let running = 0;
let unhurried = 0;
const waiting: (() => void)[] = [];
const patient: (() => void)[] = [];
function serve(): void {
  while (running < kAtATime) {
    const next = waiting.shift() ?? (unhurried ? undefined : patient.shift());
    if (!next) return;
    running++;
    next();
  }
}
export async function inTurn<T>(work: () => Promise<T>, hasTime = false): Promise<T> {
  await new Promise<void>((resolve) => {
    if (hasTime) patient.push(() => { unhurried++; resolve(); });
    else waiting.push(resolve);
    serve();
  });
  try {
    return await work();
  } finally {
    running--;
    if (hasTime) unhurried--;
    serve();
  }
}
