//! `config`: which server and key are used, and where they come from.

use serde_json::json;

use super::Context;
use crate::{connection::Connection, failure::Failure};

pub(crate) fn run(context: &Context) -> Result<(), Failure> {
    let connection = Connection::resolve(context.url.clone())?;
    let file = connection.file.as_ref().map(|path| path.display().to_string());
    // Enough to recognise a key by, as lists show it.
    let key = connection
        .key
        .as_ref()
        .map(|key| format!("{}...", key.expose().get(..12).unwrap_or("***")));
    if context.screen.json {
        return context.screen.json(&json!({
            "url": connection.url, "url_from": connection.url_from,
            "api_key": key, "api_key_from": connection.key_from,
            "file": file,
        }));
    }
    let rows = [
        vec!["url".to_owned(), connection.url, connection.url_from],
        vec!["api_key".to_owned(), key.unwrap_or_default(), connection.key_from],
    ];
    context.screen.table(&["SETTING", "VALUE", "FROM"], &rows)
}
