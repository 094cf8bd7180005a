-- Version 10: files of a removed job that lie outside the runs directory of now.

ALTER TABLE removals ADD COLUMN folder TEXT NOT NULL DEFAULT '';  -- '' = in the runs directory
