-- Version 9: a store knows where it lies, so that a copy of it does not take itself for the original
-- (daemon/store/identity.hpp).

CREATE TABLE identity (
    one         INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    store       TEXT    NOT NULL,   -- 32 hexadecimal characters; a copy that is none any more has its own
    incarnation TEXT    NOT NULL,   -- likewise; another one since each take-over
    file        INTEGER NOT NULL,   -- inode of the database, and when that was made, nanoseconds since the
    born        INTEGER NOT NULL,   --   Unix epoch; 0 = not known. A copy is another file.
    host        TEXT    NOT NULL,   -- where it was started last: for messages, and for moved runs
    directory   TEXT    NOT NULL,
    runs        TEXT    NOT NULL
) STRICT;

-- Jobs that another lockstepd had when this store was copied from its: they have ended here and nowhere
-- else, and what Slurm has of them is let be. Rows stay when the jobs are removed.
CREATE TABLE foreign_jobs (
    job TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- Jobs of a backup whose allocations this daemon follows instead of the one that is gone. They are handed
-- to the scheduler no more: nobody knows what the other one did after the backup.
CREATE TABLE followed_jobs (
    job   TEXT    NOT NULL PRIMARY KEY,
    since INTEGER NOT NULL          -- of the backup; milliseconds since the Unix epoch
) STRICT, WITHOUT ROWID;

-- Folders of attempts are stored as absolute paths. What began with `before` begins with `now`, in the
-- order of the moves.
CREATE TABLE runs_moves (
    id     INTEGER PRIMARY KEY,
    before TEXT NOT NULL,
    now    TEXT NOT NULL
) STRICT;
-- But for jobs whose agents are where they were.
CREATE TABLE runs_stay (
    job TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;
