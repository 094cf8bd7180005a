// Job specifications as trees: what is different, and a form made of their schema.

export interface Difference {path: string; a?: string; b?: string}

function leaves(value: unknown, path: string, out: Map<string, string>): void {
  if (value !== null && typeof value === 'object' && !Array.isArray(value) && Object.keys(value).length) {
    for (const [name, inner] of Object.entries(value)) leaves(inner, path ? `${path}.${name}` : name, out);
  } else if (typeof value !== 'object' || Array.isArray(value)) {
    out.set(path, typeof value === 'string' ? value : JSON.stringify(value) ?? '');
  }
}

/** The leaves that two documents do not share, by path; arrays are leaves. */
export function diffJson(a: unknown, b: unknown): Difference[] {
  const left = new Map<string, string>();
  const right = new Map<string, string>();
  leaves(a ?? {}, '', left);
  leaves(b ?? {}, '', right);
  return [...new Set([...left.keys(), ...right.keys()])].sort().filter((path) => left.get(path) !== right.get(path))
    .map((path) => ({path, a: left.get(path), b: right.get(path)}));
}

export interface Schema {
  type?: string | string[]; $ref?: string; properties?: Record<string, Schema>; required?: string[]; enum?: string[]; default?: unknown; description?: string; deprecated?: boolean;
  minimum?: number; maximum?: number; maxLength?: number; pattern?: string; items?: Schema; additionalProperties?: boolean | Schema; examples?: unknown[]; maxItems?: number;
}

/** What $ref names; the schema itself otherwise. */
export function resolve(schema: Schema, all: Record<string, Schema>): Schema {
  const name = schema.$ref?.split('/').pop();
  return name && all[name] ? {...all[name], description: schema.description ?? all[name].description} : schema;
}

type Tree = Record<string, unknown>;

/** The specification without the values that only its owner is shown, and whose they are. */
export function withoutMasked(spec: Tree): {spec: Tree; masked: string[]} {
  const out = {...spec};
  const masked: string[] = [];
  for (const key of ['environment', 'recorded_environment']) {
    const all = Object.entries(spec[key] ?? {});
    const kept = all.filter(([, value]) => value !== '***');
    if (kept.length === all.length) continue;
    masked.push(...all.filter(([, value]) => value === '***').map(([name]) => name));
    out[key] = Object.fromEntries(kept);
    // A part of the caller's environment is nobody's.
    if (key !== 'environment') delete out[key], delete out['inherit_environment'];
  }
  // A webhook without its path is nobody's receiver.
  const told = Array.isArray(spec['notify']) ? spec['notify'] : [];
  const whole = told.filter((target) => !String(target).endsWith('***'));
  if (whole.length < told.length) {
    masked.push('notify');
    if (whole.length) out['notify'] = whole;
    else delete out['notify'];
  }
  return {spec: out, masked};
}

/** A copy with the value at a path; undefined takes it away, and objects that are empty then with it. */
export function withValue(root: Tree, path: string[], value: unknown): Tree {
  const [first, ...rest] = path;
  if (first === undefined) return root;
  const copy: Tree = {...root};
  const inner = rest.length ? withValue((copy[first] as Tree) ?? {}, rest, value) : value;
  if (inner === undefined || (rest.length && Object.keys(inner as Tree).length === 0)) delete copy[first];
  else copy[first] = inner;
  return copy;
}

export function valueAt(root: unknown, path: string[]): unknown {
  return path.reduce<unknown>((value, name) => (value && typeof value === 'object' ? (value as Tree)[name] : undefined), root);
}

/** argv of a line as a person types it: quotes and backslashes as a shell has them, nothing is expanded. */
export function splitCommand(line: string): string[] {
  const out: string[] = [];
  let word = '';
  let open = false;
  let quote = '';
  for (let i = 0; i < line.length; i++) {
    const c = line[i]!;
    if (quote) {
      if (c === quote) quote = '';
      // POSIX: there a backslash is one but before what it would take the meaning from.
      else if (c === '\\' && quote === '"' && '$`"\\\n'.includes(line[i + 1] ?? ' ')) word += line[++i] === '\n' ? '' : line[i];
      else word += c;
    } else if (c === '"' || c === "'") {
      quote = c;
      open = true;
    } else if (c === '\\' && i + 1 < line.length) {
      if (line[++i] === '\n') continue;  // the command goes on in the next line
      word += line[i];
      open = true;
    } else if (/\s/.test(c)) {
      if (open || word) out.push(word);
      word = '';
      open = false;
    } else {
      word += c;
    }
  }
  if (open || word) out.push(word);
  return out;
}

export function joinCommand(argv: string[]): string {
  return argv.map((word) => (/^[A-Za-z0-9_./:@%+=,{}-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`)).join(' ');
}

/** JSON with comments, as `lockstep submit` reads it; throws a SyntaxError with the place. */
export function parseDocument(text: string): unknown {
  // Of a name that is there twice JSON.parse takes the last; lockstepd takes neither, in these words.
  const open: Set<string>[] = [];
  let word: string | undefined;
  // Strings are kept whole, so that // in a URL is no comment; line ends stay for the place of an error.
  const bare = text.replace(/"(?:[^"\\]|\\.)*"|\/\/[^\n]*|\/\*[\s\S]*?\*\/|(?<![.\d])-?\d{16,}(?![.\deE])|[{}:]/g, (part) => {
    if (part.startsWith('/')) return part.replace(/[^\n]/g, ' ');
    if (part.startsWith('"')) word = part;
    else if (part === '{') open.push(new Set());
    else if (part === '}') open.pop();
    else if (part !== ':') {
      if (!Number.isSafeInteger(Number(part))) throw new SyntaxError(`${part.slice(0, 64)}: whole numbers go to 2^53 - 1 here`);
    } else if (word) {
      const name = JSON.parse(word) as string;
      word = undefined;
      if (open.at(-1)?.has(name)) throw new SyntaxError(`the key "${name.slice(0, 64)}" appears twice`);
      open.at(-1)?.add(name);
    }
    return part;
  });
  return JSON.parse(bare);
}

/** What is meant in a field for a number: nothing, the number, or the text itself while it is none, which lockstepd then says. */
export function numberOf(typed: string): number | string | undefined {
  const text = typed.trim();
  // Larger ones would be written with digits that are not exact.
  return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) && Math.abs(Number(text)) <= Number.MAX_SAFE_INTEGER ? Number(text) : text || undefined;
}

/** As above, in a field for a list or an object. */
export function jsonOf(typed: string): unknown {
  try {
    return typed.trim() ? JSON.parse(typed) : undefined;
  } catch {
    return typed;
  }
}
