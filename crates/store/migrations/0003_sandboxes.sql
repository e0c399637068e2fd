-- A sandbox. Its actor is the only writer of its row.
CREATE TABLE sandboxes (
    id           TEXT    NOT NULL PRIMARY KEY,
    workspace_id TEXT    NOT NULL REFERENCES workspaces (id),
    state        TEXT    NOT NULL,
    -- The whole SandboxSpec as JSON.
    spec         TEXT    NOT NULL,
    -- What it was restored from, as digests: a rebuilt template never changes what runs.
    rootfs       TEXT    NOT NULL,
    guest        TEXT    NOT NULL,
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
