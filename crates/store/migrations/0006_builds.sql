-- A build of a template.
CREATE TABLE builds (
    id           TEXT    NOT NULL PRIMARY KEY,
    workspace_id TEXT    NOT NULL REFERENCES workspaces (id),
    template     TEXT    NOT NULL,
    status       TEXT    NOT NULL,
    error        TEXT,
    log          TEXT    NOT NULL,
    started_at   INTEGER NOT NULL,
    ended_at     INTEGER
) STRICT;
CREATE INDEX builds_of_workspace ON builds (workspace_id, started_at DESC);
