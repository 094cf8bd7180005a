// What a person has begun in this tab and not finished: drafts, and submissions without an answer. It outlives a reload, is
// shown to nobody else, and is gone once they sign out.

/** The truth; the session's storage is its copy for the next load of the page, where there is one and room in it. */
const now = new Map<string, string>();
const kMark = 'lockstep ';
const nameOf = (what: string, user: string, of = '') => `${kMark}${[what, user, of].map(encodeURIComponent).join(' ')}`;

function stored<T>(work: (store: Storage) => T): T | undefined {
  try {
    return work(sessionStorage);
  } catch {
    return undefined;  // it is switched off, or full
  }
}

/** Keeps a value for `user`; undefined takes it away. `of`: what it was begun from. */
export function keep(what: 'draft' | 'sent', user: string, value: unknown, of?: string): void {
  const name = nameOf(what, user, of);
  if (value === undefined) {
    now.delete(name);
    stored((store) => store.removeItem(name));
  } else {
    const text = JSON.stringify(value);
    now.set(name, text);
    // An older one is worse than none.
    stored((store) => store.removeItem(name));
    stored((store) => store.setItem(name, text));
  }
}

export function kept<T>(what: 'draft' | 'sent', user: string, of?: string): T | undefined {
  const name = nameOf(what, user, of);
  try {
    return JSON.parse(now.get(name) ?? stored((store) => store.getItem(name)) ?? '') as T;
  } catch {
    return undefined;
  }
}

/** What others have begun here is gone; of nobody: all of it. */
export function keepOnly(user?: string): void {
  const names = stored((store) => Array.from({length: store.length}, (_, i) => store.key(i)!)) ?? [];
  for (const name of [...now.keys(), ...names]) {
    if (!name.startsWith(kMark) || (user !== undefined && name.split(' ')[2] === encodeURIComponent(user))) continue;
    now.delete(name);
    stored((store) => store.removeItem(name));
  }
}

// --- submissions --------------------------------------------------------------------------------------------------------
interface Sent {body: string; key: string}
const kSent = 8;

export const newKey = (): string => Array.from(crypto.getRandomValues(new Uint8Array(16)), (one) => one.toString(16).padStart(2, '0')).join('');

/** The Idempotency-Key of a submission: the same for the same body, until `settle` says that there was an answer. */
export function keyOf(user: string, body: string): string {
  const all = kept<Sent[]>('sent', user) ?? [];
  const before = all.find((one) => one.body === body);
  if (before) return before.key;
  const key = newKey();
  keep('sent', user, [...all, {body, key}].slice(-kSent));
  return key;
}

/** The next submission of the same is another one. Only what was taken, or can never be under that key (422), is settled: any
 *  other refusal may be of a second try whose first one was taken. */
export function settle(user: string, body: string, status: number): void {
  if ((status < 200 || status >= 300) && status !== 422) return;
  const left = (kept<Sent[]>('sent', user) ?? []).filter((one) => one.body !== body);
  keep('sent', user, left.length ? left : undefined);
}
