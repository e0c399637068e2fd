-- A sandbox. Its actor is the only writer of its row.
CREATE TABLE sandboxes (
    id           TEXT    NOT NULL PRIMARY KEY,
    workspace_id TEXT    NOT NULL REFERENCES workspaces (id),
    state        TEXT    NOT NULL,
    -- The whole SandboxSpec as JSON.
    spec         TEXT    NOT NULL,
    -- The digest of what it was restored from: a rebuilt template never changes what runs.
    bake         TEXT    NOT NULL,
    engine       TEXT    NOT NULL,
    isolation    TEXT    NOT NULL,
    boot_ms      INTEGER,
    gone         TEXT,
    failure      TEXT,
    created_at   INTEGER NOT NULL,
    ended_at     INTEGER
) STRICT;
CREATE INDEX sandboxes_of_workspace ON sandboxes (workspace_id, created_at DESC);
CREATE INDEX sandboxes_by_state ON sandboxes (state);
