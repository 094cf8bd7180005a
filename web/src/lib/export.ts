// What a chart or a page gives away: files and commands.
import type {Column} from './series';

/** RFC 4180; null is an empty field. */
export function csv(names: string[], x: ArrayLike<number>, columns: ArrayLike<number | null | undefined>[]): string {
  const field = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  const lines = [names.map(field).join(',')];
  for (let i = 0; i < x.length; i++) {
    lines.push([x[i], ...columns.map((column) => column[i] ?? '')].join(','));
  }
  return `${lines.join('\r\n')}\r\n`;
}

/** As JSON Lines would be too long for spreadsheets and too short for programs: columns by name. */
export function columnsJson(names: string[], x: ArrayLike<number>, columns: Column[]): string {
  return JSON.stringify(Object.fromEntries([[names[0]!, Array.from(x)], ...columns.map((column, i) => [names[i + 1]!, column])]));
}

/** A word of a POSIX shell. */
export function shellWord(text: string): string {
  return /^[A-Za-z0-9_./:@%+=,-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}

export function seriesCommand(id: string, metric: string, ranks?: string): string {
  return `lockstep series ${id} ${shellWord(metric)}${ranks ? ` --ranks ${ranks}` : ''}`;
}

/** What Prometheus has of a metric that ranks report, if it has it. */
export function promQl(id: string, metric: string): string | undefined {
  const counter = /^(samples|tokens|checkpoint_seconds)$/.test(metric);
  if (!counter && !/^(loss|grad_norm|learning_rate|(step|busy|comm_wait|data_wait)_seconds)$/.test(metric)) return undefined;
  const all = `lockstep_rank_${metric.replace('step_', 'step_time_')}${counter ? '_total' : ''}{job_id="${id}"}`;
  return `quantile(0.5, ${counter ? `rate(${all}[5m])` : all})`;
}

export function fileName(...parts: string[]): string {
  return parts.map((part) => part.replace(/[^A-Za-z0-9._-]+/g, '_').slice(0, 60)).filter(Boolean).join('-');
}

export function download(name: string, content: Blob | string, type = 'text/plain'): void {
  const blob = typeof content === 'string' ? new Blob([content], {type}) : content;
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** True if it is on the clipboard now. Without TLS browsers have no clipboard API but on localhost. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'away';
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

/** A dashboard of deploy/grafana while the job ran. */
export function grafanaLink(base: string, dashboard: 'job' | 'rank', job: {id: string; started_at?: string; submitted_at: string; finished_at?: string}, more: Record<string, string> = {}): string {
  const at = (time: string) => String(Date.parse(time));
  return `${base.replace(/\/+$/, '')}/d/lockstep-${dashboard}?${new URLSearchParams({'var-job_id': job.id, ...more, from: at(job.started_at ?? job.submitted_at), to: job.finished_at ? at(job.finished_at) : 'now'})}`;
}
