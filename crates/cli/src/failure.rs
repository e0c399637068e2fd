//! What went wrong, for a person: one sentence, and what would help.

use std::{fmt, io};

use atoll_model::ErrorCode;
use serde::Serialize;

/// Exit code of Atoll's own failures where the exit code otherwise is that of a command.
pub(crate) const OWN_FAILURE: u8 = 125;
/// Exit code when the deadline of a command passed, as timeout(1) has it.
const DEADLINE_PASSED: u8 = 124;
/// Exit code when whoever read our output left, as a shell shows SIGPIPE.
const READER_LEFT: u8 = 141;
/// The code of a failure whose reader left.
const BROKEN_PIPE: &str = "broken_pipe";

/// The end of a command that did not do what it was asked.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    /// One sentence.
    error: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// The server's code, or one of `unreachable`, `usage`, `local`.
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

    /// A command line that cannot be read.
    pub(crate) fn usage(error: impl Into<String>) -> Self {
        Self {
            code: "usage".to_owned(),
            ..Self::local(error)
        }
    }

    /// The server's refusal.
    pub(crate) fn refused(status: u16, code: String, error: String, request_id: Option<String>) -> Self {
        Self {
            error,
            hint: hint_for(&code).map(str::to_owned),
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

    /// The exit code of this program; `own` for a failure that has none of its own.
    pub(crate) fn exit_code(&self, own: u8) -> u8 {
        match self.code.as_str() {
            "timeout" if own == OWN_FAILURE => DEADLINE_PASSED,
            BROKEN_PIPE => READER_LEFT,
            _ => own,
        }
    }

    /// Says it on standard error: for people, or as one JSON object a line. That a reader left is worth no word.
    pub(crate) fn report(&self, json: bool) {
        if self.code == BROKEN_PIPE {
            return;
        }
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
        let failure = Self::local(error.to_string());
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self {
                code: BROKEN_PIPE.to_owned(),
                ..failure
            };
        }
        failure
    }
}

/// What helps against a refusal. Every code is named, so that whoever adds one decides; a code of a newer server has none.
fn hint_for(code: &str) -> Option<&'static str> {
    match serde_json::from_value(code.into()).ok()? {
        ErrorCode::Unauthorized => {
            Some("set ATOLL_API_KEY, or `api_key` in the config file (`atoll config` shows which is used)")
        }
        ErrorCode::Forbidden => {
            Some("use a key with a wider scope; an admin makes one with `atoll key create NAME --scope admin`")
        }
        ErrorCode::TemplateUnknown => Some("`atoll template ls` shows the templates"),
        ErrorCode::IsolationUnavailable => {
            Some("`atoll doctor`, on the server's machine, says what it can isolate with")
        }
        ErrorCode::NoCapacity => Some("try again later, or make room: `atoll ls` shows what runs, `atoll rm` ends it"),
        ErrorCode::InsufficientStorage => {
            Some("`atoll ls` shows what holds the machine's disk and memory; `atoll rm` frees it")
        }
        ErrorCode::DiskFull => Some("remove files in the sandbox, or make one with more `--disk`"),
        ErrorCode::TooMany => Some("try again when some of what runs has ended"),
        ErrorCode::SandboxGone => Some("`atoll create` makes a new one"),
        ErrorCode::Internal => Some("the server's log has the cause under the request's id"),
        ErrorCode::InvalidRequest
        | ErrorCode::UnknownField
        | ErrorCode::NotFound
        | ErrorCode::Conflict
        | ErrorCode::NotRunning
        | ErrorCode::TooLarge
        | ErrorCode::Timeout
        | ErrorCode::NotSupported
        | ErrorCode::AgentLost => None,
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passed_deadline_and_a_reader_that_left_have_exit_codes_of_their_own() {
        let timeout = Failure::refused(0, "timeout".to_owned(), "command timeout after 1s".to_owned(), None);
        assert_eq!([timeout.exit_code(OWN_FAILURE), timeout.exit_code(1)], [124, 1]);
        let left = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!([left.exit_code(OWN_FAILURE), left.exit_code(1)], [141, 141]);
        assert_eq!(Failure::local("x").exit_code(OWN_FAILURE), OWN_FAILURE);
    }

    #[test]
    fn a_hint_follows_the_code_whatever_the_sentence_says() {
        let hint = |code: &str| Failure::refused(507, code.to_owned(), "x".to_owned(), None).hint;
        assert!(hint("disk_full").unwrap().contains("--disk"));
        assert!(hint("insufficient_storage").unwrap().contains("atoll rm"));
        assert!(hint("template_unknown").unwrap().contains("template ls"));
        assert_eq!(
            [hint("timeout"), hint("of_a_newer_server"), hint("")],
            [None, None, None]
        );
    }

    #[test]
    fn a_failure_is_one_sentence_and_a_hint() {
        let text = Failure::local("it broke").hint("mend it").to_string();
        assert_eq!(text, "error: it broke\nhint: mend it");
    }
}
