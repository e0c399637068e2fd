-- A tenant. Times are milliseconds since 1970 (UTC) in every table.
CREATE TABLE workspaces (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
) STRICT;
