//! JSON bodies of the agent's routes.

use std::collections::BTreeMap;

use atoll_model::{ContextId, ExecId, Outcome, OutputLimit, output::StreamSummary};
use serde::{Deserialize, Serialize};

/// Makes a restored machine a new one. The sandbox is ready only after the reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ThawRequest {
    /// Wall time now, in nanoseconds since 1970 (UTC).
    pub unix_nanos: u64,
    /// 32 bytes of fresh entropy, in hexadecimal digits.
    pub entropy: String,
    /// The machine's new host name.
    pub hostname: String,
    /// Environment of every command and context from now on, on top of the template's.
    pub env: BTreeMap<String, String>,
    /// Processors that programs may use and see; the default of a template when absent.
    #[serde(default = "default_cpu")]
    pub cpu: u32,
    /// Memory that the guest's programs may use, in MiB; the agent ends the greediest before it is passed.
    pub memory_mb: u64,
    /// Processes and threads that the guest may have; the agent ends the greediest tree before it is passed.
    #[serde(default = "default_pids")]
    pub pids: u32,
}

fn default_cpu() -> u32 {
    atoll_model::Limits::default().cpu
}

fn default_pids() -> u32 {
    atoll_model::Limits::default().pids
}

/// The agent's acknowledgement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ThawReply {
    /// How often this machine was thawed, this time included.
    pub generation: u64,
    /// The agent's version.
    pub agent_version: String,
}

/// How the agent and its machine are doing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stats {
    /// Resident memory of the agent, in bytes.
    pub agent_rss_bytes: u64,
    /// Memory in use in the machine, in bytes.
    pub memory_used_bytes: u64,
    /// Memory that programs may use, in bytes.
    pub memory_limit_bytes: u64,
    /// Processes, the agent included.
    pub processes: u32,
    /// Processes that ended and were not yet reaped.
    pub zombies: u32,
    /// Commands that run.
    pub execs: u32,
    /// Contexts that live.
    pub contexts: u32,
}

/// What runs a command.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// One string for `/bin/sh -c`.
    Shell(String),
    /// Program and arguments, no shell.
    Argv(Vec<String>),
}

/// A terminal's size.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Rows, 1 to 1000.
    pub rows: u16,
    /// Columns, 1 to 1000.
    pub cols: u16,
}

/// Starts a command.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecStart {
    /// What to run.
    pub program: Program,
    /// Working directory; the user's home when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// User name; root when absent. HOME, USER, LOGNAME and groups follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Added to the machine's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether `Stdin` records follow; `/dev/null` otherwise.
    #[serde(default)]
    pub stdin: bool,
    /// Run on a terminal of this size; output is `Stdout` then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
    /// Deadline in milliseconds; none when absent. The whole process tree is ended at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Keep so much of each stream (head and tail) and spill the rest; stream everything when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<OutputLimit>,
    /// Whether it goes on when the call ends; a bounded tail is kept for `attach` then.
    #[serde(default)]
    pub detach: bool,
}

/// A command runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecStarted {
    /// Its id.
    pub exec_id: ExecId,
    /// Its process id in the machine.
    pub pid: i32,
}

/// A command ended, and all of its output came before this.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecEnd {
    /// How.
    pub outcome: Outcome,
    /// Its exit code; 128 + n when signal n ended it; absent when it did not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
    /// What became of standard output.
    pub stdout: StreamSummary,
    /// What became of standard error.
    pub stderr: StreamSummary,
}

/// A command in the list.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecInfo {
    /// Its id.
    pub exec_id: ExecId,
    /// Its process id.
    pub pid: i32,
    /// What runs, cut to 200 characters.
    pub command: String,
    /// How it ended, if it did. Kept for ten minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<ExecEnd>,
}

/// Sends a signal to a command's process group.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecSignal {
    /// Which command.
    pub exec_id: ExecId,
    /// Signal number, 1 to 64.
    pub signal: i32,
}

/// Resizes a command's terminal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecResize {
    /// Which command.
    pub exec_id: ExecId,
    /// The new size.
    pub size: TerminalSize,
}

/// What kind of thing a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A plain file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link (never followed by `list`, followed by `stat`).
    Symlink,
    /// A FIFO, socket or device.
    Other,
}

/// One entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileInfo {
    /// Last part of its path. Bytes that are no UTF-8 are replaced.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// When it was last changed, in seconds since 1970.
    pub mtime: i64,
}

/// A page of a directory, in the order of names.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileList {
    /// The entries.
    pub entries: Vec<FileInfo>,
    /// Ask again with `after` set to this; the end when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A file was written, and is complete under its name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileWritten {
    /// Bytes written.
    pub bytes: u64,
}

/// Renames.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileMove {
    /// From this path.
    pub from: String,
    /// To this path.
    pub to: String,
}

/// Makes a context.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ContextCreate {
    /// `python`.
    pub language: String,
    /// Working directory; the home of its user when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Added to the machine's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// A context.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ContextInfo {
    /// Its id.
    pub id: ContextId,
    /// Its language.
    pub language: String,
    /// Cells it has run.
    pub cells: u64,
    /// Whether one runs now.
    pub busy: bool,
    /// How often its interpreter was started anew.
    pub restarts: u64,
    /// When it was made, in seconds since 1970.
    pub created_at: i64,
}

/// Runs a cell. Cells of one context run in the order of their calls.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellRun {
    /// The source.
    pub code: String,
    /// Deadline in milliseconds of running time, waiting in the queue not counted.
    pub timeout_ms: u64,
    /// Environment of this run only.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What to keep of each stream.
    #[serde(default)]
    pub keep: OutputLimit,
}

/// What a cell reports besides its output.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CellEvent {
    /// A result, in order of appearance.
    Result {
        /// MIME type to value. Text and base64 are strings; JSON types are values.
        bundle: BTreeMap<String, serde_json::Value>,
        /// Whether it is the value of the last expression.
        #[serde(default)]
        is_last_expression: bool,
    },
    /// The cell ended. Nothing follows.
    Done(CellEnd),
}

/// The end of a cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellEnd {
    /// How.
    pub outcome: Outcome,
    /// The exception, for [`Outcome::Error`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CellError>,
    /// Exit code: 0, 1 for an exception, `n` for `exit(n)`.
    pub exit_code: i32,
    /// Which cell of the context this was, from 1.
    pub execution_count: u64,
    /// Running time in milliseconds.
    pub duration_ms: u64,
    /// What became of standard output.
    pub stdout: StreamSummary,
    /// What became of standard error.
    pub stderr: StreamSummary,
}

/// An exception that a cell raised.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellError {
    /// Class name.
    pub name: String,
    /// Its text.
    pub value: String,
    /// Formatted traceback, without colour codes.
    pub traceback: String,
}

/// Starts and warms the zygote of a language; for bakes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WarmRequest {
    /// `python`.
    pub language: String,
    /// Command line of the driver.
    pub argv: Vec<String>,
    /// Who runs it.
    pub user: String,
    /// Source that the zygote runs once: the imports and first calls to keep warm.
    pub code: String,
    /// How long this may take, in milliseconds.
    pub timeout_ms: u64,
}

/// Why the agent said no.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct GuestRefusal {
    /// What kind of no.
    pub code: GuestCode,
    /// One sentence.
    pub message: String,
}

/// The kinds of no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestCode {
    /// A field is wrong.
    Invalid,
    /// No such file, context or command.
    NotFound,
    /// A directory where a file is wanted, or the other way round; a special file that would block.
    WrongKind,
    /// It exists already, or is in use.
    Conflict,
    /// The user may not.
    Permission,
    /// The disk is full.
    DiskFull,
    /// An argument is longer than the kernel takes.
    ArgumentTooLong,
    /// No such program.
    CommandNotFound,
    /// It is not a program that this machine can run.
    NotExecutable,
    /// A bound was reached (contexts, commands).
    TooMany,
    /// A fault of the agent.
    Internal,
}
