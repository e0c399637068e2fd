//! SQL: migrations, one file a table. Decides nothing.

/// The database of one server.
#[derive(Debug, Clone)]
pub struct Store {}
