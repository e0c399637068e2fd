//! How a cell or a command ended. Always one of these, never an invented exit code.

use serde::{Deserialize, Serialize};

/// Why a sandbox is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GoneReason {
    /// A caller deleted it.
    Deleted,
    /// It was idle for longer than its `ttl_seconds`.
    Expired,
    /// Its machine ended by itself or was killed from outside.
    MachineDied,
    /// It could not be created.
    CreateFailed,
    /// Its agent could not be reached again, for as long as the server tries.
    AgentLost,
    /// A fault of the server's own ended it.
    ServerFault,
}

impl GoneReason {
    /// The word used on the wire and in the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Expired => "expired",
            Self::MachineDied => "machine_died",
            Self::CreateFailed => "create_failed",
            Self::AgentLost => "agent_lost",
            Self::ServerFault => "server_fault",
        }
    }

    /// The reason of that word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [
            Self::Deleted,
            Self::Expired,
            Self::MachineDied,
            Self::CreateFailed,
            Self::AgentLost,
            Self::ServerFault,
        ]
        .into_iter()
        .find(|reason| reason.as_str() == word)
    }

    /// One clause for a message, as in "the sandbox is gone: ...".
    #[must_use]
    pub fn clause(self) -> &'static str {
        match self {
            Self::Deleted => "it was deleted",
            Self::Expired => "it was idle for longer than its ttl_seconds",
            Self::MachineDied => "its machine ended unexpectedly",
            Self::CreateFailed => "it could not be created",
            Self::AgentLost => "its agent stopped answering",
            Self::ServerFault => "a fault of the server ended it",
        }
    }
}

/// The end of a cell or a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It ran to its end. A command's exit code is beside this; a cell's is 0.
    Ok,
    /// A cell raised an exception, or called `exit(n)`.
    Error,
    /// The deadline passed. `context_restarted` says that the interpreter had to be killed for it.
    Timeout {
        /// The deadline, in milliseconds.
        timeout_ms: u64,
        /// Whether the context's state was lost.
        context_restarted: bool,
    },
    /// A caller interrupted it.
    Interrupted {
        /// Whether the context's state was lost.
        context_restarted: bool,
    },
    /// It needed more memory than the sandbox has.
    Oom {
        /// The sandbox's memory, in MiB.
        limit_mb: u64,
        /// What was in use when it was ended, in MiB.
        peak_mb: u64,
        /// Whether the context's state was lost.
        context_restarted: bool,
    },
    /// The interpreter process ended. The context was started anew and its state is lost.
    ContextDied {
        /// The signal that ended it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// The exit code it ended with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
    },
    /// The caller went away or closed the context.
    Cancelled,
    /// The agent went silent: what the code did is unknown.
    AgentLost,
    /// The sandbox ended meanwhile.
    SandboxGone {
        /// Why.
        reason: GoneReason,
    },
}
