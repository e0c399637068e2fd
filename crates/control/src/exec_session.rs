//! A command as a stream. It always ends with an `End` that says how, the sandbox's own end and a silent agent included.

use std::{collections::VecDeque, time::Duration};

use atoll_guest_link::ExecStdin;
use atoll_model::{ErrorCode, ExecId, Outcome, Refusal, output::StreamSummary};
use atoll_protocol::types::ExecEnd;
use bytes::Bytes;

use crate::{
    guest::Lent,
    refusal,
    request::LogStream,
    tap::{Tap, TextPair, millis, non_empty, summary},
};

/// A command that runs. Dropping `output` ends the command unless it is detached.
#[derive(Debug)]
pub struct ExecSession {
    /// Its id, for signal, resize and attach.
    pub exec_id: ExecId,
    /// Its process id in the sandbox; 0 when it could not be started.
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
    /// It ended, or its end can't be known ([`Outcome::AgentLost`], [`Outcome::SandboxGone`]). Nothing follows.
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

/// A command's standard input. Dropping it ends the input.
#[derive(Debug)]
pub struct ExecInput(Option<ExecStdin>);

impl ExecInput {
    /// Sends bytes; waits while the command does not read. That the command no longer reads is no error, as on a pipe.
    ///
    /// # Errors
    /// `Conflict` when the command takes no input or its input was ended; `AgentLost`.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), Refusal> {
        let closed = || Refusal::new(ErrorCode::Conflict, "this command's standard input is closed");
        let stdin = self.0.as_ref().ok_or_else(closed)?;
        stdin.write(bytes).await.map_err(refusal::of_guest)
    }

    /// Ends standard input.
    pub fn end(&mut self) {
        self.0 = None;
    }
}

/// What a command writes.
#[derive(Debug)]
pub struct ExecOutput {
    source: ExecSource,
    text: TextPair,
    /// The end, while the last characters are still given out.
    held: Option<ExecEnd>,
}

#[derive(Debug)]
enum ExecSource {
    Guest(Box<(atoll_guest_link::ExecSession, Tap)>),
    /// A command that could not be started, told as a shell would.
    Told(VecDeque<ExecEvent>),
    Over,
}

impl ExecSession {
    /// A command of the agent's, which ends it at its `deadline`.
    pub(crate) fn guest(mut session: atoll_guest_link::ExecSession, lent: Lent, deadline: Option<Duration>) -> Self {
        let started = session.started().clone();
        Self {
            exec_id: started.exec_id,
            pid: started.pid,
            input: ExecInput(session.take_stdin()),
            output: ExecOutput::of(ExecSource::Guest(Box::new((
                session,
                Tap::with_deadline(lent, deadline),
            )))),
        }
    }

    /// A command that could not be started, as a shell tells it: a line on standard error and an exit code.
    pub(crate) fn not_started(exit_code: i32, message: &str) -> Self {
        let line = Bytes::from(format!("{message}\n"));
        let end = ExecEnd {
            outcome: Outcome::Ok,
            exit_code: Some(exit_code),
            signal: None,
            duration_ms: 0,
            stdout: StreamSummary::default(),
            stderr: StreamSummary {
                total_bytes: line.len() as u64,
                ..StreamSummary::default()
            },
        };
        let events = VecDeque::from([ExecEvent::Stderr(line), ExecEvent::End(end)]);
        Self {
            exec_id: ExecId::random(),
            pid: 0,
            input: ExecInput(None),
            output: ExecOutput::of(ExecSource::Told(events)),
        }
    }
}

impl ExecOutput {
    fn of(source: ExecSource) -> Self {
        Self {
            source,
            text: TextPair::default(),
            held: None,
        }
    }

    /// The next event; `None` after [`ExecEvent::End`]. Cancel-safe.
    pub async fn next(&mut self) -> Option<ExecEvent> {
        let event = match &mut self.source {
            ExecSource::Over => return None,
            ExecSource::Told(events) => events.pop_front()?,
            ExecSource::Guest(guest) => {
                let (session, tap) = &mut **guest;
                next_event(session, tap).await
            }
        };
        if let ExecEvent::End(end) = &event {
            if let ExecSource::Guest(guest) = &self.source {
                guest
                    .1
                    .lent
                    .control
                    .inner
                    .metrics
                    .execs
                    .observe(millis(end.duration_ms));
            }
            self.source = ExecSource::Over;
        }
        Some(event)
    }

    /// The next event in text: no character is cut, not even across events; `None` after the end. Cancel-safe.
    pub async fn next_text(&mut self) -> Option<ExecText> {
        loop {
            if self.held.is_some() {
                return match self.text.flush() {
                    Some((LogStream::Stderr, text)) => Some(ExecText::Stderr(text)),
                    Some((_, text)) => Some(ExecText::Stdout(text)),
                    None => self.held.take().map(ExecText::End),
                };
            }
            match self.next().await? {
                ExecEvent::Stdout(bytes) => {
                    if let Some(text) = non_empty(self.text.stdout.push(&bytes)) {
                        return Some(ExecText::Stdout(text));
                    }
                }
                ExecEvent::Stderr(bytes) => {
                    if let Some(text) = non_empty(self.text.stderr.push(&bytes)) {
                        return Some(ExecText::Stderr(text));
                    }
                }
                ExecEvent::End(end) => self.held = Some(end),
            }
        }
    }
}

async fn next_event(session: &mut atoll_guest_link::ExecSession, tap: &mut Tap) -> ExecEvent {
    use atoll_guest_link::ExecEvent as Guest;
    let outcome = match tap.race(session.next()).await {
        Ok(Guest::Stdout(bytes)) => return ExecEvent::Stdout(tap.note(LogStream::Stdout, bytes)),
        Ok(Guest::Stderr(bytes)) => return ExecEvent::Stderr(tap.note(LogStream::Stderr, bytes)),
        Ok(Guest::End(end)) => return ExecEvent::End(end),
        Err(outcome) => outcome,
    };
    ExecEvent::End(ExecEnd {
        outcome,
        exit_code: None,
        signal: None,
        duration_ms: tap.elapsed_ms(),
        stdout: summary(tap.stdout),
        stderr: summary(tap.stderr),
    })
}
