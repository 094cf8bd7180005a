// Files of ranks: looked at here, or saved.
import {useSignal} from '@preact/signals';
import type {ComponentChildren, JSX} from 'preact';
import {download} from '../lib/export';
import {bytes} from '../lib/format';
import type {Captured} from '../types';
import {slice, whole} from '../state/files';
import {useWork} from '../state/data';
import {Safe, say, Show} from './basics';

/** Where a file is from a byte on. */
export type PathFrom = (offset: number) => string;

/** `save` gives away all of a file, or says why not; `came`: so many bytes are here. */
export function useSaving(): {came?: number; save: (name: string, path: PathFrom, size?: number) => Promise<void>} {
  const came = useSignal<number | undefined>(undefined);
  return {came: came.value, save: async (name, path, size) => {
    came.value = 0;
    try {
      download(name, await whole((offset) => slice(path(offset)), {size, came: (to) => { came.value = to; }}));
    } catch (error) {
      say(`${name}: ${(error as Error).message}`, true);
    }
    came.value = undefined;
  }};
}

function Save({file, rank, path}: {file: Captured; rank: number; path: PathFrom}): JSX.Element {
  const {came, save} = useSaving();
  return <button type="button" class="link-button" disabled={came !== undefined} aria-label={`Download ${file.name} of rank ${rank}`} onClick={() => void save(`rank-${rank}.${file.name}`, path, file.size)}>
    {came !== undefined ? bytes(came) : readable(file) ? '↓' : <Safe text={file.name} />}</button>;
}

const kRead = 4e6;  // bytes of a text that is shown; a longer one is a file
export const readable = ({name, size}: Captured) => name.endsWith('.txt') && size <= kRead;

/** Those of a rank: texts are chosen to be shown below, all can be saved. */
export function Files({files, rank, path, shown, show}: {files: Captured[]; rank: number; path: (name: string) => PathFrom; shown?: string; show: (file: Captured) => void}): JSX.Element {
  return <>{files.map((file) => <span key={file.name}>{readable(file) && <button type="button" class="link-button" aria-pressed={shown === file.name} aria-label={`${file.name} of rank ${rank}`} onClick={() => show(file)}><Safe text={file.name} /></button>}
    {' '}<Save file={file} rank={rank} path={path(file.name)} /> <span class="quiet">{bytes(file.size)}</span>{' '}</span>)}</>;
}

/** The text of such a file, all of it. `of`: when it was taken; a later one may have its name. */
export function FileText({path, of, file: {name, size}, children}: {path: PathFrom; of: string; file: Captured; children: (text: string) => ComponentChildren}): JSX.Element {
  const {state, again} = useWork<string>(`${path(0)} ${of} ${size}`, async (stop) => (await whole((offset) => slice(path(offset), stop), {size})).text());
  return <Show asked={state.value} what={name} again={again}>{children}</Show>;
}
