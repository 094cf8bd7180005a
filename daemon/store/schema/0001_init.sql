-- Version 1. Numbered files are never edited once released; the next change is 0002_*.sql.

-- The truth: what happened, in order. seq ascends over all jobs; it may have gaps.
CREATE TABLE events (
    seq  INTEGER PRIMARY KEY,
    job  TEXT    NOT NULL,
    time INTEGER NOT NULL,      -- milliseconds since the Unix epoch, the daemon's clock
    kind TEXT    NOT NULL,
    data TEXT    NOT NULL       -- JSON, see job/model/event.hpp
) STRICT;
CREATE INDEX events_by_job ON events (job, seq);

-- The fold of each job's events, for lists and for jobs that are over. Can be rebuilt from events.
CREATE TABLE jobs (
    id           TEXT    NOT NULL PRIMARY KEY,
    user         TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    state        TEXT    NOT NULL,
    final        INTEGER NOT NULL,
    submitted_at INTEGER NOT NULL,
    finished_at  INTEGER NOT NULL,
    last_seq     INTEGER NOT NULL,
    view         TEXT    NOT NULL    -- the job as the API shows it
) STRICT, WITHOUT ROWID;
CREATE INDEX jobs_unfinished ON jobs (id) WHERE final = 0;
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_by_user ON jobs (user, id);
CREATE INDEX jobs_by_name ON jobs (name, id);

CREATE TABLE labels (
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    job   TEXT NOT NULL,
    PRIMARY KEY (name, value, job)
) STRICT, WITHOUT ROWID;

-- Idempotency-Key of POST /v1/jobs: the same user, key and body give the same job.
CREATE TABLE idempotency (
    user        TEXT NOT NULL,
    key         TEXT NOT NULL,
    body_sha256 TEXT NOT NULL,
    job         TEXT NOT NULL,
    PRIMARY KEY (user, key)
) STRICT, WITHOUT ROWID;

-- Telemetry batches as they came (job/model/wire/batch.hpp): acknowledged to the agent once they are here.
CREATE TABLE batches (
    job       TEXT    NOT NULL,
    attempt   INTEGER NOT NULL,
    node_rank INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    data      BLOB    NOT NULL,
    PRIMARY KEY (job, attempt, node_rank, seq)
) STRICT, WITHOUT ROWID;

-- Bearer tokens: only their SHA-256.
CREATE TABLE tokens (
    sha256     TEXT    NOT NULL PRIMARY KEY,
    user       TEXT    NOT NULL,
    role       TEXT    NOT NULL,     -- admin, user, viewer
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL      -- 0 = never
) STRICT, WITHOUT ROWID;

-- Written by readiness checks: proves that a transaction can be committed.
CREATE TABLE probe (
    one   INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    count INTEGER NOT NULL
) STRICT;
