//! What can go wrong on the way to the agent.

use std::time::Duration;

use atoll_protocol::types::GuestRefusal;

use crate::BodyError;

/// The link could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The port did not take the first bytes.
    #[error("the link to the agent could not be opened")]
    Handshake(#[source] h2::Error),
    /// No random number for the epoch.
    #[error("the system gives no random numbers")]
    Random(#[source] getrandom::Error),
}

/// A call to the agent did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The agent said no.
    #[error(transparent)]
    Refused(#[from] GuestRefusal),
    /// The link died. Whether the call took effect is unknown.
    #[error("the link to the agent is lost: {detail}")]
    Lost {
        /// What the transport said; for the log.
        detail: String,
    },
    /// The agent did not answer in time. The link may still live.
    #[error("the agent did not answer within {after:?}")]
    Silent {
        /// How long was waited.
        after: Duration,
    },
    /// The agent answered something that this release does not understand, or ended a stream before its last event.
    #[error("the agent's answer makes no sense: {detail}")]
    Protocol {
        /// What was wrong with it; for the log.
        detail: String,
    },
    /// The body that the caller was to give failed; the call was cancelled and left nothing behind.
    #[error("the body of the call ended early")]
    Body(#[source] BodyError),
}

impl GuestError {
    pub(crate) fn protocol(detail: impl Into<String>) -> Self {
        Self::Protocol { detail: detail.into() }
    }
}
