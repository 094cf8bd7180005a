// What the API answers, as far as the page reads it. Absent means unknown, never 0; times are RFC 3339, UTC.

/** A number; one that is not finite is a word. */
export type Loose = number | 'nan' | 'inf' | '-inf';

export type JobState = 'accepted' | 'queued' | 'starting' | 'running' | 'restarting' | 'requeued' | 'held' |
  'succeeded' | 'failed' | 'cancelled';

export interface OtherFailure {
  rank: number; node: string; exit_code?: number; signal?: number; error?: string; failure: 'own' | 'network' | 'echo';
}

export interface Cause {
  class: string; message: string; rank?: number; node?: string; exit_code?: number; signal?: number; log_tail?: string;
  exception?: {type: string; message: string; traceback?: string};
  others?: OtherFailure[]; others_total?: number;
}

export interface Generation {
  number: number; started_at?: string; running_at?: string; finished_at?: string; cause?: Cause;
  resumed_from_step?: number; step?: number; lost_steps?: number; nodes?: number; world_size?: number; message?: string;
}

export interface Attempt {
  number: number; scheduler_id?: string; directory?: string; state: string; nodes: string[]; lost_nodes?: string[];
  created_at?: string; started_at?: string; finished_at?: string; cause?: Cause;
  preflight?: {node: string; check: string; severity: 'fail' | 'warn'; found: string; expected: string}[];
  generations: Generation[];
}

export interface Job {
  id: string; name: string; user: string; framework: string; state: JobState; labels: Record<string, string>;
  resources: {nodes?: number; ranks_per_node?: number; gpus_per_node?: number; time_limit?: string; [field: string]: unknown};
  submitted_at: string; started_at?: string; finished_at?: string; cancel_requested_at?: string;
  step?: number; total_steps?: number; checkpoint_step?: number; checkpoint_path?: string; ettr?: number;
  spans?: Record<string, number>; anomalies?: Record<string, number>; lost_steps?: number;
  sweep?: {id: string; index: number; size: number; parameters?: Record<string, unknown>};
  after?: string[]; pending_reason?: string; expected_start?: string;
  hang?: {since?: string; message?: string; rank?: number; node?: string; step?: number};
  cause?: Cause; warnings?: string[]; attempts?: Attempt[];
}

export interface Page<T> {items: T[]; next_cursor?: string}

export interface JobEvent {
  seq: number; time: string; kind: string; job?: string; attempt?: number; generation?: number; rank?: number;
  node?: string; data?: Record<string, unknown>;
}

export interface Rank {
  rank: number; local_rank: number; node_rank: number; node?: string; role?: string; address?: string; pid?: number;
  state: string; step?: number; loss?: Loose; step_seconds?: Loose; busy_seconds?: Loose; comm_wait_seconds?: Loose;
  data_wait_seconds?: Loose; gpu?: number;
  gpus?: {gpu: number; utilization_ratio?: number; memory_bytes?: number; memory_used_bytes?: number;
    memory_total_bytes?: number; power_watts?: number; temperature_celsius?: number}[];
  report_age_seconds?: number; exit_code?: number; signal?: number;
}

export interface RankPage {items: Rank[]; total?: number; ranks_reporting?: number; samples_per_second?: Loose}

/** [x, min, max, last] of each bucket. */
export type Point = [number, number | null, number | null, number | null];

export interface Bands {
  x: number[]; count?: number[];
  min?: (number | null)[]; p5?: (number | null)[]; median?: (number | null)[]; p95?: (number | null)[]; max?: (number | null)[]; mean?: (number | null)[];
}

export interface RankSeries extends Partial<GpuId> {
  rank: number; points: Point[]; nonfinite?: [number, string][]; nonfinite_total?: number;
}

/** A GPU of a job, as it is known after the job's end, too. */
export interface GpuId {id: number; node: string; gpu: number; ranks: number[]}
export interface GpuList {total: number; metrics: string[]; items: GpuId[]}

export interface WorstRank extends Partial<GpuId> {rank: number; score?: number; points?: Point[]}

export interface Series {
  metric: string; x: 'step' | 'time'; series: RankSeries[]; bands?: Bands; worst?: WorstRank[]; metrics?: string[];
}

export interface StepsEvent {
  id: string; metric: string; attempt?: number; generation?: number; step: number; ranks: number; low: number; high: number;
  cells: string; quantiles?: {min: Loose; p5: Loose; median: Loose; p95: Loose; max: Loose};
  worst?: {rank: number; value: Loose}[]; time?: number;
}

export interface EvidenceRank {
  rank: number; node: string; pid?: number; step?: number; behind: boolean; state?: string; wchan?: string; frame?: string;
  files: Captured[]; missing: {what: string; why: string}[];
}

export interface Evidence {
  attempt: number; generation: number; time: string; reason: string; message: string; step?: number; ranks: EvidenceRank[];
}

export interface Captured {name: string; size: number}

export interface Profile {
  attempt: number; generation: number; profile: number; time: string; by: string; seconds: number; message: string;
  ranks: {rank: number; node: string; files: Captured[]; missing: {what: string; why: string}[]}[];
}

export interface ProfileAsked {attempt: number; generation: number; profile: number; ranks: number[]; seconds: number; patience_seconds: number}

export interface Use {usable?: number; used?: number}
export interface NodeCount {total?: number; usable?: number; idle?: number}

export interface Cluster {
  scheduler: string; name?: string; version?: string; reachable: boolean; problem?: string; seen_at?: string;
  nodes?: NodeCount; cpus?: Use; gpus?: Use;
  partitions: {name: string; state: string; default: boolean; max_time?: string; default_time?: string;
    max_nodes_per_job?: number; nodes?: NodeCount; cpus?: Use; gpus?: Use}[];
}

export interface NodeHistory {
  since: string; attempts: number; faults: number; faults_7d: number; by_kind: Record<string, number>; slow: number;
  excluded: number; last_fault_at?: string; healthy_at?: string;
}

export interface NodeInfo {
  name: string; state: string; usable: boolean; reason?: string; partitions: string[]; cpus: number; cpus_used: number;
  memory_mb?: number; gpus: number; gpus_used: number; jobs: string[]; history?: NodeHistory;
  faults?: {time: string; kind: string; job?: string; user?: string; attempt?: number; generation?: number; gpu?: number;
    message?: string}[];
}

export interface Identity {
  user: string; role: 'viewer' | 'user' | 'admin'; scopes: string[]; token?: string; expires_at?: string; grafana_url?: string;
  identity: 'self' | 'slurmrestd' | 'lockstep-exec'; shared_account?: boolean; account?: string;
}

export interface Render {
  scheduler?: string; nodes?: number; ranks?: number; command: string[]; environment: Record<string, string>;
  script?: string; warnings: string[]; render_hash?: string; sweep?: {size: number; parameters: Record<string, unknown>}; start_estimate?: {start?: string; nodes?: string; partition?: string; message?: string};
}

export interface Problem {
  type: string; title: string; status: number; detail: string; errors?: {pointer: string; message: string}[];
}
