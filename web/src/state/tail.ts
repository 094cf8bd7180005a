// What is kept of a log that is read as it grows: its newest lines, as a terminal would show them.

export interface Line {text: string; number: number}

const kLines = 20_000;
const kLine = 1 << 20;         // characters after which a line goes on in the next
const kCharacters = 1 << 25;   // of all lines

/** What is left of a line on a terminal: what follows the last carriage return. One at the end moves nothing yet: "\r\n" is a line's end. */
export function overwritten(text: string): string {
  const end = text.replace(/\r+$/, '');
  const from = end.lastIndexOf('\r') + 1;
  return end.length < text.length ? `${end.slice(from)}\r` : end.slice(from);
}

export class Tail {
  /** Numbers ascend by one. The last line may be without its end: its text changes, its number stays. */
  lines: Line[] = [];
  /** How many are no longer kept. */
  dropped = 0;
  /** The byte that comes next; undefined: nothing was read yet. */
  next?: number;
  /** The attempt that it is of. */
  attempt?: string | null;
  private decoder = new TextDecoder();
  private open = false;
  private numbered = 0;
  private characters = 0;

  /** `cut`: what comes first is the rest of a line. */
  constructor(public cut = false, private most = {lines: kLines, line: kLine, characters: kCharacters}) {}

  /** Bytes of the log, the next of which is `next`. A character may be cut between two calls. */
  push(bytes: Uint8Array, next: number): void {
    this.next = next;
    const pieces = this.decoder.decode(bytes, {stream: true}).split('\n');
    pieces.forEach((piece, i) => {
      if (piece) this.write(piece);
      if (i < pieces.length - 1) this.end();
    });
    this.trim();
  }

  private write(piece: string): void {
    let text = overwritten(this.open ? this.take() + piece : piece);
    for (; text.length > this.most.line; text = text.slice(this.most.line)) this.put(text.slice(0, this.most.line));
    this.put(text);
    this.open = true;
  }

  private end(): void {
    if (!this.open) this.put('');
    this.open = false;
    if (!this.cut) return;
    this.cut = false;
    while (this.lines.length) this.take();
  }

  private put(text: string): void {
    this.lines.push({text, number: ++this.numbered});
    this.characters += text.length;
  }

  private take(): string {
    const {text} = this.lines.pop()!;
    this.numbered--;
    this.characters -= text.length;
    return text;
  }

  private trim(): void {
    let from = Math.max(0, this.lines.length - this.most.lines);
    for (let i = 0; i < from; i++) this.characters -= this.lines[i]!.text.length;
    while (this.characters > this.most.characters && from < this.lines.length - 1) this.characters -= this.lines[from++]!.text.length;
    if (!from) return;
    this.dropped += from;
    this.lines = this.lines.slice(from);
  }
}

/** The index of a line of that number, or of the first behind it. */
export function indexOf(lines: Line[], number: number): number {
  let low = 0;
  let high = lines.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lines[middle]!.number < number) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** What a reader looks at: a line, and how far it is scrolled out. The line stays where it is, whatever comes and goes around it. */
export interface Place {number: number; off: number}

interface Seen {
  /** undefined: the end, which is followed. */
  place?: Place;
  /** Numbers of the first and last line of the selected text. */
  selected?: [number, number];
  height: number;
  /** undefined: lines have other heights. Then they begin with the same one as before, if they may: whatever comes before a line moves it. */
  row?: number;
  first?: number;
}

const kAround = 20;
const kWrapped = 1000;

/** Which of the lines are to exist: those that are seen and some more, and all that is selected. */
export function windowOf(lines: Line[], {place, selected, height, row, first}: Seen): [from: number, to: number] {
  const at = place ? indexOf(lines, place.number) : lines.length;
  let from: number;
  let to: number;
  if (row) {
    const seen = Math.ceil(height / row) + 1;
    from = (place ? at : at - seen) - kAround;
    to = at + seen + kAround;
  } else {
    const before = first === undefined ? -1 : indexOf(lines, first);
    from = place && before >= 0 && (before === 0 || at - before >= kWrapped / 4) && at - before <= 2 * kWrapped ? before : at - kWrapped;
    to = Math.max(from, 0) + 3 * kWrapped;
  }
  if (selected) {
    from = Math.min(from, indexOf(lines, selected[0]));
    to = Math.max(to, indexOf(lines, selected[1] + 1));
  }
  return [Math.max(0, from), Math.min(lines.length, to)];
}
