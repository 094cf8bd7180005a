-- Version 3: telemetry moves from one row a batch into chunks of history.

-- Batches as they came, those of one flush together (daemon/control/history/telemetry_log.hpp): what an agent
-- was told is safe, and no chunk holds yet. `batches` is what older versions wrote: read, not written.
CREATE TABLE telemetry_log (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    job  TEXT    NOT NULL,
    data BLOB    NOT NULL
) STRICT;
CREATE INDEX telemetry_log_by_job ON telemetry_log (job, id);

-- Neighbouring ranks (or GPUs) over some time: daemon/telemetry/history/history_chunk.hpp.
CREATE TABLE history_chunks (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    job        TEXT    NOT NULL,
    kind       INTEGER NOT NULL,    -- 0 rank, 1 GPU
    block      INTEGER NOT NULL,    -- number / 64
    attempt    INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    step_low   INTEGER NOT NULL,    -- -1 = no row has a step
    step_high  INTEGER NOT NULL,
    time_low   REAL    NOT NULL,    -- seconds since the Unix epoch
    time_high  REAL    NOT NULL,
    rows       INTEGER NOT NULL,
    samples    INTEGER NOT NULL,
    bytes      INTEGER NOT NULL     -- of its sections
) STRICT;
CREATE INDEX history_chunks_by_job ON history_chunks (job, kind, block, id);
CREATE INDEX history_chunks_by_age ON history_chunks (time_high);

CREATE TABLE history_sections (
    id    INTEGER PRIMARY KEY,
    chunk INTEGER NOT NULL,
    name  TEXT    NOT NULL,
    level INTEGER NOT NULL,
    data  BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX history_sections_by_chunk ON history_sections (chunk, name, level);

-- What a restart must know of batches that are in chunks: the newest of each node, and how far the
-- generations came. JSON.
CREATE TABLE history_state (
    job  TEXT NOT NULL PRIMARY KEY,
    data TEXT NOT NULL
) STRICT;
