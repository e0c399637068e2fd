//! Which sandbox a create with an idempotency key made.

use atoll_model::{SandboxId, WorkspaceId};
use sqlx::SqliteConnection;

use crate::{SandboxRow, Store, StoreError, columns::Columns};

/// The idempotency key of a create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The caller's key.
    pub key: String,
    /// SHA-256 of the request without the key.
    pub request: [u8; 32],
}

/// What became of [`Store::sandbox_insert`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inserted {
    /// The row is there.
    New,
    /// Nothing was written: an earlier create of the workspace used the same idempotency key.
    Earlier(Earlier),
}

/// An earlier create with the same idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Earlier {
    /// What it made.
    pub sandbox: SandboxId,
    /// Whether it was the same request.
    pub same_request: bool,
}

impl Store {
    /// The sandbox that an idempotency key of a workspace made, and whether by the same request.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn idempotency_get(
        &self,
        workspace: WorkspaceId,
        wanted: &Idempotency,
    ) -> Result<Option<Earlier>, StoreError> {
        let mut reader = self
            .readers
            .acquire()
            .await
            .map_err(StoreError::database("read an idempotency key"))?;
        find(&mut reader, workspace, wanted).await
    }
}

/// Frees the key that made a sandbox, so that the same create can be tried again.
pub(crate) async fn forget(connection: &mut SqliteConnection, sandbox: SandboxId) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM idempotency WHERE sandbox_id = ?")
        .bind(sandbox.to_string())
        .execute(connection)
        .await
        .map_err(StoreError::database("forget an idempotency key"))?;
    Ok(())
}

pub(crate) async fn find(
    connection: &mut SqliteConnection,
    workspace: WorkspaceId,
    wanted: &Idempotency,
) -> Result<Option<Earlier>, StoreError> {
    let row = sqlx::query("SELECT sandbox_id, request FROM idempotency WHERE workspace_id = ? AND key = ?")
        .bind(workspace.to_string())
        .bind(&wanted.key)
        .fetch_optional(connection)
        .await
        .map_err(StoreError::database("read an idempotency key"))?;
    let Some(row) = row else { return Ok(None) };
    let columns = Columns(&row);
    let request: Vec<u8> = columns.plain("idempotency.request")?;
    Ok(Some(Earlier {
        sandbox: columns.parsed("idempotency.sandbox_id")?,
        same_request: request == wanted.request,
    }))
}

pub(crate) async fn insert(
    connection: &mut SqliteConnection,
    sandbox: &SandboxRow,
    wanted: &Idempotency,
) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO idempotency (workspace_id, key, request, sandbox_id) VALUES (?, ?, ?, ?)")
        .bind(sandbox.workspace.to_string())
        .bind(&wanted.key)
        .bind(wanted.request.as_slice())
        .bind(sandbox.id.to_string())
        .execute(connection)
        .await
        .map_err(StoreError::database("insert an idempotency key"))?;
    Ok(())
}
