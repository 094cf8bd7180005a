// Who is signed in. undefined: not asked yet; null: nobody.
import {computed, effect, signal} from '@preact/signals';
import {keepOnly} from '../lib/kept';
import {kWhoAmI} from '../lib/paths';
import type {Identity} from '../types';
import {ApiError, forget, get, send, signedOut} from './api';
import {restartStream, signedElsewhere} from './live';

export const identity = signal<Identity | null | undefined>(undefined);

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
    identity.value = who;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) identity.value = null;
    else retry = setTimeout(() => void whoAmI(), 2000);
  }
}

/** With a token or a one-time code; throws ApiError. */
export async function signIn(secret: {token: string} | {code: string}): Promise<void> {
  const who = await send<Identity>('POST', 'v1/session', secret);
  forget();
  keepOnly(who.user);
  identity.value = who;
  restartStream();
}

export async function signOut(): Promise<void> {
  try {
    await send('DELETE', 'v1/session');
  } finally {
    forget();
    keepOnly();
    identity.value = null;
    restartStream();
  }
}

effect(() => {
  if (signedOut.value > 0 && identity.peek()) identity.value = null;
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
