//! Tenants.

use atoll_model::WorkspaceId;
use sqlx::sqlite::SqliteRow;
use time::OffsetDateTime;

use crate::{
    Store, StoreError,
    columns::{Columns, millis},
};

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceRow {
    /// Its id.
    pub id: WorkspaceId,
    /// Its name; no two have the same.
    pub name: String,
    /// When it was made.
    pub created_at: OffsetDateTime,
}

fn read(row: &SqliteRow) -> Result<WorkspaceRow, StoreError> {
    let columns = Columns(row);
    Ok(WorkspaceRow {
        id: columns.parsed("workspaces.id")?,
        name: columns.plain("workspaces.name")?,
        created_at: columns.moment("workspaces.created_at")?,
    })
}

impl Store {
    /// The workspace of that name; made when there is none.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn workspace_ensure(&self, name: &str, now: OffsetDateTime) -> Result<WorkspaceRow, StoreError> {
        let row = sqlx::query(
            "INSERT INTO workspaces (id, name, created_at) VALUES (?, ?, ?)
             ON CONFLICT (name) DO UPDATE SET name = excluded.name
             RETURNING id, name, created_at",
        )
        .bind(WorkspaceId::random().to_string())
        .bind(name)
        .bind(millis(now))
        .fetch_one(&self.writer)
        .await
        .map_err(StoreError::database("insert a workspace"))?;
        read(&row)
    }

    /// The workspace of that id.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn workspace_get(&self, id: WorkspaceId) -> Result<Option<WorkspaceRow>, StoreError> {
        let row = sqlx::query("SELECT * FROM workspaces WHERE id = ?")
            .bind(id.to_string())
            .fetch_optional(&self.readers)
            .await
            .map_err(StoreError::database("read a workspace"))?;
        row.as_ref().map(read).transpose()
    }
}
