-- Version 5: jobs that somebody, or their age, has removed. What Slurm may still hold of such a job is
-- known by its row; the parts that are large (chunks of history, files) go after it, slice by slice.

CREATE TABLE removals (
    job         TEXT    NOT NULL PRIMARY KEY,
    user        TEXT    NOT NULL,
    finished_at INTEGER NOT NULL,    -- milliseconds since the Unix epoch, as removed_at
    removed_at  INTEGER NOT NULL,
    last_seq    INTEGER NOT NULL,    -- of its events: numbers are never given twice
    checkpoints INTEGER NOT NULL,    -- 1: those below the runs directory go with it
    snapshot    TEXT    NOT NULL,    -- folder below <data-dir>/snapshots that no other job uses; '' = none
    done        INTEGER NOT NULL     -- 1: nothing of it is left
) STRICT, WITHOUT ROWID;
CREATE INDEX removals_undone ON removals (job) WHERE done = 0;
CREATE INDEX removals_by_age ON removals (removed_at);
CREATE INDEX jobs_by_end ON jobs (finished_at) WHERE final = 1;
-- By job, what is only ever looked for by its name otherwise.
CREATE INDEX labels_by_job ON labels (job);
CREATE INDEX idempotency_by_job ON idempotency (job);
