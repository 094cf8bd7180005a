-- Version 4: what became of the attempts on each node, kept 90 days (daemon/store/node_history.hpp).

CREATE TABLE node_totals (
    node       TEXT    NOT NULL PRIMARY KEY,
    attempts   INTEGER NOT NULL,    -- that have ended with an agent on it, since first_at
    first_at   INTEGER NOT NULL,    -- milliseconds since the Unix epoch, as in the others
    seen_at    INTEGER NOT NULL,
    healthy_at INTEGER NOT NULL     -- 0 = never
) STRICT, WITHOUT ROWID;
CREATE INDEX node_totals_by_age ON node_totals (seen_at);

CREATE TABLE node_faults (
    id         INTEGER PRIMARY KEY,
    node       TEXT    NOT NULL,
    time       INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    job        TEXT    NOT NULL,
    user       TEXT    NOT NULL,    -- whose job: others see that there was a fault, not of which job
    attempt    INTEGER NOT NULL,
    generation INTEGER NOT NULL,    -- 0 = none had begun
    gpu        INTEGER NOT NULL,    -- -1 = none
    message    TEXT    NOT NULL
) STRICT;
CREATE INDEX node_faults_by_node ON node_faults (node, time);
CREATE INDEX node_faults_by_age ON node_faults (time);
CREATE UNIQUE INDEX node_faults_once ON node_faults (job, attempt, node, generation, kind, gpu);
