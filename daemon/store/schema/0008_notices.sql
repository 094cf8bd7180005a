-- Version 8: what the users of jobs asked to be told (notify in the specification). A row is written with
-- the events that it tells of, and goes when it has been delivered or given up.

CREATE TABLE notices (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice: one may go while it is delivered
    job        TEXT    NOT NULL,
    user       TEXT    NOT NULL,
    seq        INTEGER NOT NULL,    -- of the event; with the job it names the notice for its receiver
    target     TEXT    NOT NULL,    -- as in the specification
    lane       TEXT    NOT NULL,    -- its host, or 'mail': one that hangs holds up no other
    body       TEXT    NOT NULL,    -- JSON, without the address of the job
    created_at INTEGER NOT NULL,    -- milliseconds since the Unix epoch, as due_at
    due_at     INTEGER NOT NULL,    -- the next try
    tries      INTEGER NOT NULL,    -- that have failed
    UNIQUE (job, seq, target)
) STRICT;
CREATE INDEX notices_by_due ON notices (due_at);
-- Who is next is found here, without the rows, whose bodies are long.
CREATE INDEX notices_by_lane ON notices (user, lane, due_at);
