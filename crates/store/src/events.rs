//! What happened to sandboxes.

use atoll_model::{SandboxId, WorkspaceId};
use sqlx::sqlite::SqliteRow;
use time::OffsetDateTime;

use crate::{
    Store, StoreError,
    columns::{Columns, json_text, millis},
};

/// Something that happened to a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRow {
    /// Counts up over all sandboxes; never used twice.
    pub sequence: i64,
    /// Which sandbox.
    pub sandbox: SandboxId,
    /// When.
    pub at: OffsetDateTime,
    /// What, as in `sandbox.running`.
    pub kind: String,
    /// Facts.
    pub payload: serde_json::Value,
}

fn read(row: &SqliteRow) -> Result<EventRow, StoreError> {
    let columns = Columns(row);
    Ok(EventRow {
        sequence: columns.plain("events.sequence")?,
        sandbox: columns.parsed("events.sandbox_id")?,
        at: columns.moment("events.at")?,
        kind: columns.plain("events.kind")?,
        payload: columns.json("events.payload")?,
    })
}

impl Store {
    /// Adds an event; its sequence number.
    ///
    /// # Errors
    /// There is no such sandbox, or the database does not work.
    pub async fn event_insert(
        &self,
        sandbox: SandboxId,
        at: OffsetDateTime,
        kind: &str,
        payload: &serde_json::Value,
    ) -> Result<i64, StoreError> {
        let done = sqlx::query("INSERT INTO events (sandbox_id, at, kind, payload) VALUES (?, ?, ?, ?)")
            .bind(sandbox.to_string())
            .bind(millis(at))
            .bind(kind)
            .bind(json_text(payload)?)
            .execute(&self.writer)
            .await
            .map_err(StoreError::database("insert an event"))?;
        Ok(done.last_insert_rowid())
    }

    /// The newest `tail` events of a workspace's sandbox, oldest first.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn event_list(
        &self,
        workspace: WorkspaceId,
        sandbox: SandboxId,
        tail: u32,
    ) -> Result<Vec<EventRow>, StoreError> {
        let mut rows = sqlx::query(
            "SELECT events.* FROM events JOIN sandboxes ON sandboxes.id = events.sandbox_id
             WHERE sandbox_id = ? AND workspace_id = ? ORDER BY sequence DESC LIMIT ?",
        )
        .bind(sandbox.to_string())
        .bind(workspace.to_string())
        .bind(tail)
        .fetch_all(&self.readers)
        .await
        .map_err(StoreError::database("list events"))?;
        rows.reverse();
        rows.iter().map(read).collect()
    }
}
