//! How a command or cell ended and what became of its output, as both kinds of result carry it.

use atoll_control::OutputText;
use atoll_model::{ErrorCode, GoneReason, Outcome, output::StreamSummary};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Serialize;
use utoipa::ToSchema;

/// The exit code that stands for a deadline that passed, as `timeout(1)` has it (pandastack-v1 §1.6).
pub(crate) const TIMEOUT_EXIT: i32 = 124;
/// The exit code of what did not end by itself and has none. The clients of the contract need a number.
pub(crate) const NO_EXIT: i32 = -1;

/// What was kept of both streams.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct OutputFields {
    /// Whether either stream was cut; `stdout` and `stderr` then hold head, a marker and tail.
    pub(crate) truncated: bool,
    /// Bytes written to standard output.
    pub(crate) stdout_total_bytes: u64,
    /// Bytes written to standard error.
    pub(crate) stderr_total_bytes: u64,
    /// Where inside the sandbox the whole standard output lies, when it was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stdout_spill_path: Option<String>,
    /// Where inside the sandbox the whole standard error lies, when it was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stderr_spill_path: Option<String>,
    /// The kept bytes of standard output, when they are not all UTF-8; `stdout` has replacement characters then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    /// The kept bytes of standard error, when they are not all UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
}

impl OutputFields {
    pub(crate) fn of(stdout: &OutputText, stderr: &OutputText) -> Self {
        let encoded = |output: &OutputText| output.raw.as_ref().map(|raw| BASE64_STANDARD.encode(raw));
        Self {
            stdout_base64: encoded(stdout),
            stderr_base64: encoded(stderr),
            ..Self::summed(&stdout.summary, &stderr.summary)
        }
    }

    pub(crate) fn summed(stdout: &StreamSummary, stderr: &StreamSummary) -> Self {
        Self {
            truncated: stdout.truncated || stderr.truncated,
            stdout_total_bytes: stdout.total_bytes,
            stderr_total_bytes: stderr.total_bytes,
            stdout_spill_path: stdout.spill_path.clone(),
            stderr_spill_path: stderr.spill_path.clone(),
            stdout_base64: None,
            stderr_base64: None,
        }
    }
}

/// How a command or cell ended.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct OutcomeFields {
    /// `ok`, `error` (a cell raised), `timeout`, `interrupted`, `oom`, `context_died`, `cancelled`, `agent_lost` or
    /// `sandbox_gone`.
    #[schema(example = "ok")]
    pub(crate) outcome: &'static str,
    /// Whether the context's variables were lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context_restarted: Option<bool>,
    /// For `timeout`: the deadline, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<u64>,
    /// For `oom`: the sandbox's memory, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit_mb: Option<u64>,
    /// For `oom`: what was in use, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peak_mb: Option<u64>,
    /// The signal that ended the command or the context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<i32>,
    /// For `sandbox_gone`: why, as in `deleted` or `expired`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
}

impl OutcomeFields {
    /// The outcome of a call that was refused after its answer had begun.
    pub(crate) fn refused(code: ErrorCode) -> Self {
        let outcome = match code {
            ErrorCode::SandboxGone | ErrorCode::NotFound => "sandbox_gone",
            ErrorCode::AgentLost => "agent_lost",
            _ => "cancelled",
        };
        Self {
            outcome,
            ..Self::default()
        }
    }
}

impl From<&Outcome> for OutcomeFields {
    fn from(outcome: &Outcome) -> Self {
        let plain = |outcome| Self {
            outcome,
            ..Self::default()
        };
        match *outcome {
            Outcome::Ok => plain("ok"),
            Outcome::Error => plain("error"),
            Outcome::Cancelled => plain("cancelled"),
            Outcome::AgentLost => plain("agent_lost"),
            Outcome::Timeout {
                timeout_ms,
                context_restarted,
            } => Self {
                timeout_ms: Some(timeout_ms),
                context_restarted: Some(context_restarted),
                ..plain("timeout")
            },
            Outcome::Interrupted { context_restarted } => Self {
                context_restarted: Some(context_restarted),
                ..plain("interrupted")
            },
            Outcome::Oom {
                limit_mb,
                peak_mb,
                context_restarted,
            } => Self {
                limit_mb: Some(limit_mb),
                peak_mb: Some(peak_mb),
                context_restarted: Some(context_restarted),
                ..plain("oom")
            },
            Outcome::ContextDied { signal, .. } => Self {
                signal,
                context_restarted: Some(true),
                ..plain("context_died")
            },
            Outcome::SandboxGone { reason } => Self {
                reason: Some(reason.as_str()),
                ..plain("sandbox_gone")
            },
        }
    }
}

/// What the end says to a reader who sees only text: `what` is `command` or `cell`. `None` when its output says it all.
pub(crate) fn ending_in_words(what: &str, outcome: &Outcome) -> Option<String> {
    let lost = |restarted: bool| {
        if restarted {
            "; the context was restarted and its variables are lost"
        } else {
            ""
        }
    };
    Some(match *outcome {
        Outcome::Ok | Outcome::Error => return None,
        Outcome::Timeout {
            timeout_ms,
            context_restarted,
        } => {
            let deadline = std::time::Duration::from_millis(timeout_ms);
            format!(
                "{what} timeout after {}{}",
                crate::seconds::words(deadline),
                lost(context_restarted)
            )
        }
        Outcome::Interrupted { context_restarted } => {
            format!("the {what} was interrupted{}", lost(context_restarted))
        }
        Outcome::Oom {
            limit_mb,
            peak_mb,
            context_restarted,
        } => format!(
            "the {what} ran out of memory: the sandbox has {limit_mb} MiB and {peak_mb} MiB were in use{}",
            lost(context_restarted)
        ),
        Outcome::ContextDied { signal, exit_code } => {
            let how = match (signal, exit_code) {
                (Some(signal), _) => format!("by signal {signal}"),
                (None, Some(code)) => format!("with exit code {code}"),
                (None, None) => "unexpectedly".to_owned(),
            };
            format!("the interpreter ended {how}{}", lost(true))
        }
        Outcome::Cancelled => format!("the {what} was cancelled"),
        Outcome::AgentLost => format!("the sandbox does not answer: what the {what} did is unknown"),
        Outcome::SandboxGone { reason } => gone_in_words(reason),
    })
}

fn gone_in_words(reason: GoneReason) -> String {
    format!("the sandbox is gone: {}", reason.clause())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_timeout_speaks_of_one() {
        let outcomes = [
            Outcome::Interrupted {
                context_restarted: true,
            },
            Outcome::Oom {
                limit_mb: 128,
                peak_mb: 127,
                context_restarted: false,
            },
            Outcome::ContextDied {
                signal: Some(9),
                exit_code: None,
            },
            Outcome::Cancelled,
            Outcome::AgentLost,
            Outcome::SandboxGone {
                reason: GoneReason::Expired,
            },
        ];
        for outcome in outcomes {
            let words = ending_in_words("cell", &outcome).unwrap();
            assert!(!words.contains("timeout"), "{words}");
        }
        let timeout = Outcome::Timeout {
            timeout_ms: 60_000,
            context_restarted: false,
        };
        assert_eq!(ending_in_words("cell", &timeout).unwrap(), "cell timeout after 60s");
    }

    #[test]
    fn bytes_that_are_no_text_are_kept_beside_it() {
        let binary = OutputText {
            text: "\u{fffd}".into(),
            raw: Some(b"\xff".as_slice().into()),
            ..OutputText::default()
        };
        let fields = OutputFields::of(&binary, &OutputText::default());
        assert_eq!(fields.stdout_base64.as_deref(), Some("/w=="));
        assert_eq!(fields.stderr_base64, None);
    }
}
