//! What a caller is told when the answer is no.

use serde::{Deserialize, Serialize};

/// The only list of error codes that clients see. The API maps each to one HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// A field is missing, of the wrong type or outside its range.
    InvalidRequest,
    /// A field that this API does not know.
    UnknownField,
    /// No credential, or one that is not valid.
    Unauthorized,
    /// The credential is valid and its scope does not allow this.
    Forbidden,
    /// There is no such thing, or it belongs to another workspace.
    NotFound,
    /// No template of that name.
    TemplateUnknown,
    /// The thing's state does not allow this now.
    Conflict,
    /// The sandbox is paused or hibernated.
    NotRunning,
    /// The body is larger than the route takes.
    TooLarge,
    /// Too many requests, contexts or commands at once.
    TooMany,
    /// A cell's or command's deadline passed.
    Timeout,
    /// No engine here isolates as strongly as was asked.
    IsolationUnavailable,
    /// What was asked for is not built into this release, deliberately.
    NotSupported,
    /// The host has no room now; nothing was created.
    NoCapacity,
    /// The host's disk or memory is full; nothing was created.
    InsufficientStorage,
    /// The sandbox's own disk is full.
    DiskFull,
    /// The agent of the sandbox does not answer.
    AgentLost,
    /// The sandbox ended during the call.
    SandboxGone,
    /// A fault of ours. The log has the cause under the request's id.
    Internal,
}

/// An answer of "no": typed, one sentence, naming the field or rule and what would help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The code.
    pub code: ErrorCode,
    /// One sentence for the caller. Never holds secrets or host paths.
    pub message: String,
    /// The request's field that is at fault.
    pub field: Option<String>,
    /// After how many seconds the same call may succeed.
    pub retry_after: Option<u32>,
}

impl Refusal {
    /// A refusal with only a code and its sentence.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            field: None,
            retry_after: None,
        }
    }

    /// A field that is missing, of the wrong type or outside its range.
    pub fn field(field: &str, message: impl Into<String>) -> Self {
        Self {
            field: Some(field.to_owned()),
            ..Self::new(ErrorCode::InvalidRequest, message)
        }
    }

    /// No such thing: `what` as in "sandbox".
    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::new(ErrorCode::NotFound, format!("{what} not found"))
    }

    /// The same refusal, which may be tried again after so many seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}
