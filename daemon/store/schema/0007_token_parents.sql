-- Version 7: a token that was made with another one ends with it.

ALTER TABLE tokens ADD COLUMN parent TEXT NOT NULL DEFAULT '';  -- its id; '' = not known, or none
CREATE INDEX tokens_by_parent ON tokens (parent);
