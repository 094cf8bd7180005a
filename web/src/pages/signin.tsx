import {useSignal} from '@preact/signals';
import type {JSX} from 'preact';
import {useEffect, useRef} from 'preact/hooks';
import {Safe, say} from '../ui/basics';
import {Logo} from '../ui/shell';
import type {ApiError} from '../state/api';
import {place} from '../state/router';
import {identity, signIn, whoAmI, why} from '../state/session';

/** Where to go once signed in: only within this page. */
function next(): string {
  const wanted = place.peek().query['next'] ?? '';
  return wanted.startsWith('/') ? `#${wanted}` : place.peek().path[0] === 'signin' ? '#/jobs' : location.hash;
}

export function SignIn(): JSX.Element {
  const token = useSignal('');
  const busy = useSignal(false);
  const error = useSignal('');
  const input = useRef<HTMLInputElement>(null);
  const code = place.value.path[0] === 'signin' ? place.value.query['code'] : undefined;
  const enter = async (secret: {token: string} | {code: string}) => {
    busy.value = true;
    error.value = '';
    const target = next();
    const enterIn = () => {
      // The code is spent; it goes from the address and from the history.
      history.replaceState(null, '', target);
      dispatchEvent(new HashChangeEvent('hashchange'));
    };
    try {
      await signIn(secret);
      enterIn();
    } catch (failed) {
      const {status, message} = failed as ApiError;
      if ('code' in secret && status === 401) {
        error.value = 'This link has been used or is older than a minute. Run lockstep open again, or use a token.';
        // Somebody may be signed in all the same.
        await whoAmI();
        if (identity.value) {
          say(`This link has been used or is older than a minute; you are signed in as ${identity.value.user}`);
          enterIn();
        }
      } else {
        error.value = message;
      }
    }
    busy.value = false;
    input.current?.focus();
  };
  useEffect(() => {
    if (code) void enter({code});
    else input.current!.focus();
  }, [code]);
  return <main class="signin" id="main">
    <div class="signin-card">
      <Logo />
      <h1>Sign in to Lockstep</h1>
      {why.value && !error.value && <p class="warn" role="alert"><Safe text={why.value} most={300} />. Your jobs go on.</p>}
      <p>Run this where you submit jobs; it opens this page, signed in:</p>
      <pre class="command">lockstep open</pre>
      <form onSubmit={(event) => {
        event.preventDefault();
        const secret = token.value.trim();
        token.value = '';
        if (secret) void enter({token: secret});
      }}>
        <label for="token">Or a token</label>
        <input ref={input} id="token" name="token" type="password" autocomplete="off" spellcheck={false} value={token.value} aria-describedby="token-hint"
          onInput={(event) => { token.value = event.currentTarget.value; }} />
        <p id="token-hint" class="quiet">lks_…, as <code>lockstep token create</code> prints it. It is not kept in this browser.</p>
        {error.value && <p class="bad" role="alert"><Safe text={error.value} most={300} /></p>}
        <button type="submit" class="button solid" disabled={busy.value}>{busy.value ? 'Signing in…' : 'Sign in'}</button>
      </form>
    </div></main>;
}
