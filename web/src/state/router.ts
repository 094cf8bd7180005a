// Where the page is: everything behind the #. The path says which page, the query every state of its view, so that a
// copied address shows the same to somebody else.
import {computed, signal} from '@preact/signals';
import {parsePlace, type Place} from '../lib/paths';

export function formatPlace(path: string[], query: Record<string, string | number | undefined> = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== '') parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return `#/${path.map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

export const place = signal<Place>(parsePlace(location.hash));
addEventListener('hashchange', () => {
  place.value = parsePlace(location.hash);
});

export function go(path: string[], query: Record<string, string | number | undefined> = {}): void {
  location.hash = formatPlace(path, query);
}

/** Changes some of the view's states; no new entry in the browser's history. undefined or "" takes one away. */
export function setQuery(changes: Record<string, string | number | undefined>): void {
  const query: Record<string, string | number | undefined> = {...place.peek().query, ...changes};
  const target = formatPlace(place.peek().path, query);
  if (target !== location.hash) {
    history.replaceState(history.state, '', target);
    place.value = parsePlace(target);
  }
}

export const query = computed(() => place.value.query);

/** View states that go along from page to page of one job. */
const kShared = ['x', 'zoom', 'smooth', 'by', 'logy', 'logx', 'clip'];

export function jobHref(id: string, page = '', more: Record<string, string | number | undefined> = {}): string {
  const shared: Record<string, string | number | undefined> = {};
  if (place.value.path[1] === id) {
    for (const name of kShared) shared[name] = place.value.query[name];
  }
  return formatPlace(['jobs', id, ...(page ? page.split('/') : [])], {...shared, ...more});
}

/** What one entry of the browser's history remembers of its page, for the way back: nothing that somebody else would look for. */
export const remembered = (): Record<string, unknown> => (history.state as Record<string, unknown> | null) ?? {};
export const remember = (changes: Record<string, unknown>): void => history.replaceState({...remembered(), ...changes}, '');
