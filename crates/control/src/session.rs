//! Calls that stream: each always ends with an `End` that says how, the sandbox's own end and a silent agent included.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use atoll_model::{ExecId, Refusal};
use atoll_protocol::types::{CellEnd, ExecEnd};
use bytes::Bytes;
use futures_util::Stream;

use crate::{request::CellResult, views::EventView};

/// A command that runs. Dropping `output` ends the command unless it is detached.
#[derive(Debug)]
pub struct ExecSession {
    /// Its id, for signal, resize and attach.
    pub exec_id: ExecId,
    /// Its process id in the sandbox.
    pub pid: i32,
    /// Its standard input.
    pub input: ExecInput,
    /// What it writes.
    pub output: ExecOutput,
}

/// What a command does.
#[derive(Debug, Clone)]
pub enum ExecEvent {
    /// It wrote to standard output or to its terminal.
    Stdout(Bytes),
    /// It wrote to standard error.
    Stderr(Bytes),
    /// It ended, or its end can't be known ([`Outcome::AgentLost`](atoll_model::Outcome::AgentLost),
    /// [`Outcome::SandboxGone`](atoll_model::Outcome::SandboxGone)). Nothing follows.
    End(ExecEnd),
}

/// [`ExecEvent`] in text; see [`TextDecoder`](crate::TextDecoder).
#[derive(Debug, Clone)]
pub enum ExecText {
    /// It wrote to standard output or to its terminal.
    Stdout(String),
    /// It wrote to standard error.
    Stderr(String),
    /// It ended.
    End(ExecEnd),
}

/// What a cell does.
#[derive(Debug, Clone)]
pub enum CellEvent {
    /// It wrote to standard output.
    Stdout(Bytes),
    /// It wrote to standard error.
    Stderr(Bytes),
    /// It gave a result.
    Result(CellResult),
    /// It ended. Nothing follows.
    End(CellEnd),
}

/// [`CellEvent`] in text.
#[derive(Debug, Clone)]
pub enum CellText {
    /// It wrote to standard output.
    Stdout(String),
    /// It wrote to standard error.
    Stderr(String),
    /// It gave a result.
    Result(CellResult),
    /// It ended. Nothing follows.
    End(CellEnd),
}

/// A command's standard input.
#[derive(Debug)]
pub struct ExecInput {}

impl ExecInput {
    /// Sends bytes; waits while the command does not read.
    ///
    /// # Errors
    /// `Conflict` when the command takes no input or has ended.
    pub async fn write(&mut self, _bytes: Bytes) -> Result<(), Refusal> {
        unimplemented!()
    }

    /// Ends standard input.
    pub async fn end(&mut self) {
        unimplemented!()
    }
}

/// What a command writes.
#[derive(Debug)]
pub struct ExecOutput {}

impl ExecOutput {
    /// The next event; `None` after [`ExecEvent::End`].
    pub async fn next(&mut self) -> Option<ExecEvent> {
        unimplemented!()
    }

    /// The next event in text: no character is cut, not even across events; `None` after the end.
    pub async fn next_text(&mut self) -> Option<ExecText> {
        unimplemented!()
    }
}

/// A cell that runs or waits for its turn. Dropping it interrupts the cell.
#[derive(Debug)]
pub struct CellSession {}

impl CellSession {
    /// The next event; `None` after [`CellEvent::End`].
    pub async fn next(&mut self) -> Option<CellEvent> {
        unimplemented!()
    }

    /// The next event in text; `None` after the end.
    pub async fn next_text(&mut self) -> Option<CellText> {
        unimplemented!()
    }
}

/// A file's bytes as they come.
#[derive(Debug)]
pub struct FileBody {
    /// How many follow, when that is known beforehand.
    pub length: Option<u64>,
}

impl Stream for FileBody {
    type Item = Result<Bytes, Refusal>;

    fn poll_next(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        unimplemented!()
    }
}

/// What a sandbox's commands and cells print from now on.
#[derive(Debug)]
pub struct LogFollow {}

impl LogFollow {
    /// The next text; `None` once the sandbox is no more. A reader that is too slow gets a line that says how much it missed.
    pub async fn next(&mut self) -> Option<String> {
        unimplemented!()
    }
}

/// What happens to a sandbox from now on.
#[derive(Debug)]
pub struct EventFollow {}

impl EventFollow {
    /// The next event; `None` after the one that ended the sandbox. Events that a slow reader missed are skipped.
    pub async fn next(&mut self) -> Option<EventView> {
        unimplemented!()
    }
}

/// A build's log from its start on.
#[derive(Debug)]
pub struct BuildLog {}

impl BuildLog {
    /// The next line; `None` once the build has ended and all lines were read.
    pub async fn next(&mut self) -> Option<String> {
        unimplemented!()
    }
}
