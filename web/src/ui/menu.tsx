import type {JSX} from 'preact';
import {useLayoutEffect, useRef} from 'preact/hooks';

export interface MenuItem {label: string; act: () => void}

/** A list of choices below a button; goes with Escape, a choice, or a click elsewhere. */
export function Menu({items, close}: {items: MenuItem[]; close: () => void}): JSX.Element {
  const ref = useRef<HTMLDivElement>(null);
  /** Whoever works by keys goes on at the button. */
  const leave = () => {
    close();
    ref.current?.parentElement?.querySelector<HTMLElement>('button')?.focus();
  };
  // At once: the next key may come before anything is drawn.
  useLayoutEffect(() => {
    const first = ref.current?.querySelector<HTMLElement>('button');
    first?.focus();
    const key = (event: KeyboardEvent) => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        leave();
        return;
      }
      if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
      event.preventDefault();
      const all = [...(ref.current?.querySelectorAll<HTMLElement>('button') ?? [])];
      const at = all.indexOf(document.activeElement as HTMLElement);
      all[(at + (event.key === 'ArrowDown' ? 1 : all.length - 1)) % all.length]?.focus();
    };
    const click = (event: MouseEvent) => {
      if (!ref.current?.parentElement?.contains(event.target as Node)) close();
    };
    document.addEventListener('keydown', key, true);
    document.addEventListener('click', click, true);
    return () => {
      document.removeEventListener('keydown', key, true);
      document.removeEventListener('click', click, true);
    };
  }, []);
  return <div class="menu" role="menu" ref={ref}>{items.map(({label, act}) => <button key={label} type="button" role="menuitem" onClick={() => { leave(); act(); }}>{label}</button>)}</div>;
}
