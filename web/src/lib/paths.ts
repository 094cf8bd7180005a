// Addresses: of the page, behind its #, and of what its pages ask lockstepd for. `sure` is what a page at an address is sure to
// ask for: early.ts sends that before there is a page.

export interface Place {
  path: string[];
  query: Record<string, string>;
}

export function parsePlace(hash: string): Place {
  const text = hash.replace(/^#\/?/, '');
  const mark = text.indexOf('?');
  const path = (mark < 0 ? text : text.slice(0, mark)).split('/').filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  const query: Record<string, string> = {};
  if (mark >= 0) for (const [name, value] of new URLSearchParams(text.slice(mark + 1))) query[name] = value;
  return {path, query};
}

export type Values = Record<string, string | number | boolean | undefined>;

/** name=value pairs as a query; undefined ones are left out. */
export function parameters(values: Values): string {
  const list = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== undefined && value !== '') list.set(name, String(value));
  const text = list.toString();
  return text ? `?${text}` : '';
}

export const kWhoAmI = 'v1/whoami';
export const kListFields = 'id,name,user,framework,state,labels,resources,submitted_at,started_at,finished_at,cancel_requested_at,step,total_steps,ettr,lost_steps,anomalies,pending_reason,expected_start,hang,cause,sweep';

/** A page of jobs as the filters of the address say. */
export const listPath = ({state, q, user, name, label, sweep}: Record<string, string>, cursor?: string) => `v1/jobs${parameters({state, q, user, name, label, sweep, limit: 50, cursor, fields: kListFields})}`;
export const jobPath = (id: string, rest = '') => `v1/jobs/${id}${rest}`;
export const namesPath = (id: string) => jobPath(id, '/metrics');
/** The newest events, or those before `before`. */
export const eventsPath = (id: string, before?: string) => jobPath(id, `/events${parameters({order: 'desc', limit: 1000, before})}`);
/** The history of a metric over all ranks. */
export const allPath = (id: string, metric: string, more: Values = {}) => jobPath(id, `/series${parameters({metric, ranks: 'all', stat: 'min,p5,median,p95,max', points: 600, ...more})}`);

/** Most columns of the heatmap. */
export const kColumns = 600;
/** Steps of a slow rank stand out where waiting is taken out; without it only whole steps can be shown. */
export const kHeatOrder = ['busy_seconds', 'step_seconds', 'comm_wait_seconds', 'data_wait_seconds', 'loss'];
export const heatPath = (id: string, metric: string) => jobPath(id, `/heatmap${parameters({metric, columns: kColumns, rows: 1024})}`);

export function sure({path: [section = 'jobs', id, page, rank], query}: Place): string[] {
  if (section !== 'jobs') return section === 'signin' ? [] : [kWhoAmI];
  if (!id) return [kWhoAmI, listPath(query)];
  // History is read by one thread: first what nothing is drawn without.
  return [kWhoAmI, jobPath(id), namesPath(id), ...page === 'ranks' && !rank ? [heatPath(id, query['metric'] ?? kHeatOrder[0]!)] : [],
    ...page || query['x'] || query['zoom'] ? [] : [allPath(id, 'loss')], eventsPath(id)];
}
