-- Version 2: tokens have an id to be named by, a name, and an end.

CREATE TABLE tokens_2 (
    id           TEXT    NOT NULL PRIMARY KEY,   -- tk-<12 hexadecimal characters>; no secret
    sha256       TEXT    NOT NULL UNIQUE,        -- of the secret, which is kept nowhere
    name         TEXT    NOT NULL,
    user         TEXT    NOT NULL,
    role         TEXT    NOT NULL,               -- admin, user, viewer
    scopes       TEXT    NOT NULL,               -- words with spaces; '' = all that the role has
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,               -- 0 = never
    last_used_at INTEGER NOT NULL,               -- 0 = never; written at most once a minute
    revoked_at   INTEGER NOT NULL                -- 0 = not
) STRICT, WITHOUT ROWID;
INSERT INTO tokens_2
    SELECT 'tk-' || lower(hex(randomblob(6))), sha256, 'first', user, role, '', created_at,
           expires_at, 0, 0 FROM tokens;
DROP TABLE tokens;
ALTER TABLE tokens_2 RENAME TO tokens;
