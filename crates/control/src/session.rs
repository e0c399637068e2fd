//! Calls that stream: each always ends with an `End` that says how, the sandbox's own end and a silent agent included.

use std::{collections::VecDeque, fmt, pin::Pin, task, time::Instant};

use atoll_guest_link::{ExecStdin, GuestError};
use atoll_model::{ErrorCode, ExecId, GoneReason, Outcome, Refusal, output::StreamSummary};
use atoll_protocol::types::{self, CellEnd, ExecEnd};
use bytes::Bytes;
use futures_util::Stream;

use crate::{
    guest::Lent,
    request::{CellResult, LogStream},
    text::TextDecoder,
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

/// [`ExecEvent`] in text; see [`TextDecoder`].
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
        stdin.write(bytes).await.map_err(crate::refusal::of_guest)
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
    pub(crate) fn guest(mut session: atoll_guest_link::ExecSession, lent: Lent) -> Self {
        let started = session.started().clone();
        Self {
            exec_id: started.exec_id,
            pid: started.pid,
            input: ExecInput(session.take_stdin()),
            output: ExecOutput::of(ExecSource::Guest(Box::new((session, Tap::new(lent))))),
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
                tap.exec_event(session).await
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

/// A cell that runs or waits for its turn. Dropping it interrupts the cell.
#[derive(Debug)]
pub struct CellSession {
    guest: Option<Box<(atoll_guest_link::CellSession, Tap)>>,
    text: TextPair,
    held: Option<CellEnd>,
}

impl CellSession {
    pub(crate) fn new(session: atoll_guest_link::CellSession, lent: Lent) -> Self {
        Self {
            guest: Some(Box::new((session, Tap::new(lent)))),
            text: TextPair::default(),
            held: None,
        }
    }

    /// The next event; `None` after [`CellEvent::End`]. Cancel-safe.
    pub async fn next(&mut self) -> Option<CellEvent> {
        let (session, tap) = &mut **self.guest.as_mut()?;
        let event = tap.cell_event(session).await;
        if let CellEvent::End(end) = &event {
            tap.lent.control.inner.metrics.cells.observe(millis(end.duration_ms));
            self.guest = None;
        }
        Some(event)
    }

    /// The next event in text; `None` after the end. Cancel-safe.
    pub async fn next_text(&mut self) -> Option<CellText> {
        loop {
            if self.held.is_some() {
                return match self.text.flush() {
                    Some((LogStream::Stderr, text)) => Some(CellText::Stderr(text)),
                    Some((_, text)) => Some(CellText::Stdout(text)),
                    None => self.held.take().map(CellText::End),
                };
            }
            match self.next().await? {
                CellEvent::Stdout(bytes) => {
                    if let Some(text) = non_empty(self.text.stdout.push(&bytes)) {
                        return Some(CellText::Stdout(text));
                    }
                }
                CellEvent::Stderr(bytes) => {
                    if let Some(text) = non_empty(self.text.stderr.push(&bytes)) {
                        return Some(CellText::Stderr(text));
                    }
                }
                CellEvent::Result(result) => return Some(CellText::Result(result)),
                CellEvent::End(end) => self.held = Some(end),
            }
        }
    }
}

/// Sits between the agent's stream and the caller: counts, logs, and ends the stream when the sandbox or the agent does.
#[derive(Debug)]
struct Tap {
    lent: Lent,
    started: Instant,
    stdout: u64,
    stderr: u64,
}

impl Tap {
    fn new(lent: Lent) -> Self {
        Self {
            lent,
            started: Instant::now(),
            stdout: 0,
            stderr: 0,
        }
    }

    async fn exec_event(&mut self, session: &mut atoll_guest_link::ExecSession) -> ExecEvent {
        use atoll_guest_link::ExecEvent as Guest;
        let outcome = match self.race(session.next()).await {
            Ok(Guest::Stdout(bytes)) => return ExecEvent::Stdout(self.note(LogStream::Stdout, bytes)),
            Ok(Guest::Stderr(bytes)) => return ExecEvent::Stderr(self.note(LogStream::Stderr, bytes)),
            Ok(Guest::End(end)) => return ExecEvent::End(end),
            Err(outcome) => outcome,
        };
        ExecEvent::End(ExecEnd {
            outcome,
            exit_code: None,
            signal: None,
            duration_ms: self.elapsed_ms(),
            stdout: summary(self.stdout),
            stderr: summary(self.stderr),
        })
    }

    async fn cell_event(&mut self, session: &mut atoll_guest_link::CellSession) -> CellEvent {
        use atoll_guest_link::CellOutput as Guest;
        let outcome = match self.race(session.next()).await {
            Ok(Guest::Stdout(bytes)) => return CellEvent::Stdout(self.note(LogStream::Stdout, bytes)),
            Ok(Guest::Stderr(bytes)) => return CellEvent::Stderr(self.note(LogStream::Stderr, bytes)),
            Ok(Guest::Event(types::CellEvent::Result {
                bundle,
                is_last_expression,
            })) => {
                return CellEvent::Result(CellResult {
                    bundle,
                    is_last_expression,
                });
            }
            Ok(Guest::Event(types::CellEvent::Done(end))) => return CellEvent::End(end),
            Err(outcome) => outcome,
        };
        CellEvent::End(CellEnd {
            outcome,
            error: None,
            exit_code: UNKNOWN_EXIT,
            execution_count: 0,
            duration_ms: self.elapsed_ms(),
            stdout: summary(self.stdout),
            stderr: summary(self.stderr),
        })
    }

    /// The next item, or how the stream ended without its own end.
    async fn race<T>(&self, next: impl Future<Output = Result<Option<T>, GuestError>>) -> Result<T, Outcome> {
        let error = tokio::select! {
            biased;
            reason = self.lent.gone() => return Err(Outcome::SandboxGone { reason }),
            item = next => match item {
                Ok(Some(item)) => return Ok(item),
                // The agent's streams say their end before they end; this is one that did not.
                Ok(None) => GuestError::Lost { detail: "a stream without an end".to_owned() },
                Err(error) => error,
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

    fn note(&mut self, stream: LogStream, bytes: Bytes) -> Bytes {
        self.lent.live.log.push(stream, &bytes);
        match stream {
            LogStream::Stderr => self.stderr += bytes.len() as u64,
            LogStream::Stdout | LogStream::Both => self.stdout += bytes.len() as u64,
        }
        bytes
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The exit code of a cell whose end is not known; no interpreter ends with it.
const UNKNOWN_EXIT: i32 = -1;

/// What is known of a stream that broke off: at least so much was written.
fn summary(total_bytes: u64) -> StreamSummary {
    StreamSummary {
        total_bytes,
        ..StreamSummary::default()
    }
}

fn millis(millis: u64) -> std::time::Duration {
    std::time::Duration::from_millis(millis)
}

fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// The decoders of the two streams.
#[derive(Debug, Default)]
struct TextPair {
    stdout: TextDecoder,
    stderr: TextDecoder,
}

impl TextPair {
    /// What either decoder still holds, now that nothing follows; `None` once both are empty.
    fn flush(&mut self) -> Option<(LogStream, String)> {
        let stdout = non_empty(self.stdout.finish()).map(|text| (LogStream::Stdout, text));
        stdout.or_else(|| non_empty(self.stderr.finish()).map(|text| (LogStream::Stderr, text)))
    }
}

/// A file's bytes as they come.
pub struct FileBody {
    /// How many follow, when that is known beforehand.
    pub length: Option<u64>,
    bytes: Pin<Box<dyn Stream<Item = Result<Bytes, Refusal>> + Send>>,
}

impl FileBody {
    pub(crate) fn new(read: atoll_guest_link::FileRead, lent: Lent) -> Self {
        let length = read.size();
        // After an error there is nothing: a reader must see that the file is not whole.
        let bytes = futures_util::stream::unfold(Some((read, lent)), async |state| {
            let (mut read, lent) = state?;
            let next = lent.race(read.next()).await;
            match next.transpose()? {
                Ok(bytes) => Some((Ok(bytes), Some((read, lent)))),
                Err(refusal) => Some((Err(refusal), None)),
            }
        });
        Self {
            length,
            bytes: Box::pin(bytes),
        }
    }
}

impl fmt::Debug for FileBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileBody")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl Stream for FileBody {
    type Item = Result<Bytes, Refusal>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> task::Poll<Option<Self::Item>> {
        self.bytes.as_mut().poll_next(context)
    }
}
