-- What happened to a sandbox.
CREATE TABLE events (
    sequence   INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    sandbox_id TEXT    NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    at         INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    payload    TEXT    NOT NULL
) STRICT;
CREATE INDEX events_of_sandbox ON events (sandbox_id, sequence);
