// Files that lockstepd gives in slices of a mebibyte: all of one, or nothing and the reason.
import {ApiError, good} from './api';

export interface Slice {
  bytes: Uint8Array;
  /** The byte of the file that it begins with, and the one that comes next. */
  offset: number;
  next: number;
  /** Where bytes begin that are not kept: a line of the answer stands for them. May be before `offset`. NaN: there are none. */
  hole?: number;
  /** Whose log it is, where the rank has none of its own. */
  instead: string | null;
  /** The attempt whose log it is: another one's has other bytes at an offset. */
  attempt?: string | null;
}

/** What is behind a full slice is asked for: a shorter one is the last. */
export const kSlice = 1 << 20;
const kTries = 6;

export async function slice(path: string, stop?: AbortSignal): Promise<Slice> {
  const response = await good(path, stop);
  const header = (name: string) => response.headers.get(`Lockstep-Log-${name}`);
  let bytes: ArrayBuffer;
  try {
    bytes = await response.arrayBuffer();
  } catch (error) {
    if (stop?.aborted) throw error;
    throw new ApiError(0, undefined, 'the connection broke');
  }
  return {bytes: new Uint8Array(bytes), offset: Number(header('Offset')), next: Number(header('Next')), instead: header('Rank'), attempt: header('Attempt'), hole: parseInt(header('Dropped') ?? '')};
}

const passes = (error: unknown) => error instanceof ApiError && (error.status === 0 || error.status === 429 || error.status >= 500);
export const sleep = (milliseconds: number) => new Promise<void>((resolve) => setTimeout(resolve, milliseconds));

interface Wanted {
  /** What a list says that it has; undefined: it grows. */
  size?: number;
  /** How far it has come. */
  came?: (bytes: number) => void;
  /** Of tests. */
  pause?: (milliseconds: number) => Promise<void>;
}

/** All of a file, slice by slice; what passes (5xx, no answer) is tried again. Throws the reason why it is not whole. */
export async function whole(ask: (offset: number) => Promise<Slice>, {size, came, pause = sleep}: Wanted = {}): Promise<Blob> {
  // Blobs, as the browser keeps those out of the memory of the page.
  const parts: Blob[] = [];
  let at = 0;
  for (let failures = 0; size === undefined || at < size || at === 0;) {
    let got: Slice;
    try {
      got = await ask(at);
    } catch (error) {
      if (!passes(error) || ++failures >= kTries) throw error;
      await pause(250 * 2 ** failures);
      continue;
    }
    failures = 0;
    if (got.offset !== at) throw new ApiError(-1, undefined, 'It has become shorter meanwhile; nothing was saved');
    parts.push(new Blob([got.bytes as BlobPart]));
    at = got.next;
    came?.(at);
    if (got.next - got.offset < kSlice) break;
  }
  const all = new Blob(parts);
  if (size !== undefined && (at !== size || all.size !== size)) throw new ApiError(-1, undefined, `It has ${all.size} bytes, and ${size} when it was listed; nothing was saved`);
  return all;
}
