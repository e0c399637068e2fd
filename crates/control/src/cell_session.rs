//! A cell as a stream. It always ends with an `End` that says how, the sandbox's own end and a silent agent included.

use atoll_protocol::types::{self, CellEnd};
use bytes::Bytes;

use crate::{
    guest::Lent,
    request::{CellResult, LogStream},
    tap::{Tap, TextPair, millis, non_empty, summary},
};

/// The exit code of a cell whose end is not known; no interpreter ends with it.
const UNKNOWN_EXIT: i32 = -1;

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
        let event = next_event(session, tap).await;
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

async fn next_event(session: &mut atoll_guest_link::CellSession, tap: &mut Tap) -> CellEvent {
    use atoll_guest_link::CellOutput as Guest;
    let outcome = match tap.race(session.next()).await {
        Ok(Guest::Stdout(bytes)) => return CellEvent::Stdout(tap.note(LogStream::Stdout, bytes)),
        Ok(Guest::Stderr(bytes)) => return CellEvent::Stderr(tap.note(LogStream::Stderr, bytes)),
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
        duration_ms: tap.elapsed_ms(),
        stdout: summary(tap.stdout),
        stderr: summary(tap.stderr),
    })
}
