// The parameters of a sweep as a person writes them, a line each: NAME=VALUES, as `lockstep run --sweep` takes them.

type Parameters_ = Record<string, unknown[]>;
const kMost = 1001;  // one more than lockstepd takes: it says that these are too many

/** 0.1 as a number, since JSON writes it so; 1e-3 as a text, since JSON would write 0.001. */
function valueOf(text: string): unknown {
  try {
    const value = JSON.parse(text) as unknown;
    return (typeof value === 'number' || typeof value === 'boolean') && JSON.stringify(value) === text ? value : text;
  } catch {
    return text;
  }
}

/** A list with commas between, in which 1..4 stands for 1,2,3,4, or a JSON array. What fills a variable is always text. */
function valuesOf(name: string, text: string): unknown[] {
  if (text.startsWith('[')) {
    try {
      return JSON.parse(text) as unknown[];
    } catch {
      return [text];  // half written
    }
  }
  const out: unknown[] = [];
  for (const one of text.split(',').map((part) => part.trim()).filter(Boolean)) {
    const [, first, last] = /^(-?\d{1,12})\.\.(-?\d{1,12})$/.exec(one) ?? [];
    if (first === undefined) {
      out.push(valueOf(one));
      continue;
    }
    const step = Number(first) <= Number(last) ? 1 : -1;
    for (let value = Number(first); value !== Number(last) + step && out.length < kMost; value += step) out.push(value);
  }
  return /^(environment|command)\./.test(name) ? out.map(String) : out;
}

/** What is wrong is for lockstepd to say: whatever is typed means something. */
export function parametersOf(text: string): Parameters_ | undefined {
  const out = new Map<string, unknown[]>();
  for (const line of text.split('\n')) {
    const [name] = line.split('=', 1);
    if (!line.trim()) continue;
    out.set(name!.trim(), [...out.get(name!.trim()) ?? [], ...valuesOf(name!.trim(), line.slice(name!.length + 1).trim())]);
  }
  return out.size ? Object.fromEntries(out) : undefined;
}

export function parameterLines(parameters: Parameters_): string {
  return Object.entries(parameters).map(([name, values]) => {
    if (!Array.isArray(values)) return `${name}=${JSON.stringify(values)}`;  // half written as text: lockstepd says what is wrong
    const line = `${name}=${values.join(',')}`;
    const [before, ...more] = values;
    // Three and more that follow each other, as they were typed.
    const range = more.length > 1 && values.every((value, i) => Number.isInteger(value) && (i === 0 || (value as number) - (values[i - 1] as number) === ((more[0] as number) > (before as number) ? 1 : -1)));
    const short = range ? `${name}=${before}..${more.pop()}` : line;
    return JSON.stringify(parametersOf(short)?.[name]) === JSON.stringify(values) ? short : `${name}=${JSON.stringify(values)}`;
  }).join('\n');
}

/** One job's values. */
export const pointText = (parameters: Record<string, unknown> = {}) => Object.entries(parameters).map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`).join(' ');
