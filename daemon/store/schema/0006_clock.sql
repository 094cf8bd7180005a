-- Version 6: what is old is removed by the clock, and a clock may be wrong (no NTP yet after a start, a
-- dead battery). Time that lockstepd has not seen pass makes nothing older.

CREATE TABLE clock_look (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 0),
    at INTEGER NOT NULL      -- when the clock was looked at last; milliseconds since the Unix epoch
) STRICT;
CREATE TABLE clock_gaps (
    began INTEGER NOT NULL PRIMARY KEY,  -- the last look before it
    ended INTEGER NOT NULL               -- the first one after it
) STRICT;
