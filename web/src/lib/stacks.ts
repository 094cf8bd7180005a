// Folded stacks as a profile has them, "thread;frame;frame 12": a line for each stack, and how often it was seen.

export interface Frame {name: string; count: number; self: number; callees: Frame[]}

const kDeepest = 200;

/** A tree for each thread, the main thread first, then by how often it was seen; callees by the same. */
export function threads(text: string): Frame[] {
  const root: Frame = {name: '', count: 0, self: 0, callees: []};
  const places = new Map<Frame, Map<string, Frame>>();
  for (const line of text.split('\n')) {
    const cut = line.lastIndexOf(' ');
    const count = Number(line.slice(cut + 1));
    if (cut <= 0 || !Number.isInteger(count) || count <= 0) continue;
    let at = root;
    for (const name of line.slice(0, cut).split(';').slice(0, kDeepest)) {
      let callees = places.get(at);
      if (!callees) places.set(at, callees = new Map());
      let next = callees.get(name);
      if (!next) {
        next = {name, count: 0, self: 0, callees: []};
        callees.set(name, next);
        at.callees.push(next);
      }
      next.count += count;
      at = next;
    }
    at.self += count;
  }
  const main = (one: Frame) => Number(one.name === 'MainThread');
  for (const frame of places.keys()) frame.callees.sort((a, b) => b.count - a.count);
  return root.callees.sort((a, b) => main(b) - main(a) || b.count - a.count);
}

/** Where it was, lines that are on top of a stack; of all below `frame`, the most frequent first. */
export function hottest(frame: Frame, most: number): {name: string; self: number}[] {
  const sums = new Map<string, number>();
  const open = [frame];
  for (let one = open.pop(); one; one = open.pop()) {
    if (one.self) sums.set(one.name, (sums.get(one.name) ?? 0) + one.self);
    open.push(...one.callees);
  }
  return [...sums].map(([name, self]) => ({name, self})).sort((a, b) => b.self - a.self).slice(0, most);
}
