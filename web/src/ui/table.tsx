// A table of any length: only the rows that are seen exist. Columns sort by a click or Enter.
import {useSignal} from '@preact/signals';
import type {ComponentChildren, JSX} from 'preact';
import {useEffect} from 'preact/hooks';

export interface ColumnOf<T> {
  key: string;
  title: string;
  cell: (row: T) => ComponentChildren;
  right?: boolean;
  /** Left out on a narrow screen. */
  wide?: boolean;
  sortable?: boolean;
  hint?: string;
}

interface Properties<T> {
  label: string;
  columns: ColumnOf<T>[];
  /** How many rows there are; `row` gives one, undefined while it is on its way. */
  total: number;
  row: (index: number) => T | undefined;
  rowKey: (row: T) => string | number;
  href?: (row: T) => string | undefined;
  sort?: string;
  setSort?: (sort: string) => void;
  /** Called with the rows that are seen. */
  seen?: (from: number, to: number) => void;
  height?: number;
  rowHeight?: number;
  rowClass?: (row: T) => string;
}

export function Table<T>(props: Properties<T>): JSX.Element {
  const {columns, total, height = 520, rowHeight = 34} = props;
  const top = useSignal(0);
  const from = Math.max(0, Math.floor(top.value / rowHeight) - 8);
  const to = Math.min(total, Math.ceil((top.value + height) / rowHeight) + 8);
  useEffect(() => props.seen?.(from, to), [from, to, total]);
  const rows: JSX.Element[] = [];
  for (let i = from; i < to; i++) {
    const one = props.row(i);
    const href = one && props.href?.(one);
    rows.push(<tr key={one ? props.rowKey(one) : `row${i}`} class={`${one ? props.rowClass?.(one) ?? '' : ''} ${href ? 'goes' : ''}`} aria-rowindex={i + 2}
      onClick={href ? (event) => {
        if ((event.target as Element).closest('a, button') === null && !getSelection()?.toString()) location.hash = href.slice(href.indexOf('#'));
      } : undefined}>
      {columns.map((column) => <td key={column.key} class={`${column.right ? 'right' : ''} ${column.wide ? 'only-wide' : ''}`}>{one ? column.cell(one) : <span class="bone bone-cell" />}</td>)}
    </tr>);
  }
  const sorted = props.sort?.replace(/^-/, '');
  const down = props.sort?.startsWith('-');
  return <div class="table-box" style={{maxHeight: `${height}px`}} tabIndex={0} role="region" aria-label={props.label} onScroll={(event) => { top.value = event.currentTarget.scrollTop; }}>
    <table class="table" aria-rowcount={total + 1}><caption class="away">{props.label}</caption>
      <thead><tr>{columns.map((column) => <th key={column.key} scope="col" class={`${column.right ? 'right' : ''} ${column.wide ? 'only-wide' : ''}`}
        aria-sort={sorted === column.key ? (down ? 'descending' : 'ascending') : undefined} title={column.hint}>
        {column.sortable && props.setSort
          ? <button type="button" class="sort" onClick={() => props.setSort!(sorted === column.key && down ? column.key : `-${column.key}`)}>{column.title}<span aria-hidden="true">{sorted === column.key ? (down ? ' ↓' : ' ↑') : ''}</span></button>
          : column.title}</th>)}</tr></thead>
      <tbody>
        {from > 0 && <tr aria-hidden="true"><td class="spacer" colSpan={columns.length} style={{height: `${from * rowHeight}px`}} /></tr>}
        {rows}
        {to < total && <tr aria-hidden="true"><td class="spacer" colSpan={columns.length} style={{height: `${(total - to) * rowHeight}px`}} /></tr>}
      </tbody></table></div>;
}
