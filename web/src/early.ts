// Runs before the page's own script has been fetched, let alone read: sends what the page at this address is sure to ask for, so
// that the answers are there when it does. state/api.ts takes them.
import {parsePlace, sure} from './lib/paths';

const early = new Map<string, Promise<Response>>();
for (const path of sure(parsePlace(location.hash))) {
  const answer = fetch(path);
  answer.catch(() => undefined);  // whoever takes it hears
  early.set(path, answer);
}
(globalThis as {early?: typeof early}).early = early;
// A page that comes later asks itself.
setTimeout(() => early.clear(), 10_000);
