// Prometheus' text format, as far as lockstepd writes it.

export interface Sample {name: string; labels: string; value: number}

export function parseMetrics(text: string): Sample[] {
  const out: Sample[] = [];
  for (const line of text.split('\n')) {
    const match = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (match) out.push({name: match[1]!, labels: match[2] ?? '', value: Number(match[3]!.replace('Inf', 'Infinity'))});
  }
  return out;
}

/** [upper bound, how many up to it] of a histogram, its label sets added up. */
export function histogram(samples: Sample[], name: string): [number, number][] {
  const sums = new Map<number, number>();
  for (const one of samples) {
    if (one.name !== `${name}_bucket`) continue;
    const bound = Number((/le="([^"]*)"/.exec(one.labels)?.[1] ?? '').replace('Inf', 'Infinity'));
    sums.set(bound, (sums.get(bound) ?? 0) + one.value);
  }
  return [...sums].sort((a, b) => a[0] - b[0]);
}

/** The value that a share of the observations is not above; within a bucket they are taken as even. undefined: none. */
export function quantile(buckets: [number, number][], share: number): number | undefined {
  const total = buckets[buckets.length - 1]?.[1] ?? 0;
  if (!total) return undefined;
  let low = 0;
  let before = 0;
  for (const [bound, upTo] of buckets) {
    if (upTo >= share * total) return Number.isFinite(bound) ? low + ((bound - low) * (share * total - before)) / Math.max(1, upTo - before) : low;
    low = bound;
    before = upTo;
  }
  return low;
}
