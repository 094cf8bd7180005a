// What a person likes, kept in this browser: nothing about jobs.
import {effect, signal} from '@preact/signals';

function stored(name: string): string | null {
  try {
    return localStorage.getItem(`lockstep.${name}`);
  } catch {
    return null;  // storage is switched off: nothing is kept
  }
}
function store(name: string, value: string): void {
  try {
    localStorage.setItem(`lockstep.${name}`, value);
  } catch {
    // as above
  }
}

export type Theme = 'auto' | 'light' | 'dark';
const first = stored('theme');
export const theme = signal<Theme>(first === 'light' || first === 'dark' ? first : 'auto');
const system = matchMedia('(prefers-color-scheme: dark)');
/** What is drawn now; canvases listen. */
export const dark = signal(system.matches);

effect(() => {
  const chosen = theme.value;
  document.documentElement.dataset.theme = chosen;
  dark.value = chosen === 'auto' ? system.matches : chosen === 'dark';
  store('theme', chosen);
});
system.addEventListener('change', () => {
  if (theme.value === 'auto') dark.value = system.matches;
});

/** A list of names that is kept. */
function names(key: string) {
  const list = signal<string[]>((stored(key) ?? '').split(',').filter(Boolean));
  effect(() => store(key, list.value.join(',')));
  return list;
}
/** Puts a name into a list, or takes it out. */
export const flip = (list: {value: string[]}, name: string) => { list.value = list.value.includes(name) ? list.value.filter((one) => one !== name) : [...list.value, name]; };

/** Metrics that are pinned on the overview, and whose charts are folded, by name. */
export const pinned = names('pinned');
export const folded = names('folded');
