// Text of strangers: names, messages and log lines may hold anything. The page sets text only, never markup; what is
// left to do is to keep control and direction characters from changing what is around them.

/** Characters that are not seen but change what is: C0 and C1 controls, bidi controls, invisible fillers, lone surrogates. */
const kHidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** The text with every hidden character written out: ␛, ␀, ‹U+202E›. */
export function visible(text: string): string {
  return text.replace(kHidden, (one) => {
    const code = one.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    if (code === 0x7f) return '␡';
    return `‹U+${code.toString(16).toUpperCase().padStart(4, '0')}›`;
  });
}

/** At most `most` characters, visible; says how much was left out. */
export function clipped(text: string, most: number): string {
  return text.length <= most ? visible(text) : `${visible(text.slice(0, most))}… (+${text.length - most} characters)`;
}

export interface Span {text: string; style: string}

const kColours = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];

/** The class names of one SGR state; "" for plain text. */
function styleOf(state: {fg: string; bg: string; bold: boolean; dim: boolean; italic: boolean; underline: boolean}): string {
  return [state.bold && 'a-bold', state.dim && 'a-dim', state.italic && 'a-italic', state.underline && 'a-under',
    state.fg && `a-${state.fg}`, state.bg && `a-on-${state.bg}`].filter(Boolean).join(' ');
}

/** The 16 basic colours of a 256-colour or RGB code, near enough for a log. */
function nearest(r: number, g: number, b: number): string {
  const bits = (r > 110 ? 1 : 0) | (g > 110 ? 2 : 0) | (b > 110 ? 4 : 0);
  return kColours[bits]!;
}
function indexed(n: number): string {
  if (n < 16) return kColours[n % 8]!;
  if (n > 231) return n > 243 ? 'white' : 'black';
  const level = (v: number) => (v % 6) * 51;
  return nearest(level(Math.floor((n - 16) / 36)), level(Math.floor((n - 16) / 6)), level(n - 16));
}

/** A line of a terminal as styled pieces. Colours are kept, every other escape sequence is left out. What a carriage
 *  return overwrites (progress bars) is left out, too. */
export function ansi(line: string): Span[] {
  const out: Span[] = [];
  const state = {fg: '', bg: '', bold: false, dim: false, italic: false, underline: false};
  const cut = line.replace(/\r+$/, '');
  const text = cut.slice(cut.lastIndexOf('\r') + 1);
  // CSI, OSC (ended by BEL or ST), other two-character escapes.
  const pattern = /\u001b\[([0-9;:?<=>]*)[ -/]*([@-~])|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[@-Z\\^_()#%*+][0-9A-B]?/g;
  let at = 0;
  const push = (piece: string) => {
    if (piece) out.push({text: visible(piece), style: styleOf(state)});
  };
  for (let match = pattern.exec(text); match; match = pattern.exec(text)) {
    push(text.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[2] !== 'm') continue;
    const codes = (match[1] || '0').split(/[;:]/).map(Number);
    for (let i = 0; i < codes.length; i++) {
      const c = codes[i]!;
      if (c === 0) Object.assign(state, {fg: '', bg: '', bold: false, dim: false, italic: false, underline: false});
      else if (c === 1) state.bold = true;
      else if (c === 2) state.dim = true;
      else if (c === 3) state.italic = true;
      else if (c === 4) state.underline = true;
      else if (c === 22) state.bold = state.dim = false;
      else if (c === 23) state.italic = false;
      else if (c === 24) state.underline = false;
      else if (c === 39) state.fg = '';
      else if (c === 49) state.bg = '';
      else if ((c >= 30 && c < 38) || (c >= 90 && c < 98)) state.fg = kColours[c % 10]!;
      else if ((c >= 40 && c < 48) || (c >= 100 && c < 108)) state.bg = kColours[c % 10]!;
      else if (c === 38 || c === 48) {
        let colour = '';
        if (codes[i + 1] === 5) {
          colour = indexed(codes[i + 2] ?? 0);
          i += 2;
        } else if (codes[i + 1] === 2) {
          colour = nearest(codes[i + 2] ?? 0, codes[i + 3] ?? 0, codes[i + 4] ?? 0);
          i += 4;
        }
        if (c === 38) state.fg = colour;
        else state.bg = colour;
      }
    }
  }
  push(text.slice(at));
  return out;
}

/** What a line is about, for its colour and the level filter. */
export function levelOf(line: string): 'error' | 'warning' | 'plain' {
  if (/\b(?:error|fatal|critical|exception|traceback|panic|abort(?:ed)?)\b|\b\w+Error:/i.test(line.slice(0, 400))) return 'error';
  return /\bwarn(?:ing)?\b/i.test(line.slice(0, 400)) ? 'warning' : 'plain';
}
