-- A credential. Only the SHA-256 of its text is kept.
CREATE TABLE keys (
    id           TEXT    NOT NULL PRIMARY KEY,
    workspace_id TEXT    NOT NULL REFERENCES workspaces (id),
    hash         BLOB    NOT NULL UNIQUE,
    prefix       TEXT    NOT NULL UNIQUE,
    name         TEXT    NOT NULL,
    scope        TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER,
    last_used_at INTEGER
) STRICT;
CREATE INDEX keys_of_workspace ON keys (workspace_id, created_at);
