// A log as it grows: a stream of its own where that comes through.
import {follow} from './api';
import {cut, endAfter, kInstead, kSilence, locks, name} from './live';

/** What `work` gives where one of three places of all tabs is free; null: none is. Each log that is followed is a connection, too. */
async function inPlace<T>(work: () => Promise<T>): Promise<T | null> {
  if (!locks) return work();
  for (let i = 0; i < 3; i++) {
    const out = await locks.request(`${name} ${i}`, {ifAvailable: true}, async (place) => place && work());
    if (out !== null) return out;
  }
  return null;
}

/** What comes of a log, until live updates are cut off or it is silent for so long that the stream may be dead or held back. Gives
 *  the milliseconds after which one asks what else has come: also where other tabs have all places, or streams do not come through. */
export async function followLog(path: string, stop: AbortSignal, take: (chunk: Uint8Array) => void): Promise<number> {
  return cut.peek() ? kInstead * 1000 : await inPlace(async () => {
    const mine = new AbortController();
    const heard = endAfter(mine);
    const end = () => mine.abort();
    if (stop.aborted) end();
    stop.addEventListener('abort', end, mine);  // until it has ended itself
    const unwatch = cut.subscribe((yes) => { if (yes) end(); });
    try {
      heard(kSilence);
      await follow(path, {}, mine.signal, (chunk) => {
        heard(kSilence);
        take(chunk);
      });
    } catch (error) {
      if (!mine.signal.aborted) throw error;
      return 0;
    } finally {
      end();
      heard();
      unwatch();
    }
    return kInstead * 1000;
  }) ?? 1000;
}
