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

/** Metrics that are pinned on the overview, by name. */
export const pinned = signal<string[]>((stored('pinned') ?? '').split(',').filter(Boolean));
effect(() => store('pinned', pinned.value.join(',')));
