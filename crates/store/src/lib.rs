//! SQL: migrations, one file a table. Decides nothing.
