//! What callers ask of a guest, and what they get back.

use std::{collections::BTreeMap, time::Duration};

use atoll_model::{ExecId, Outcome, OutputLimit};
use atoll_protocol::types::{CellError, Program, TerminalSize};
use bytes::Bytes;

use crate::text::OutputText;

/// A command to run.
#[derive(Debug, Clone)]
pub struct ExecRequest {
    /// What to run.
    pub program: Program,
    /// Working directory; the user's home when absent.
    pub cwd: Option<String>,
    /// User name; root when absent.
    pub user: Option<String>,
    /// Added to the sandbox's environment.
    pub env: BTreeMap<String, String>,
    /// Deadline; none when absent. At most [`MAX_TIMEOUT_SECONDS`](atoll_model::limits::MAX_TIMEOUT_SECONDS).
    pub timeout: Option<Duration>,
    /// Run on a terminal of this size (sessions only).
    pub terminal: Option<TerminalSize>,
    /// Whether it goes on when the session's output is dropped (sessions only).
    pub detach: bool,
}

impl ExecRequest {
    /// A shell command with nothing else set.
    #[must_use]
    pub fn shell(command: impl Into<String>) -> Self {
        Self::of(Program::Shell(command.into()))
    }

    /// A program and its arguments with nothing else set.
    #[must_use]
    pub fn argv(argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::of(Program::Argv(argv.into_iter().map(Into::into).collect()))
    }

    fn of(program: Program) -> Self {
        Self {
            program,
            cwd: None,
            user: None,
            env: BTreeMap::new(),
            timeout: None,
            terminal: None,
            detach: false,
        }
    }
}

/// A command that ended, with all of its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecResult {
    /// Its id.
    pub exec_id: ExecId,
    /// How it ended. A deadline is [`Outcome::Timeout`], with the output so far beside it.
    pub outcome: Outcome,
    /// Its exit code, 128 + n when signal n ended it; absent when it did not end by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: OutputText,
    /// What it wrote to standard error.
    pub stderr: OutputText,
    /// How long it ran.
    pub duration: Duration,
}

/// Bytes for a collected command's standard input.
#[derive(Debug, Clone, Default)]
pub struct ExecCollect {
    /// Standard input; `/dev/null` when absent.
    pub stdin: Option<Bytes>,
    /// What to keep of each stream.
    pub keep: OutputLimit,
}

/// A context to make.
#[derive(Debug, Clone, Default)]
pub struct ContextRequest {
    /// `python` (also `py`, `python3`; any case).
    pub language: String,
    /// Working directory; the home of its user when absent.
    pub cwd: Option<String>,
    /// Added to the sandbox's environment.
    pub env: BTreeMap<String, String>,
}

/// A cell to run.
#[derive(Debug, Clone, Default)]
pub struct CellRequest {
    /// The source. An empty cell is an empty success.
    pub code: String,
    /// Deadline; [`DEFAULT_CELL_TIMEOUT_SECONDS`](atoll_model::limits::DEFAULT_CELL_TIMEOUT_SECONDS) when absent.
    pub timeout: Option<Duration>,
    /// Environment of this run only.
    pub env: BTreeMap<String, String>,
    /// What to keep of each stream.
    pub keep: OutputLimit,
}

/// One result of a cell: the same value in several forms.
#[derive(Debug, Clone, PartialEq)]
pub struct CellResult {
    /// MIME type to value. Text and base64 are strings; JSON types are values.
    pub bundle: BTreeMap<String, serde_json::Value>,
    /// Whether it is the value of the last expression.
    pub is_last_expression: bool,
}

/// A cell that ended, with all of its output.
#[derive(Debug, Clone)]
pub struct CellReport {
    /// How it ended.
    pub outcome: Outcome,
    /// What it wrote to standard output.
    pub stdout: OutputText,
    /// What it wrote to standard error.
    pub stderr: OutputText,
    /// Its results in order of appearance.
    pub results: Vec<CellResult>,
    /// Results that were left out because all together passed [`MAX_RESULT_BYTES`].
    pub results_dropped: u64,
    /// The exception, for [`Outcome::Error`].
    pub error: Option<CellError>,
    /// 0, 1 for an exception, `n` for `exit(n)`.
    pub exit_code: i32,
    /// Which cell of the context this was, from 1; 0 when it never started.
    pub execution_count: u64,
    /// How long it ran, waiting in the queue not counted.
    pub duration: Duration,
}

/// The most that the results of one cell may hold together, in bytes of JSON (32 MiB). Those beyond are counted.
pub const MAX_RESULT_BYTES: usize = 32 << 20;

/// Which output of a sandbox's commands and cells a log holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogStream {
    /// Both, in order of arrival.
    #[default]
    Both,
    /// Standard output only.
    Stdout,
    /// Standard error only.
    Stderr,
}
