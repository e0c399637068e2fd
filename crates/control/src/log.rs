//! What a sandbox's commands and cells printed last: a bounded ring, and followers.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use tokio::sync::broadcast;

use crate::{request::LogStream, text::TextDecoder};

/// Bytes of each stream that are kept for readers who come later: much on one stream pushes nothing out of the other.
const KEPT: usize = 64 * 1024;
/// Pieces that a follower may be behind.
const BEHIND: usize = 64;

/// A piece of output.
#[derive(Debug, Clone)]
struct Piece {
    /// Where it starts, counted over both streams since the server knows the sandbox.
    offset: u64,
    stream: LogStream,
    bytes: Bytes,
}

/// The output of one sandbox. It lives in memory: a restart of the server begins it anew.
#[derive(Debug)]
pub(crate) struct OutputLog {
    ring: Mutex<Ring>,
    followers: broadcast::Sender<Piece>,
}

#[derive(Debug, Default)]
struct Ring {
    stdout: Shelf,
    stderr: Shelf,
    next_offset: u64,
}

/// The last pieces of one stream.
#[derive(Debug, Default)]
struct Shelf {
    pieces: VecDeque<Piece>,
    held: usize,
}

impl Shelf {
    fn push(&mut self, piece: Piece) {
        self.held += piece.bytes.len();
        self.pieces.push_back(piece);
        while self.held > KEPT
            && let Some(oldest) = self.pieces.pop_front()
        {
            self.held -= oldest.bytes.len();
        }
    }
}

impl Ring {
    /// Both streams in the order of arrival.
    fn text(&self, text: &mut LogText) -> String {
        let (mut stdout, mut stderr) = (
            self.stdout.pieces.iter().peekable(),
            self.stderr.pieces.iter().peekable(),
        );
        std::iter::from_fn(|| match (stdout.peek(), stderr.peek()) {
            (Some(one), Some(other)) if other.offset < one.offset => stderr.next(),
            (None, _) => stderr.next(),
            _ => stdout.next(),
        })
        .map(|piece| text.take(piece))
        .collect()
    }
}

impl OutputLog {
    pub(crate) fn new() -> Self {
        Self {
            ring: Mutex::default(),
            followers: broadcast::Sender::new(BEHIND),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what was printed to `stream`.
    pub(crate) fn push(&self, stream: LogStream, bytes: &Bytes) {
        if bytes.is_empty() {
            return;
        }
        let mut ring = self.lock();
        // A copy: the ring must not keep a whole receive buffer alive for a few bytes of it.
        let tail = &bytes[bytes.len().saturating_sub(KEPT)..];
        let skipped = (bytes.len() - tail.len()) as u64;
        let piece = Piece {
            offset: ring.next_offset + skipped,
            stream,
            bytes: Bytes::copy_from_slice(tail),
        };
        ring.next_offset += bytes.len() as u64;
        match stream {
            LogStream::Stderr => ring.stderr.push(piece.clone()),
            LogStream::Stdout | LogStream::Both => ring.stdout.push(piece.clone()),
        }
        // Under the lock, so that a follower who begins now gets each piece once. No follower is no error.
        let _ = self.followers.send(piece);
    }

    /// The last output, as text.
    pub(crate) fn tail(&self, wanted: LogStream) -> String {
        let mut text = LogText::new(wanted);
        let mut tail = self.lock().text(&mut text);
        tail.push_str(&text.finish());
        tail
    }

    /// The last output and then all that comes.
    pub(crate) fn follow(&self, wanted: LogStream) -> LogReader {
        let ring = self.lock();
        let pieces = self.followers.subscribe();
        let mut text = LogText::new(wanted);
        let first = ring.text(&mut text);
        LogReader {
            first: Some(first).filter(|first| !first.is_empty()),
            next_offset: ring.next_offset,
            pieces,
            text,
        }
    }
}

/// One reader of an [`OutputLog`].
#[derive(Debug)]
pub(crate) struct LogReader {
    first: Option<String>,
    next_offset: u64,
    pieces: broadcast::Receiver<Piece>,
    text: LogText,
}

impl LogReader {
    /// The next text that is not empty; `None` when nothing can follow. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<String> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            let piece = match self.pieces.recv().await {
                Ok(piece) => piece,
                Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            let missed = piece.offset.saturating_sub(self.next_offset);
            self.next_offset = piece.offset + piece.bytes.len() as u64;
            let text = self.text.take(&piece);
            if missed > 0 {
                return Some(format!("\n[{missed} bytes not shown: the reader was too slow]\n{text}"));
            }
            if !text.is_empty() {
                return Some(text);
            }
        }
    }
}

/// Decodes the wanted streams, each with a decoder of its own.
#[derive(Debug)]
struct LogText {
    wanted: LogStream,
    stdout: TextDecoder,
    stderr: TextDecoder,
}

impl LogText {
    fn new(wanted: LogStream) -> Self {
        Self {
            wanted,
            stdout: TextDecoder::default(),
            stderr: TextDecoder::default(),
        }
    }

    fn take(&mut self, piece: &Piece) -> String {
        if self.wanted != LogStream::Both && self.wanted != piece.stream {
            return String::new();
        }
        match piece.stream {
            LogStream::Stderr => self.stderr.push(&piece.bytes),
            LogStream::Stdout | LogStream::Both => self.stdout.push(&piece.bytes),
        }
    }

    fn finish(&mut self) -> String {
        self.stdout.finish() + &self.stderr.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(log: &OutputLog, stream: LogStream, text: &str) {
        log.push(stream, &Bytes::from(text.to_owned()));
    }

    #[test]
    fn a_tail_holds_the_wanted_stream_in_order_and_no_more_than_is_kept() {
        let log = OutputLog::new();
        push(&log, LogStream::Stdout, "a");
        push(&log, LogStream::Stderr, "b");
        push(&log, LogStream::Stdout, "c");
        assert_eq!(log.tail(LogStream::Both), "abc");
        assert_eq!(log.tail(LogStream::Stdout), "ac");
        assert_eq!(log.tail(LogStream::Stderr), "b");
        for _ in 0..100 {
            push(&log, LogStream::Stdout, &"x".repeat(3000));
        }
        assert!((KEPT - 3000..=KEPT).contains(&log.tail(LogStream::Stdout).len()));
        push(&log, LogStream::Stdout, &"y".repeat(2 * KEPT));
        assert_eq!(log.tail(LogStream::Stdout), "y".repeat(KEPT));
        assert_eq!(log.tail(LogStream::Stderr), "b");
    }

    #[tokio::test]
    async fn a_follower_gets_the_tail_once_and_then_what_comes() {
        let log = OutputLog::new();
        push(&log, LogStream::Stdout, "old ");
        let mut reader = log.follow(LogStream::Both);
        log.push(LogStream::Stdout, &Bytes::from_static(b"\xe2\x82"));
        log.push(LogStream::Stderr, &Bytes::from_static(b"!"));
        log.push(LogStream::Stdout, &Bytes::from_static(b"\xac"));
        drop(log);
        let mut all = Vec::new();
        while let Some(text) = reader.next().await {
            all.push(text);
        }
        assert_eq!(all, ["old ", "!", "\u{20ac}"]);
    }

    #[tokio::test]
    async fn a_slow_follower_is_told_how_much_it_missed() {
        let log = OutputLog::new();
        let mut reader = log.follow(LogStream::Both);
        for _ in 0..BEHIND + 3 {
            push(&log, LogStream::Stdout, "0123456789");
        }
        let first = reader.next().await.unwrap();
        assert!(first.contains("[30 bytes not shown"), "{first}");
    }
}
