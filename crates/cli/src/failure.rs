//! What went wrong, for a person: one sentence, and what would help.

use std::{fmt, io};

use serde::Serialize;

/// Exit code of Atoll's own failures where the exit code otherwise is that of a command.
pub(crate) const OWN_FAILURE: u8 = 125;

/// The end of a command that did not do what it was asked.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    /// One sentence.
    error: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// The server's code, or one of `unreachable`, `local`.
    code: String,
    /// The id of the request in the server's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(skip)]
    status: Option<u16>,
}

impl Failure {
    /// Something on this side.
    pub(crate) fn local(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            hint: None,
            code: "local".to_owned(),
            request_id: None,
            status: None,
        }
    }

    /// The server's refusal.
    pub(crate) fn refused(status: u16, code: String, error: String, request_id: Option<String>) -> Self {
        Self {
            error,
            hint: hint_for(status).map(str::to_owned),
            code,
            request_id,
            status: Some(status),
        }
    }

    /// The server did not answer, or stopped doing so.
    pub(crate) fn unreachable(url: &str, cause: &dyn std::error::Error) -> Self {
        Self {
            error: format!("the server at {url} does not answer: {}", innermost(cause)),
            hint: Some("start one with `atoll serve`, or name another with --url or ATOLL_URL".to_owned()),
            code: "unreachable".to_owned(),
            request_id: None,
            status: None,
        }
    }

    /// The same, with another hint.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Whether the server said that there is no such thing.
    pub(crate) fn is_not_found(&self) -> bool {
        self.status == Some(404)
    }

    /// Whether what is missing is the sandbox itself, not something in it.
    pub(crate) fn is_about_sandbox(&self) -> bool {
        self.error.starts_with("sandbox")
    }

    /// Says it on standard error: for people, or as one JSON object a line.
    pub(crate) fn report(&self, json: bool) {
        match serde_json::to_string(self) {
            Ok(line) if json => eprintln!("{line}"),
            _ => eprintln!("{self}"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.error)?;
        if let Some(request) = self.request_id.as_deref().filter(|_| self.status >= Some(500)) {
            write!(f, " (request {request})")?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::local(error.to_string())
    }
}

fn hint_for(status: u16) -> Option<&'static str> {
    match status {
        401 => Some("set ATOLL_API_KEY, or `api_key` in the config file (`atoll config` shows which is used)"),
        403 => Some("use a key with a wider scope; `atoll key create NAME --scope admin` makes one"),
        503 | 507 => Some("`atoll ls` shows what holds the machine's memory; `atoll rm` frees it"),
        _ => None,
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
