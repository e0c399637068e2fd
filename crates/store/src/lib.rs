//! SQL: migrations, one file a table. Decides nothing.
//!
//! [`Store`] is a SQLite database in WAL mode with one writing connection, so that a write never waits for a lock of another
//! write of this process, and a few reading ones. A commit survives a kill of the process; the last ones before a power cut may
//! be lost (`synchronous = NORMAL`), which a start afterwards treats like any crash.
//!
//! Methods are named noun first: [`sandbox_insert`](Store::sandbox_insert), [`key_list`](Store::key_list).

mod builds;
mod columns;
mod events;
mod idempotency;
mod keys;
mod sandboxes;
mod workspaces;

use std::{path::Path, time::Duration};

use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

pub use builds::{BuildRow, BuildStatus};
pub use events::EventRow;
pub use idempotency::{Earlier, Idempotency, Inserted};
pub use keys::KeyRow;
pub use sandboxes::{Origin, SandboxChange, SandboxRow};
pub use workspaces::WorkspaceRow;

/// How long a connection waits for a lock of another process (a backup, a shell).
const BUSY: Duration = Duration::from_secs(5);
/// Connections for reading.
const READERS: u32 = 3;

/// The database of one server. A clone is one more handle to the same.
#[derive(Debug, Clone)]
pub struct Store {
    writer: SqlitePool,
    readers: SqlitePool,
}

/// Why the store could not.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database said no.
    #[error("the store could not {action}")]
    Database {
        /// As in "insert a sandbox".
        action: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// The database is of a newer release, or was changed by hand.
    #[error("the store's tables could not be brought up to date")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// A value in a row is not one that this release writes.
    #[error("the store holds {value:?} as {column}")]
    Unreadable {
        /// `table.column`.
        column: &'static str,
        /// What is there.
        value: String,
    },
}

impl StoreError {
    fn database(action: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Database { action, source }
    }
}

impl Store {
    /// Opens the database file, makes it when it is not there, and brings its tables up to date.
    ///
    /// # Errors
    /// The file can't be opened, or its tables are of a newer release.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .foreign_keys(true)
            .busy_timeout(BUSY);
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options.clone())
            .await
            .map_err(StoreError::database("open its file"))?;
        sqlx::migrate!().run(&writer).await.map_err(StoreError::Migrate)?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options.read_only(true))
            .await
            .map_err(StoreError::database("open its file for reading"))?;
        Ok(Self { writer, readers })
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// It does not.
    pub async fn check(&self) -> Result<(), StoreError> {
        let one: Result<i64, sqlx::Error> = sqlx::query_scalar("SELECT 1").fetch_one(&self.readers).await;
        one.map(|_| ()).map_err(StoreError::database("answer"))
    }

    /// Writes the log back into the file and closes all connections. Later calls fail.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}
