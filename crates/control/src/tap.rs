//! What stands between the agent's stream and the caller, the same for commands and cells: it counts, logs, and ends the
//! stream when the sandbox or the agent does.

use std::time::Duration;

use atoll_guest_link::GuestError;
use atoll_model::{ErrorCode, GoneReason, Outcome, output::StreamSummary};
use bytes::Bytes;
use tokio::time::Instant;

use crate::{guest::Lent, request::LogStream, text::TextDecoder};

/// One stream.
#[derive(Debug)]
pub(crate) struct Tap {
    pub(crate) lent: Lent,
    started: Instant,
    /// When the agent must have told the end.
    due: Option<Instant>,
    pub(crate) stdout: u64,
    pub(crate) stderr: u64,
}

impl Tap {
    pub(crate) fn new(lent: Lent) -> Self {
        Self {
            lent,
            started: Instant::now(),
            due: None,
            stdout: 0,
            stderr: 0,
        }
    }

    /// The same for a call whose deadline the agent keeps: so long after it, the agent must have told its end.
    pub(crate) fn with_deadline(lent: Lent, deadline: Option<Duration>) -> Self {
        let margin = lent.control.inner.config.agent_timeout;
        let tap = Self::new(lent);
        Self {
            due: deadline.and_then(|deadline| tap.started.checked_add(deadline + margin)),
            ..tap
        }
    }

    /// The next item, or how the stream ended without its own end.
    pub(crate) async fn race<T>(
        &self,
        next: impl Future<Output = Result<Option<T>, GuestError>>,
    ) -> Result<T, Outcome> {
        let error = tokio::select! {
            biased;
            reason = self.lent.gone() => return Err(Outcome::SandboxGone { reason }),
            item = within(self.due, next) => match item {
                None => {
                    tracing::error!(sandbox = %self.lent.live.id, "the agent did not tell the end of a call whose deadline passed");
                    return Err(Outcome::AgentLost);
                }
                Some(Ok(Some(item))) => return Ok(item),
                // The agent's streams say their end before they end; this is one that did not.
                Some(Ok(None)) => GuestError::Lost { detail: "a stream without an end".to_owned() },
                Some(Err(error)) => error,
            },
        };
        let refusal = self.lent.explain(error).await;
        Err(match (refusal.code, self.lent.gone_reason()) {
            (ErrorCode::SandboxGone, reason) => Outcome::SandboxGone {
                reason: reason.unwrap_or(GoneReason::MachineDied),
            },
            _ => Outcome::AgentLost,
        })
    }

    pub(crate) fn note(&mut self, stream: LogStream, bytes: Bytes) -> Bytes {
        self.lent.live.log.push(stream, &bytes);
        match stream {
            LogStream::Stderr => self.stderr += bytes.len() as u64,
            LogStream::Stdout | LogStream::Both => self.stdout += bytes.len() as u64,
        }
        bytes
    }

    pub(crate) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// What `next` gives, or `None` when nothing came until it was due.
async fn within<T>(due: Option<Instant>, next: impl Future<Output = T>) -> Option<T> {
    match due {
        Some(due) => tokio::time::timeout_at(due, next).await.ok(),
        None => Some(next.await),
    }
}

/// What is known of a stream that broke off: at least so much was written.
pub(crate) fn summary(total_bytes: u64) -> StreamSummary {
    StreamSummary {
        total_bytes,
        ..StreamSummary::default()
    }
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// The decoders of the two streams.
#[derive(Debug, Default)]
pub(crate) struct TextPair {
    pub(crate) stdout: TextDecoder,
    pub(crate) stderr: TextDecoder,
}

impl TextPair {
    /// What either decoder still holds, now that nothing follows; `None` once both are empty.
    pub(crate) fn flush(&mut self) -> Option<(LogStream, String)> {
        let stdout = non_empty(self.stdout.finish()).map(|text| (LogStream::Stdout, text));
        stdout.or_else(|| non_empty(self.stderr.finish()).map(|text| (LogStream::Stderr, text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_end_that_is_overdue_is_not_waited_for_and_one_that_is_there_is_taken() {
        let due = Instant::now() + Duration::from_secs(12);
        assert_eq!(within(Some(due), std::future::pending::<()>()).await, None);
        assert!(Instant::now() >= due);
        assert_eq!(within(Some(due), std::future::ready(1)).await, Some(1));
        assert_eq!(within(None, std::future::ready(2)).await, Some(2));
    }
}
