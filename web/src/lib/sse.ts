// Server-sent events out of text as it arrives.

export interface Message {id?: string; event: string; data: string}

export class MessageReader {
  private rest = '';
  /** The newest id seen, also of messages without data: where a new connection begins. */
  lastId: string | undefined;
  retry: number | undefined;
  private event = '';
  private data: string[] = [];
  private id: string | undefined;

  push(text: string): Message[] {
    const out: Message[] = [];
    const lines = (this.rest + text).split('\n');
    this.rest = lines.pop() ?? '';
    for (const raw of lines) {
      const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
      if (line === '') {
        if (this.id !== undefined) this.lastId = this.id;
        if (this.data.length) out.push({id: this.id, event: this.event || 'message', data: this.data.join('\n')});
        this.event = '';
        this.data = [];
        this.id = undefined;
        continue;
      }
      const colon = line.indexOf(':');
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
      if (field === 'data') this.data.push(value);
      else if (field === 'event') this.event = value;
      else if (field === 'id') this.id = value;
      else if (field === 'retry' && /^\d+$/.test(value)) this.retry = Number(value);
    }
    return out;
  }
}
