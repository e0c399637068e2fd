//! Errors of the layers below as answers to callers. The only place that does this; causes go to the log here.

use std::error::Error;

use atoll_engine::EngineError;
use atoll_guest_link::GuestError;
use atoll_model::{ErrorCode, GoneReason, Outcome, Refusal};
use atoll_protocol::types::{GuestCode, GuestRefusal};
use atoll_store::StoreError;

/// After how many seconds a create may find room (pandastack-v1 §1.5 says 5).
const RETRY_CREATE: u32 = 5;

/// An error with all of its causes, for the log.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// A fault of ours: logged with its causes, told without them.
pub(crate) fn internal(what: &str, error: &dyn Error) -> Refusal {
    tracing::error!(error = chain(error), "{what}");
    Refusal::new(ErrorCode::Internal, format!("{what}; the server's log says why"))
}

/// The store failed.
pub(crate) fn of_store(error: &StoreError) -> Refusal {
    internal("the server's records can't be used now", error)
}

/// The engine failed while `doing` something.
pub(crate) fn of_engine(doing: &str, error: &EngineError) -> Refusal {
    match error {
        EngineError::NoRoom(detail) => {
            tracing::warn!(detail, "the host has no room while {doing}");
            no_capacity("the host has no room for another machine now; nothing was created")
        }
        EngineError::Unsupported { engine, what } => Refusal::new(
            ErrorCode::NotSupported,
            format!("the engine {engine} of this host cannot {what}"),
        ),
        _ => internal(&format!("the engine failed while {doing}"), error),
    }
}

/// No room on the host, for now.
pub(crate) fn no_capacity(sentence: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::NoCapacity, sentence).retry_after(RETRY_CREATE)
}

/// The server stops; running sandboxes live on and are adopted by the next start.
pub(crate) fn shutting_down() -> Refusal {
    no_capacity("the server is shutting down; try again once it is up")
}

/// A fault of the server's own cost a sandbox its owner.
pub(crate) fn server_fault() -> Refusal {
    Refusal::new(
        ErrorCode::Internal,
        "the server met a fault of its own with this sandbox; its log says more, and a restart of the server sets it right",
    )
}

/// A create that is answered before the client gives up (pandastack-v1 §1.6).
pub(crate) fn create_too_slow() -> Refusal {
    Refusal::new(
        ErrorCode::Internal,
        "the sandbox was not created in time; what was begun of it is removed",
    )
}

/// The sandbox is no more.
pub(crate) fn gone(reason: GoneReason) -> Refusal {
    Refusal::new(
        ErrorCode::SandboxGone,
        format!("the sandbox is gone: {}", reason.clause()),
    )
}

/// A collected call whose stream ended without saying how is no success.
pub(crate) fn unknown_end(outcome: &Outcome) -> Result<(), Refusal> {
    match outcome {
        Outcome::AgentLost => Err(lost()),
        Outcome::SandboxGone { reason } => Err(gone(*reason)),
        _ => Ok(()),
    }
}

/// The agent of a sandbox fell silent, or says things that make no sense.
pub(crate) fn lost() -> Refusal {
    Refusal::new(
        ErrorCode::AgentLost,
        "the sandbox's agent does not answer; whether the call took effect is not known",
    )
}

/// What a failed call to the guest means, the sandbox itself being alive.
pub(crate) fn of_guest(error: GuestError) -> Refusal {
    match error {
        GuestError::Refused(refusal) => of_agent(refusal),
        GuestError::Body(source) => {
            tracing::debug!(error = %source, "a body ended early");
            Refusal::new(
                ErrorCode::InvalidRequest,
                "the request's body ended early; nothing was written",
            )
        }
        GuestError::Lost { .. } | GuestError::Silent { .. } | GuestError::Protocol { .. } => {
            tracing::warn!(error = chain(&error), "an agent is lost");
            lost()
        }
    }
}

fn of_agent(refusal: GuestRefusal) -> Refusal {
    let code = match refusal.code {
        GuestCode::Invalid
        | GuestCode::WrongKind
        | GuestCode::ArgumentTooLong
        | GuestCode::CommandNotFound
        | GuestCode::NotExecutable => ErrorCode::InvalidRequest,
        GuestCode::NotFound => ErrorCode::NotFound,
        GuestCode::Conflict => ErrorCode::Conflict,
        GuestCode::Permission => ErrorCode::Forbidden,
        GuestCode::DiskFull => ErrorCode::DiskFull,
        GuestCode::TooMany => ErrorCode::TooMany,
        GuestCode::Internal => ErrorCode::Internal,
    };
    Refusal::new(code, refusal.message)
}

/// The record of a sandbox is not in the state that its only writer left it in.
pub(crate) fn lost_record() -> Refusal {
    Refusal::new(
        ErrorCode::Internal,
        "the sandbox's record was changed by somebody else; the server's log says more",
    )
}
