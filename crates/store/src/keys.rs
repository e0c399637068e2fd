//! Credentials.

use atoll_model::{KeyId, Scope, WorkspaceId};
use sqlx::sqlite::SqliteRow;
use time::OffsetDateTime;

use crate::{
    Store, StoreError,
    columns::{Columns, millis},
};

/// A credential, without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// Its id.
    pub id: KeyId,
    /// Whose it is.
    pub workspace: WorkspaceId,
    /// SHA-256 of its text.
    pub hash: [u8; 32],
    /// The first characters of its text.
    pub prefix: String,
    /// What a person called it.
    pub name: String,
    /// What it may do.
    pub scope: Scope,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// After when it is refused.
    pub expires_at: Option<OffsetDateTime>,
    /// Since when it is refused.
    pub revoked_at: Option<OffsetDateTime>,
    /// When it was last used.
    pub last_used_at: Option<OffsetDateTime>,
}

fn read(row: &SqliteRow) -> Result<KeyRow, StoreError> {
    let columns = Columns(row);
    let hash: Vec<u8> = columns.plain("keys.hash")?;
    let unreadable = |hash: Vec<u8>| StoreError::Unreadable {
        column: "keys.hash",
        value: format!("{} bytes", hash.len()),
    };
    Ok(KeyRow {
        id: columns.parsed("keys.id")?,
        workspace: columns.parsed("keys.workspace_id")?,
        hash: hash.try_into().map_err(unreadable)?,
        prefix: columns.plain("keys.prefix")?,
        name: columns.plain("keys.name")?,
        scope: columns.word("keys.scope", Scope::parse)?,
        created_at: columns.moment("keys.created_at")?,
        expires_at: columns.optional_moment("keys.expires_at")?,
        revoked_at: columns.optional_moment("keys.revoked_at")?,
        last_used_at: columns.optional_moment("keys.last_used_at")?,
    })
}

impl Store {
    /// Adds a key.
    ///
    /// # Errors
    /// Its hash or prefix is taken, or the database does not work.
    pub async fn key_insert(&self, key: &KeyRow) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO keys (id, workspace_id, hash, prefix, name, scope, created_at, expires_at)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(key.id.to_string())
        .bind(key.workspace.to_string())
        .bind(key.hash.as_slice())
        .bind(&key.prefix)
        .bind(&key.name)
        .bind(key.scope.as_str())
        .bind(millis(key.created_at))
        .bind(key.expires_at.map(millis))
        .execute(&self.writer)
        .await
        .map_err(StoreError::database("insert a key"))?;
        Ok(())
    }

    /// The key with that hash, revoked and expired ones included.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn key_get(&self, hash: &[u8; 32]) -> Result<Option<KeyRow>, StoreError> {
        let row = sqlx::query("SELECT * FROM keys WHERE hash = ?")
            .bind(hash.as_slice())
            .fetch_optional(&self.readers)
            .await
            .map_err(StoreError::database("read a key"))?;
        row.as_ref().map(read).transpose()
    }

    /// The workspace's keys that were not revoked, newest first.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn key_list(&self, workspace: WorkspaceId) -> Result<Vec<KeyRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT * FROM keys WHERE workspace_id = ? AND revoked_at IS NULL ORDER BY created_at DESC, id LIMIT 10000",
        )
        .bind(workspace.to_string())
        .fetch_all(&self.readers)
        .await
        .map_err(StoreError::database("list keys"))?;
        rows.iter().map(read).collect()
    }

    /// Whether any key was ever made here.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn key_exists(&self) -> Result<bool, StoreError> {
        let found: Option<i64> = sqlx::query_scalar("SELECT 1 FROM keys LIMIT 1")
            .fetch_optional(&self.readers)
            .await
            .map_err(StoreError::database("look for a key"))?;
        Ok(found.is_some())
    }

    /// Revokes the workspace's key with that prefix; its hash, or `None` when there is no such key that is in force.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn key_revoke(
        &self,
        workspace: WorkspaceId,
        prefix: &str,
        now: OffsetDateTime,
    ) -> Result<Option<KeyRow>, StoreError> {
        let row = sqlx::query(
            "UPDATE keys SET revoked_at = ? WHERE workspace_id = ? AND prefix = ? AND revoked_at IS NULL RETURNING *",
        )
        .bind(millis(now))
        .bind(workspace.to_string())
        .bind(prefix)
        .fetch_optional(&self.writer)
        .await
        .map_err(StoreError::database("revoke a key"))?;
        row.as_ref().map(read).transpose()
    }

    /// Notes when a key was last used.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn key_used(&self, id: KeyId, at: OffsetDateTime) -> Result<(), StoreError> {
        sqlx::query("UPDATE keys SET last_used_at = ? WHERE id = ?")
            .bind(millis(at))
            .bind(id.to_string())
            .execute(&self.writer)
            .await
            .map_err(StoreError::database("note a key's use"))?;
        Ok(())
    }
}
