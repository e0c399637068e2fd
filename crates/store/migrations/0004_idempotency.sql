-- Which sandbox a create with this key made.
CREATE TABLE idempotency (
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    key          TEXT NOT NULL,
    -- SHA-256 of the request without the key: the same key with another request is a mistake of the caller.
    request      BLOB NOT NULL,
    sandbox_id   TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    PRIMARY KEY (workspace_id, key)
) STRICT;
CREATE INDEX idempotency_of_sandbox ON idempotency (sandbox_id);
