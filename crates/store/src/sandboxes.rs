//! Sandboxes, and the idempotency keys of their creates.

use atoll_model::{GoneReason, Isolation, SandboxId, SandboxSpec, State, WorkspaceId};
use sqlx::{SqliteConnection, sqlite::SqliteRow};
use time::OffsetDateTime;

use crate::{
    Store, StoreError,
    columns::{Columns, json_text, millis},
    idempotency::{self, Idempotency, Inserted},
};

/// What a sandbox was restored from, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Digest of the bake, which covers root directory, agent and drivers.
    pub bake: String,
    /// The engine's name.
    pub engine: String,
    /// The level that it runs at.
    pub isolation: Isolation,
}

/// A sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRow {
    /// Its id.
    pub id: SandboxId,
    /// Whose it is.
    pub workspace: WorkspaceId,
    /// Where it stands.
    pub state: State,
    /// What was asked for, with the lease as it is now.
    pub spec: SandboxSpec,
    /// What it came from.
    pub origin: Origin,
    /// Milliseconds from the start of the restore to the agent's acknowledgement.
    pub boot_ms: Option<u64>,
    /// Why it is or will be no more.
    pub gone: Option<GoneReason>,
    /// One sentence on a failure.
    pub failure: Option<String>,
    /// When it was asked for.
    pub created_at: OffsetDateTime,
    /// When it ended.
    pub ended_at: Option<OffsetDateTime>,
}

/// A move from one state to another and what is known with it; `None` leaves a column as it is.
#[derive(Debug, Clone)]
pub struct SandboxChange {
    /// The state that the row must be in.
    pub from: State,
    /// The state that it gets.
    pub to: State,
    /// Why it ends.
    pub gone: Option<GoneReason>,
    /// One sentence on a failure.
    pub failure: Option<String>,
    /// How long the restore took.
    pub boot_ms: Option<u64>,
    /// When it ended.
    pub ended_at: Option<OffsetDateTime>,
    /// Whether the idempotency key that made it is free again.
    pub forget_idempotency: bool,
}

impl SandboxChange {
    /// A move with nothing else to say.
    #[must_use]
    pub fn new(from: State, to: State) -> Self {
        Self {
            from,
            to,
            gone: None,
            failure: None,
            boot_ms: None,
            ended_at: None,
            forget_idempotency: false,
        }
    }
}

fn read(row: &SqliteRow) -> Result<SandboxRow, StoreError> {
    let columns = Columns(row);
    let boot_ms: Option<i64> = columns.plain("sandboxes.boot_ms")?;
    Ok(SandboxRow {
        id: columns.parsed("sandboxes.id")?,
        workspace: columns.parsed("sandboxes.workspace_id")?,
        state: columns.word("sandboxes.state", State::parse)?,
        spec: columns.json("sandboxes.spec")?,
        origin: Origin {
            bake: columns.plain("sandboxes.bake")?,
            engine: columns.plain("sandboxes.engine")?,
            isolation: columns.word("sandboxes.isolation", Isolation::parse)?,
        },
        boot_ms: boot_ms.and_then(|millis| u64::try_from(millis).ok()),
        gone: columns.optional_word("sandboxes.gone", GoneReason::parse)?,
        failure: columns.plain("sandboxes.failure")?,
        created_at: columns.moment("sandboxes.created_at")?,
        ended_at: columns.optional_moment("sandboxes.ended_at")?,
    })
}

impl Store {
    /// Adds a sandbox in state `Creating`, and its idempotency key in the same transaction.
    ///
    /// # Errors
    /// The id is taken, or the database does not work.
    pub async fn sandbox_insert(
        &self,
        sandbox: &SandboxRow,
        idempotency: Option<&Idempotency>,
    ) -> Result<Inserted, StoreError> {
        let failed = || StoreError::database("insert a sandbox");
        let mut transaction = self.writer.begin_with("BEGIN IMMEDIATE").await.map_err(failed())?;
        if let Some(wanted) = idempotency
            && let Some(earlier) = idempotency::find(&mut transaction, sandbox.workspace, wanted).await?
        {
            return Ok(Inserted::Earlier(earlier));
        }
        insert(&mut transaction, sandbox).await?;
        if let Some(wanted) = idempotency {
            idempotency::insert(&mut transaction, sandbox, wanted).await?;
        }
        transaction.commit().await.map_err(failed())?;
        Ok(Inserted::New)
    }

    /// Moves a sandbox from one state to another, and frees its idempotency key in the same transaction if that is wanted;
    /// `false` when it was not in the first.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn sandbox_state_update(&self, id: SandboxId, change: &SandboxChange) -> Result<bool, StoreError> {
        let failed = || StoreError::database("move a sandbox to another state");
        let mut transaction = self.writer.begin_with("BEGIN IMMEDIATE").await.map_err(failed())?;
        let done = sqlx::query(
            "UPDATE sandboxes SET state = ?, gone = COALESCE(?, gone), failure = COALESCE(?, failure),
                    boot_ms = COALESCE(?, boot_ms), ended_at = COALESCE(?, ended_at)
             WHERE id = ? AND state = ?",
        )
        .bind(change.to.as_str())
        .bind(change.gone.map(GoneReason::as_str))
        .bind(&change.failure)
        .bind(change.boot_ms.map(|millis| i64::try_from(millis).unwrap_or(i64::MAX)))
        .bind(change.ended_at.map(millis))
        .bind(id.to_string())
        .bind(change.from.as_str())
        .execute(&mut *transaction)
        .await
        .map_err(failed())?;
        let moved = done.rows_affected() == 1;
        if moved && change.forget_idempotency {
            idempotency::forget(&mut transaction, id).await?;
        }
        transaction.commit().await.map_err(failed())?;
        Ok(moved)
    }

    /// Replaces what a sandbox's lease says.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn sandbox_spec_update(&self, id: SandboxId, spec: &SandboxSpec) -> Result<(), StoreError> {
        sqlx::query("UPDATE sandboxes SET spec = ? WHERE id = ?")
            .bind(json_text(spec)?)
            .bind(id.to_string())
            .execute(&self.writer)
            .await
            .map_err(StoreError::database("change a sandbox's lease"))?;
        Ok(())
    }

    /// A sandbox of a workspace.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn sandbox_get(&self, workspace: WorkspaceId, id: SandboxId) -> Result<Option<SandboxRow>, StoreError> {
        let row = sqlx::query("SELECT * FROM sandboxes WHERE id = ? AND workspace_id = ?")
            .bind(id.to_string())
            .bind(workspace.to_string())
            .fetch_optional(&self.readers)
            .await
            .map_err(StoreError::database("read a sandbox"))?;
        row.as_ref().map(read).transpose()
    }

    /// A workspace's sandboxes in one of these states, newest first, at most `limit`.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn sandbox_list(
        &self,
        workspace: WorkspaceId,
        states: &[State],
        limit: u32,
    ) -> Result<Vec<SandboxRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT * FROM sandboxes
             WHERE workspace_id = ? AND state IN (SELECT value FROM json_each(?))
             ORDER BY created_at DESC, rowid DESC LIMIT ?",
        )
        .bind(workspace.to_string())
        .bind(json_text(&words(states))?)
        .bind(limit)
        .fetch_all(&self.readers)
        .await
        .map_err(StoreError::database("list sandboxes"))?;
        rows.iter().map(read).collect()
    }

    /// Every workspace's sandboxes in one of these states, for a start after a stop or a crash.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn sandbox_list_all(&self, states: &[State]) -> Result<Vec<SandboxRow>, StoreError> {
        let rows =
            sqlx::query("SELECT * FROM sandboxes WHERE state IN (SELECT value FROM json_each(?)) ORDER BY rowid")
                .bind(json_text(&words(states))?)
                .fetch_all(&self.readers)
                .await
                .map_err(StoreError::database("list the sandboxes of this host"))?;
        rows.iter().map(read).collect()
    }

    /// Removes sandboxes that ended before a moment, with their events and idempotency keys; how many.
    ///
    /// # Errors
    /// The database does not work.
    pub async fn sandbox_purge(&self, ended_before: OffsetDateTime) -> Result<u64, StoreError> {
        let done = sqlx::query("DELETE FROM sandboxes WHERE state IN ('deleted', 'failed') AND ended_at < ?")
            .bind(millis(ended_before))
            .execute(&self.writer)
            .await
            .map_err(StoreError::database("remove old sandboxes"))?;
        Ok(done.rows_affected())
    }
}

fn words(states: &[State]) -> Vec<&'static str> {
    states.iter().map(|state| state.as_str()).collect()
}

async fn insert(connection: &mut SqliteConnection, sandbox: &SandboxRow) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO sandboxes (id, workspace_id, state, spec, bake, engine, isolation, created_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(sandbox.id.to_string())
    .bind(sandbox.workspace.to_string())
    .bind(sandbox.state.as_str())
    .bind(json_text(&sandbox.spec)?)
    .bind(&sandbox.origin.bake)
    .bind(&sandbox.origin.engine)
    .bind(sandbox.origin.isolation.as_str())
    .bind(millis(sandbox.created_at))
    .execute(connection)
    .await
    .map_err(StoreError::database("insert a sandbox"))?;
    Ok(())
}
