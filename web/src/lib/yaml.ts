// Specifications in YAML, as `lockstep submit` reads them. js-yaml says what is in the text
// and where; what it means is said here, as job/cli/document_yaml.cpp has it.
import {EVENT_ID, getScalarValue, parseEvents, SCALAR_STYLE, type Event, type ScalarEvent} from 'js-yaml';
import {parseDocument} from './spec';

// Of lockstepd's limits; of texts and paths together.
const kDepth = 32;
const kNodes = 100_000;
const kLetters = 64 << 20;
const kFields = 1024;  // of one map

// What is text although it may look like a number. A name may have line breaks, or nothing.
const kTexts = /^\/(name|setup|working_directory|resources\/time_limit|slurm\/(account|partition|qos)|(command|environment|labels|slurm\/directives|recorded_environment)\/[^]*)$/;

/** A plain scalar by YAML 1.2's core schema. */
function plain(text: string): unknown {
  if (/^(|~|null|Null|NULL)$/.test(text)) return null;
  if (/^(true|True|TRUE|false|False|FALSE)$/.test(text)) return /^t/i.test(text);
  return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) && Number.isFinite(Number(text)) ? Number(text) : text;
}

/** The document's value; throws a SyntaxError with the place. */
export function parseYaml(text: string): unknown {
  const stop = (why: string, at: number): never => {
    const before = text.slice(0, Math.max(0, at)).split(/\r\n?|\n/);
    throw new SyntaxError(`line ${before.length}, column ${before.pop()!.length + 1}: ${why}`);
  };
  const tooMuch = 'the document is too large or nested too deeply, or an alias makes it so';
  let events: Event[] | undefined;
  let spaced = text;
  while (!events) {
    try {
      // What is deepest may be 32 deep, and is tried as a name first, which is one more.
      events = parseEvents(spaced, {maxDepth: kDepth + 2});
    } catch (error) {
      const {reason, mark} = error as {reason?: string; mark?: {position: number; line: number}};
      if (!mark) throw error;
      // Between [ ] and { } js-yaml takes any tab of a line for its indentation. Behind that it separates as a blank does; with
      // blanks there all places are the same, and values are read from the text itself.
      const before = spaced;
      if (/deficient/.test(reason!)) spaced = before.split('\n').map((line, i) => (i === mark.line ? line.replace(/\S.*/, (rest) => rest.replace(/\t/g, ' ')) : line)).join('\n');
      if (spaced === before) stop(/maxDepth/.test(reason!) ? tooMuch : reason!, mark.position);
    }
  }
  // An alias is what its anchor was last given to, here as often as it is there: each place says whether it is text.
  const meant = new Map<number, number>();
  const anchors = new Map<string, number>();
  /** Of what is empty: where it would be, after what stands before it and the sign between them. */
  const placeOf = (event: Event): number => {
    let place = 0;
    for (const one of events) {
      let end = place;
      if ('valueStart' in one && one.valueStart >= 0) {
        const quote = one.style === SCALAR_STYLE.SINGLE_QUOTED || one.style === SCALAR_STYLE.DOUBLE_QUOTED ? 1 : 0;
        place = one.valueStart - quote;
        end = one.valueEnd + quote;
      } else if ('start' in one) {
        place = one.start;
        end = place + (/[[{]/.test(text[place]!) ? 1 : 0);
      } else if ('anchorStart' in one && one.anchorStart >= 0) {
        [place, end] = [one.anchorStart, one.anchorEnd];
      } else if ('tagStart' in one && one.tagStart >= 0) {
        [place, end] = [one.tagStart, one.tagEnd];
      } else if (one.type === EVENT_ID.SCALAR) {
        end = place += /^([\s\]}]|#.*)*([-:?][ \t]*)?/.exec(text.slice(place))![0].length;
      }
      if (one === event) break;
      place = end;
    }
    return place;
  };
  let documents = 0;
  events.forEach((event, i) => {
    if (event.type === EVENT_ID.DOCUMENT) documents++;
    if (!('anchorStart' in event) || event.anchorStart < 0) return;
    const name = text.slice(event.anchorStart, event.anchorEnd);
    if (event.type === EVENT_ID.ALIAS) meant.set(i, anchors.get(name) ?? stop(`nothing is called ${name} before`, event.anchorStart));
    else anchors.set(name, i);
  });
  if (documents !== 1) throw new SyntaxError(`one document is wanted, there are ${documents}`);
  let at = 1;
  let nodes = 0;
  let letters = 0;
  /** Aliases may lead in circles and multiply what is there, wherever they stand: before anything is read it is counted. */
  const enter = (event: Event, depth: number, more: number): void => {
    letters += more;
    if (++nodes > kNodes || letters > kLetters || depth > kDepth) stop(tooMuch, placeOf(event));
  };
  /** Reads with the cursor at what an alias means, and goes on after the alias. */
  const there = <T>(work: (event: Event) => T): T => {
    const to = meant.get(at);
    if (to === undefined) return work(events[at++]!);
    const back = at + 1;
    at = to + 1;
    const out = work(events[to]!);
    at = back;
    return out;
  };
  const isText = (event: ScalarEvent): boolean => (event.tagStart < 0 ? event.style !== SCALAR_STYLE.PLAIN : /^(!|!!str|!<tag:yaml.org,2002:str>)$/.test(text.slice(event.tagStart, event.tagEnd)));
  const word = (event: Event): string => {
    const name = event.type === EVENT_ID.SCALAR ? getScalarValue(text, event) : '';
    return event.type === EVENT_ID.SCALAR && (isText(event) || plain(name) !== null) ? name : stop('the name of a field must be plain text', placeOf(event));
  };
  const read = (path: string, depth: number): unknown => there((event) => {
    enter(event, depth, path.length + ('valueEnd' in event ? event.valueEnd - event.valueStart : 0));
    if (event.type === EVENT_ID.MAPPING) return map(path, depth);
    if (event.type === EVENT_ID.SEQUENCE) {
      const out: unknown[] = [];
      while (events[at]!.type !== EVENT_ID.POP) out.push(read(`${path}/${out.length}`, depth + 1));
      at++;
      return out;
    }
    const value = getScalarValue(text, event as ScalarEvent);
    if (isText(event as ScalarEvent)) return value;
    const meaning = plain(value);
    if (kTexts.test(path)) return meaning === null ? '' : value;
    // Beyond, numbers of this language are not exact.
    if (Number.isInteger(meaning) && !Number.isSafeInteger(meaning) && !/\D/.test(value.slice(1))) stop(`${value.slice(0, 64)}: whole numbers go to 2^53 - 1 here; a text is in quotes`, placeOf(event));
    return meaning;
  });
  const map = (path: string, depth: number): object => {
    const out = new Map<string, unknown>();
    const put = (event: Event, key: string, value: unknown): unknown => (out.size < kFields ? out.set(key, value) : stop(tooMuch, placeOf(event)));
    const merged: number[] = [];
    while (events[at]!.type !== EVENT_ID.POP) {
      const name = events[at]!;
      const [key, merges] = there((event) => [word(event), !isText(event as ScalarEvent)]);
      if (key === '<<' && merges) {
        merged.push(at);
        skip();
      } else if (out.has(key)) {
        stop(`${JSON.stringify(key.slice(0, 64))} is here twice`, placeOf(name));
      } else {
        put(name, key, read(`${path}/${key.replace(/~/g, '~0').replace(/\//g, '~1')}`, depth + 1));
      }
    }
    const back = ++at;
    // What is there already wins; of several the first.
    const merge = (deep: number): void => there((event) => {
      enter(event, deep, 0);
      if (event.type === EVENT_ID.SEQUENCE) {
        while (events[at]!.type !== EVENT_ID.POP) merge(deep + 1);
        at++;
        return;
      }
      if (event.type !== EVENT_ID.MAPPING) stop('<< takes a map, or a list of maps', placeOf(event));
      for (const [key, value] of Object.entries(map(path, deep + 1))) if (!out.has(key)) put(event, key, value);
    });
    for (at of merged) merge(depth);
    at = back;
    return Object.fromEntries(out);
  };
  const skip = (): void => {
    let open = 0;
    do {
      const {type} = events[at++]!;
      open += type === EVENT_ID.MAPPING || type === EVENT_ID.SEQUENCE ? 1 : type === EVENT_ID.POP ? -1 : 0;
    } while (open > 0);
  };
  return read('', 0);
}

/** A text that every reader of YAML takes for itself. `indent`: of a text that may go over several lines. */
function written(text: string, indent?: string): string {
  // A program over several lines is shown as one.
  if (indent !== undefined && /^\S[^]*\n[^]*\S\n?$/.test(text) && !/[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe]/.test(text)) {
    return `|${text.endsWith('\n') ? '' : '-'}${text.replace(/\n$/, '').replace(/^|\n(?=[^\n])/g, (end) => `${end || '\n'}${indent}`)}`;
  }
  const safe = /^-{0,2}[\w./][\w./@%+=,-]*( [\w./@%+=,-]+)*$/.test(text) && typeof plain(text) === 'string' && !/^([-+.]*\d.*|\.inf|\.nan|[yn]|yes|no|on|off)$/i.test(text);
  return safe ? text : JSON.stringify(text).replace(/[\x7f-\x9f\u2028\u2029\ufeff]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

function block(value: unknown, indent: string): string {
  if (typeof value === 'string') return ` ${written(value, indent)}`;
  const parts = value !== null && typeof value === 'object' ? Object.entries(value) : [];
  // Digits alone are for whole numbers that are exact.
  if (!parts.length) return ` ${Number.isInteger(value) && !Number.isSafeInteger(value) ? (value as number).toExponential() : JSON.stringify(value)}`;
  return parts.map(([key, one]) => `\n${indent}${Array.isArray(value) ? '-' : `${written(key)}:`}${block(one, `${indent}  `)}`).join('');
}

export const formatYaml = (value: unknown): string => `${block(value, '').replace(/^\s/, '')}\n`;

/** A document as somebody wrote it, comments and all. */
export interface Typed {text: string; yaml: boolean}
export const readDocument = ({text, yaml}: Typed): unknown => (yaml ? parseYaml(text) : parseDocument(text));

/** The value in one of the two languages, or in any: as it was typed where that says the same. */
export function asTyped(value: unknown, typed: Typed, yaml?: boolean): Typed {
  let same = false;
  try {
    same = (yaml === undefined || typed.yaml === yaml) && JSON.stringify(readDocument(typed)) === JSON.stringify(value);
  } catch {
    // what was typed cannot be read
  }
  return same ? typed : yaml ? {text: formatYaml(value), yaml} : {text: JSON.stringify(value, null, 2), yaml: false};
}
