//! Values as columns hold them.

use std::str::FromStr;

use sqlx::{Row, sqlite::SqliteRow};
use time::OffsetDateTime;

use crate::StoreError;

/// Milliseconds since 1970.
pub(crate) fn millis(moment: OffsetDateTime) -> i64 {
    // In range for every date that `time` can hold.
    i64::try_from(moment.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

/// Reads columns of one row; every failure names table and column.
pub(crate) struct Columns<'a>(pub(crate) &'a SqliteRow);

impl Columns<'_> {
    /// A column as SQLite holds it.
    pub(crate) fn plain<T>(&self, column: &'static str) -> Result<T, StoreError>
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
        self.0
            .try_get(name(column))
            .map_err(StoreError::database("read a column"))
    }

    /// A text column that some type parses.
    pub(crate) fn parsed<T: FromStr>(&self, column: &'static str) -> Result<T, StoreError> {
        self.word(column, |text| text.parse().ok())
    }

    /// A text column that `parse` knows the words of.
    pub(crate) fn word<T>(&self, column: &'static str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, StoreError> {
        let value: String = self.plain(column)?;
        parse(&value).ok_or(StoreError::Unreadable { column, value })
    }

    /// The same where NULL is allowed.
    pub(crate) fn optional_word<T>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, StoreError> {
        let value: Option<String> = self.plain(column)?;
        let parse = |value: String| parse(&value).ok_or(StoreError::Unreadable { column, value });
        value.map(parse).transpose()
    }

    /// A text column that holds JSON.
    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self, column: &'static str) -> Result<T, StoreError> {
        self.word(column, |text| serde_json::from_str(text).ok())
    }

    /// A moment.
    pub(crate) fn moment(&self, column: &'static str) -> Result<OffsetDateTime, StoreError> {
        moment(column, self.plain(column)?)
    }

    /// A moment or NULL.
    pub(crate) fn optional_moment(&self, column: &'static str) -> Result<Option<OffsetDateTime>, StoreError> {
        let value: Option<i64> = self.plain(column)?;
        value.map(|value| moment(column, value)).transpose()
    }
}

fn moment(column: &'static str, millis: i64) -> Result<OffsetDateTime, StoreError> {
    let unreadable = |_| StoreError::Unreadable {
        column,
        value: millis.to_string(),
    };
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000).map_err(unreadable)
}

/// The part behind the dot of `table.column`.
fn name(column: &'static str) -> &'static str {
    column.split_once('.').map_or(column, |(_, name)| name)
}

/// JSON text of a value that always has one.
pub(crate) fn json_text<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Database {
        action: "encode a value",
        source: sqlx::Error::Encode(error.into()),
    })
}
