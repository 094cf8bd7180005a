import {signal} from '@preact/signals';

/** Seconds since the epoch, once a second while the tab is seen. */
export const now = signal(Date.now() / 1000);
setInterval(() => {
  if (!document.hidden) now.value = Date.now() / 1000;
}, 1000);
document.addEventListener('visibilitychange', () => {
  now.value = Date.now() / 1000;
});
