//! Builds of templates.

use atoll_model::{BuildId, TemplateName, WorkspaceId};
use sqlx::sqlite::SqliteRow;
use time::OffsetDateTime;

use crate::{
    Store, StoreError,
    columns::{Columns, millis},
};

/// How far a build is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildStatus {
    /// Waits for its turn.
    Queued,
    /// Makes the root directory or bakes it.
    Building,
    /// The template is in force.
    Done,
    /// See the error and the log.
    Failed,
}

impl BuildStatus {
    /// The word used on the wire and in the store (pandastack-v1 §2.12).
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Building => "building",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Queued, Self::Building, Self::Done, Self::Failed]
            .into_iter()
            .find(|status| status.as_str() == word)
    }
}

/// A build of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildRow {
    /// Its id.
    pub id: BuildId,
    /// Who asked for it.
    pub workspace: WorkspaceId,
    /// What it builds.
    pub template: TemplateName,
    /// How far it is.
    pub status: BuildStatus,
    /// One sentence, when it failed.
    pub error: Option<String>,
    /// When it was asked for.
    pub started_at: OffsetDateTime,
    /// When it ended.
    pub ended_at: Option<OffsetDateTime>,
}

fn read(row: &SqliteRow) -> Result<BuildRow, StoreError> {
    let columns = Columns(row);
    Ok(BuildRow {
        id: columns.parsed("builds.id")?,
        workspace: columns.parsed("builds.workspace_id")?,
        template: columns.parsed("builds.template")?,
        status: columns.word("builds.status", BuildStatus::parse)?,
        error: columns.plain("builds.error")?,
        started_at: columns.moment("builds.started_at")?,
        ended_at: columns.optional_moment("builds.ended_at")?,
    })
}

impl Store {
    /// Adds a build that waits.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn build_insert(&self, build: &BuildRow) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO builds (id, workspace_id, template, status, log, started_at) VALUES (?, ?, ?, ?, '', ?)",
        )
        .bind(build.id.to_string())
        .bind(build.workspace.to_string())
        .bind(build.template.as_str())
        .bind(build.status.as_str())
        .bind(millis(build.started_at))
        .execute(&self.writer)
        .await
        .map_err(StoreError::database("insert a build"))?;
        Ok(())
    }

    /// Notes that a build has begun.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn build_begin(&self, id: BuildId) -> Result<(), StoreError> {
        sqlx::query("UPDATE builds SET status = 'building' WHERE id = ?")
            .bind(id.to_string())
            .execute(&self.writer)
            .await
            .map_err(StoreError::database("begin a build"))?;
        Ok(())
    }

    /// Notes how a build ended, and keeps its log.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn build_end(
        &self,
        id: BuildId,
        error: Option<&str>,
        log: &str,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let status = if error.is_some() {
            BuildStatus::Failed
        } else {
            BuildStatus::Done
        };
        sqlx::query("UPDATE builds SET status = ?, error = ?, log = ?, ended_at = ? WHERE id = ?")
            .bind(status.as_str())
            .bind(error)
            .bind(log)
            .bind(millis(now))
            .bind(id.to_string())
            .execute(&self.writer)
            .await
            .map_err(StoreError::database("end a build"))?;
        Ok(())
    }

    /// Fails the builds that an earlier process of the server left unfinished; how many.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn build_fail_unfinished(&self, error: &str, now: OffsetDateTime) -> Result<u64, StoreError> {
        let done = sqlx::query(
            "UPDATE builds SET status = 'failed', error = ?, ended_at = ? WHERE status IN ('queued', 'building')",
        )
        .bind(error)
        .bind(millis(now))
        .execute(&self.writer)
        .await
        .map_err(StoreError::database("fail unfinished builds"))?;
        Ok(done.rows_affected())
    }

    /// A build of a workspace.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn build_get(&self, workspace: WorkspaceId, id: BuildId) -> Result<Option<BuildRow>, StoreError> {
        let row = sqlx::query("SELECT * FROM builds WHERE id = ? AND workspace_id = ?")
            .bind(id.to_string())
            .bind(workspace.to_string())
            .fetch_optional(&self.readers)
            .await
            .map_err(StoreError::database("read a build"))?;
        row.as_ref().map(read).transpose()
    }

    /// What an ended build printed.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn build_log(&self, workspace: WorkspaceId, id: BuildId) -> Result<Option<String>, StoreError> {
        sqlx::query_scalar("SELECT log FROM builds WHERE id = ? AND workspace_id = ?")
            .bind(id.to_string())
            .bind(workspace.to_string())
            .fetch_optional(&self.readers)
            .await
            .map_err(StoreError::database("read a build's log"))
    }

    /// A workspace's newest builds, newest first, at most 200.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn build_list(&self, workspace: WorkspaceId) -> Result<Vec<BuildRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT id, workspace_id, template, status, error, started_at, ended_at FROM builds
             WHERE workspace_id = ? ORDER BY started_at DESC, rowid DESC LIMIT 200",
        )
        .bind(workspace.to_string())
        .fetch_all(&self.readers)
        .await
        .map_err(StoreError::database("list builds"))?;
        rows.iter().map(read).collect()
    }

    /// Removes builds that ended before a moment; how many.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn build_purge(&self, ended_before: OffsetDateTime) -> Result<u64, StoreError> {
        let done = sqlx::query("DELETE FROM builds WHERE ended_at < ?")
            .bind(millis(ended_before))
            .execute(&self.writer)
            .await
            .map_err(StoreError::database("remove old builds"))?;
        Ok(done.rows_affected())
    }
}
