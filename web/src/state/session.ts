// Who is signed in. undefined: not asked yet; null: nobody.
import {computed, effect, signal} from '@preact/signals';
import {dateTime, seconds} from '../lib/format';
import {keepOnly} from '../lib/kept';
import {kWhoAmI} from '../lib/paths';
import type {Identity} from '../types';
import {ApiError, forget, get, send, signedOut} from './api';
import {restartStream, signedElsewhere} from './live';

export const identity = signal<Identity | null | undefined>(undefined);
/** Why somebody who was signed in no longer is, for the sign-in; '': nobody was. */
export const why = signal('');

/** Nobody is signed in any more, as lockstepd says. */
function ended(detail: string): void {
  const who = identity.peek();
  const until = seconds(who?.expires_at);
  // lockstepd names what has expired or was revoked. Of a session whose cookie the browser has dropped it knows nothing.
  why.value = / (expired|revoked) /.test(` ${detail} `) ? `You are signed out: ${detail.replace(/\d{4}-\S+Z/, (time) => dateTime(seconds(time)))}`
    : until !== undefined && until <= Date.now() / 1000 ? `You are signed out: the session expired at ${dateTime(until)}` : who ? 'You are no longer signed in' : why.peek();
  identity.value = null;
}

/** May the signed-in person change a job of `user`? */
export function mayAct(user: string): boolean {
  const who = identity.value;
  if (!who || who.role === 'viewer' || !who.scopes.includes('write')) return false;
  return who.role === 'admin' || who.user === user;
}
export const maySubmit = computed(() => {
  const who = identity.value;
  return !!who && who.role !== 'viewer' && who.scopes.includes('write');
});

let retry: ReturnType<typeof setTimeout> | undefined;

export async function whoAmI(): Promise<void> {
  clearTimeout(retry);
  try {
    const who = await get<Identity>(kWhoAmI);
    keepOnly(who.user);
    why.value = '';
    identity.value = who;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) ended(error.message);
    else retry = setTimeout(() => void whoAmI(), 2000);
  }
}

/** With a token or a one-time code; throws ApiError. */
export async function signIn(secret: {token: string} | {code: string}): Promise<void> {
  const who = await send<Identity>('POST', 'v1/session', secret);
  forget();
  keepOnly(who.user);
  why.value = '';
  identity.value = who;
  restartStream();
}

export async function signOut(): Promise<void> {
  try {
    await send('DELETE', 'v1/session');
  } finally {
    forget();
    keepOnly();
    why.value = '';
    identity.value = null;
    restartStream();
  }
}

effect(() => {
  if (signedOut.value && identity.peek()) ended(signedOut.value.detail);
});

// One cookie is every tab's: who signs in or out in one does so in all of them.
signedElsewhere.subscribe((times) => {
  if (!times) return;
  forget();
  const before = identity.peek()?.user;
  void whoAmI().then(() => {
    if (identity.peek() === null) keepOnly();
    // What is on the page is another person's.
    if (before && identity.peek() && identity.peek()!.user !== before) location.reload();
  });
});
