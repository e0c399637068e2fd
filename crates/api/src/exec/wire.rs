//! What a command looks like on the wire.

use std::{collections::BTreeMap, time::Duration};

use atoll_control::{ExecCollect, ExecRequest, ExecResult};
use atoll_model::{Outcome, OutputLimit};
use atoll_protocol::types::{ExecEnd, ExecInfo, Program};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    error::{ApiError, ApiResult},
    output::{NO_EXIT, OutcomeFields, OutputFields, TIMEOUT_EXIT, ending_in_words},
    seconds,
};

/// The most that a caller may ask to keep of each stream, in bytes (16 MiB).
const MAX_KEEP: u64 = 16 << 20;

/// A command to run: either `cmd` or `argv`.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ExecBody {
    /// One string for `/bin/sh -c`.
    #[schema(example = "echo hello")]
    pub(super) cmd: Option<String>,
    /// Program and arguments, no shell.
    pub(super) argv: Option<Vec<String>>,
    /// Deadline in seconds, fractions allowed; none when absent. The whole process tree is ended at it.
    #[schema(exclusive_minimum = 0.0, maximum = 86_400.0)]
    pub(super) timeout_seconds: Option<f64>,
    /// Working directory; the user's home when absent.
    pub(super) cwd: Option<String>,
    /// User name; root when absent.
    pub(super) user: Option<String>,
    /// Added to the sandbox's environment.
    pub(super) env: Option<BTreeMap<String, String>>,
    /// Text for standard input; `/dev/null` when neither this nor `stdin_base64` is given.
    pub(super) stdin: Option<String>,
    /// Bytes for standard input.
    pub(super) stdin_base64: Option<String>,
    /// How many bytes of each stream to keep for the answer, half from the head, half from the tail; 1 MiB when absent.
    /// A stream of events is never cut.
    #[schema(minimum = 0, maximum = 16_777_216)]
    pub(super) max_output_bytes: Option<u64>,
    /// Only for a stream of events: whether the command goes on when the client goes away. The last 1 MiB of its output is kept
    /// for `GET .../exec/{exec_id}/stream` until ten minutes after its end; nobody following it, it does not count as use.
    pub(super) detach: Option<bool>,
}

/// A command, parsed.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) request: ExecRequest,
    pub(crate) collect: ExecCollect,
}

impl ExecBody {
    /// One shell command with a deadline, as the multiplexed socket takes it.
    pub(crate) fn shell(cmd: Option<String>, timeout_seconds: Option<f64>) -> Self {
        Self {
            cmd,
            timeout_seconds,
            ..Self::default()
        }
    }

    pub(crate) fn into_command(self) -> ApiResult<Command> {
        let program = match (self.cmd, self.argv) {
            (Some(_), Some(_)) => return Err(ApiError::field("argv", "give either cmd or argv, not both")),
            (Some(cmd), None) => Program::Shell(cmd),
            (None, Some(argv)) if argv.first().is_none_or(String::is_empty) => {
                return Err(ApiError::field("argv", "argv needs a program as its first element"));
            }
            (None, Some(argv)) => Program::Argv(argv),
            (None, None) => return Err(ApiError::field("cmd", "cmd required")),
        };
        Ok(Command {
            request: ExecRequest {
                program,
                cwd: self.cwd,
                user: self.user,
                env: self.env.unwrap_or_default(),
                timeout: seconds::from_seconds("timeout_seconds", self.timeout_seconds)?,
                terminal: None,
                detach: self.detach.unwrap_or(false),
            },
            collect: ExecCollect {
                stdin: stdin(self.stdin, self.stdin_base64)?,
                keep: output_limit(self.max_output_bytes)?,
            },
        })
    }
}

fn stdin(text: Option<String>, base64: Option<String>) -> ApiResult<Option<Bytes>> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(ApiError::field(
            "stdin_base64",
            "give either stdin or stdin_base64, not both",
        )),
        (Some(text), None) => Ok(Some(text.into())),
        (None, Some(base64)) => {
            let bytes = BASE64_STANDARD.decode(base64);
            let bytes = bytes
                .map_err(|error| ApiError::field("stdin_base64", format!("stdin_base64 is not base64: {error}")))?;
            Ok(Some(bytes.into()))
        }
        (None, None) => Ok(None),
    }
}

/// `max_output_bytes`, of commands and cells.
pub(crate) fn output_limit(wanted: Option<u64>) -> ApiResult<OutputLimit> {
    match wanted {
        None => Ok(OutputLimit::default()),
        Some(bytes) if bytes <= MAX_KEEP => Ok(OutputLimit(bytes)),
        Some(bytes) => Err(ApiError::field(
            "max_output_bytes",
            format!("max_output_bytes must be at most {MAX_KEEP}, not {bytes}"),
        )),
    }
}

/// A command that ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExecReply {
    /// What it wrote to standard output.
    pub(crate) stdout: String,
    /// What it wrote to standard error.
    pub(crate) stderr: String,
    /// Its exit code, 128 + n when signal n ended it; 124 when its deadline did, -1 when it has none.
    pub(crate) exit_code: i32,
    /// How long it ran, in milliseconds.
    pub(crate) duration_ms: u64,
    /// Its id; absent when it never started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exec_id: Option<String>,
    /// When it did not end by itself and the answer had begun before: what happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// With `error`: its code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    /// How it ended.
    #[serde(flatten)]
    pub(crate) outcome: OutcomeFields,
    /// What became of its output.
    #[serde(flatten)]
    pub(crate) output: OutputFields,
}

impl From<ExecResult> for ExecReply {
    fn from(result: ExecResult) -> Self {
        Self {
            output: OutputFields::of(&result.stdout, &result.stderr),
            outcome: outcome_fields(&result.outcome, result.signal),
            exit_code: exit_code(&result.outcome, result.exit_code),
            stdout: result.stdout.text,
            stderr: result.stderr.text,
            duration_ms: millis(result.duration),
            exec_id: Some(result.exec_id.to_string()),
            error: None,
            code: None,
        }
    }
}

fn outcome_fields(outcome: &Outcome, signal: Option<i32>) -> OutcomeFields {
    let fields = OutcomeFields::from(outcome);
    OutcomeFields {
        signal: fields.signal.or(signal),
        ..fields
    }
}

/// The number that the clients of the contract get, whatever happened.
pub(crate) fn exit_code(outcome: &Outcome, code: Option<i32>) -> i32 {
    match (outcome, code) {
        (Outcome::Timeout { .. }, _) => TIMEOUT_EXIT,
        (_, Some(code)) => code,
        (_, None) => NO_EXIT,
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What `exit` carries in a stream of events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExitData {
    exit_code: i32,
    duration_ms: u64,
    #[serde(flatten)]
    outcome: OutcomeFields,
    #[serde(flatten)]
    output: OutputFields,
}

impl ExitData {
    pub(crate) fn code(&self) -> i32 {
        self.exit_code
    }
}

/// What `error` carries in a stream of events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorData {
    pub(crate) error: String,
    pub(crate) code: String,
    #[serde(flatten)]
    pub(crate) outcome: Option<OutcomeFields>,
}

/// The end of a streamed command: an exit code, or why there is none.
pub(crate) enum ExecOutcome {
    /// It ended by itself, or by a signal.
    Exit(ExitData),
    /// Its deadline passed, or its end is not known.
    Error(ErrorData),
}

impl From<ExecEnd> for ExecOutcome {
    fn from(end: ExecEnd) -> Self {
        let code = match end.outcome {
            Outcome::Timeout { .. } => Some("timeout"),
            Outcome::AgentLost => Some("agent_lost"),
            Outcome::SandboxGone { .. } => Some("sandbox_gone"),
            Outcome::Cancelled if end.exit_code.is_none() => Some("cancelled"),
            _ => None,
        };
        let outcome = outcome_fields(&end.outcome, end.signal);
        match code.zip(ending_in_words("command", &end.outcome)) {
            Some((code, error)) => Self::Error(ErrorData {
                error,
                code: code.to_owned(),
                outcome: Some(outcome),
            }),
            None => Self::Exit(ExitData {
                exit_code: exit_code(&end.outcome, end.exit_code),
                duration_ms: end.duration_ms,
                outcome,
                output: OutputFields::summed(&end.stdout, &end.stderr),
            }),
        }
    }
}

/// A command in the list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CommandInfo {
    /// Its id.
    pub(crate) exec_id: String,
    /// Its process id in the sandbox.
    pub(crate) pid: i32,
    /// What runs, cut to 200 characters.
    pub(crate) command: String,
    /// Whether it still runs.
    pub(crate) running: bool,
    /// Its exit code, when it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<i32>,
}

impl From<ExecInfo> for CommandInfo {
    fn from(info: ExecInfo) -> Self {
        Self {
            exec_id: info.exec_id.to_string(),
            pid: info.pid,
            command: info.command,
            running: info.end.is_none(),
            exit_code: info.end.map(|end| exit_code(&end.outcome, end.exit_code)),
        }
    }
}

/// A signal to send.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct SignalBody {
    /// Its number, as in 15 for SIGTERM.
    #[schema(minimum = 1, maximum = 64)]
    pub(crate) signal: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> ApiResult<Command> {
        crate::extract::parse::<ExecBody>(json.as_bytes(), false)?.into_command()
    }

    #[test]
    fn a_command_is_a_string_or_an_argv() {
        assert!(matches!(parsed(r#"{"cmd": ""}"#).unwrap().request.program, Program::Shell(text) if text.is_empty()));
        assert!(
            matches!(parsed(r#"{"argv": ["a", ""]}"#).unwrap().request.program, Program::Argv(argv) if argv.len() == 2)
        );
        for (json, field) in [
            ("{}", "cmd"),
            (r#"{"argv": []}"#, "argv"),
            (r#"{"argv": [""]}"#, "argv"),
            (r#"{"cmd": "a", "argv": ["a"]}"#, "argv"),
            (r#"{"cmd": "a", "timeout_seconds": 0}"#, "timeout_seconds"),
            (r#"{"cmd": "a", "timeout_seconds": 1e18}"#, "timeout_seconds"),
            (r#"{"cmd": "a", "stdin_base64": "?"}"#, "stdin_base64"),
            (r#"{"cmd": "a", "max_output_bytes": 99999999999}"#, "max_output_bytes"),
        ] {
            assert_eq!(
                parsed(json).unwrap_err().body("r").field.as_deref(),
                Some(field),
                "{json}"
            );
        }
    }

    #[test]
    fn no_exit_code_is_invented_for_what_did_not_end() {
        let timeout = Outcome::Timeout {
            timeout_ms: 1000,
            context_restarted: false,
        };
        assert_eq!(exit_code(&timeout, Some(137)), TIMEOUT_EXIT);
        assert_eq!(exit_code(&Outcome::Ok, Some(3)), 3);
        assert_eq!(exit_code(&Outcome::AgentLost, None), NO_EXIT);
    }
}
