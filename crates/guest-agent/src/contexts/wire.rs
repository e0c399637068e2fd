//! Messages between the agent and a context driver: `{length u32 big-endian}{JSON}` on a Unix stream socket, descriptors
//! beside the first byte. The table of messages is in `docs/design/0001-foundation.md`.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice},
    os::{
        fd::{AsRawFd, BorrowedFd, RawFd},
        unix::net::UnixStream as StdStream,
    },
};

use atoll_protocol::{
    event::Kind,
    types::{CellError, GuestCode},
};
use bytes::{Buf, Bytes, BytesMut};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde::{Deserialize, Deserializer, Serialize};
use tokio::{
    io::{AsyncWriteExt, Interest},
    net::UnixStream,
    task::coop::consume_budget,
};

use crate::output::{Spill, SpillFile};

const HEADER: usize = 4;
/// The longest message that is held, in bytes. A longer one goes to a file.
const LONGEST: usize = 8 << 20;
/// How much of such a one is looked at.
const START: usize = 256;
/// Room for one reading, in bytes.
const READ: usize = 8 * 1024;
/// What may wait for the other end to take it, in bytes, before more is refused. Above the longest code of a cell.
const MOST_WAITING: usize = 32 << 20;

/// What the agent says.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(super) enum Request<'a> {
    Warm {
        code: &'a str,
    },
    Thaw {
        entropy: &'a str,
        env: &'a BTreeMap<String, String>,
    },
    Fork {
        context: &'a str,
        cwd: &'a str,
        env: &'a BTreeMap<String, String>,
        entropy: &'a str,
    },
    Run {
        cell: u64,
        code: &'a str,
        env: &'a BTreeMap<String, String>,
    },
}

/// What a zygote says.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum ZygoteEvent {
    Ready,
    Warmed,
    Thawed,
    Failed {
        message: String,
        #[serde(default = "internal")]
        code: GuestCode,
    },
    Forked {
        pid: i32,
    },
    Exited {
        pid: i32,
        status: i32,
    },
}

fn internal() -> GuestCode {
    GuestCode::Internal
}

/// What a context says.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum ContextEvent {
    Result(ResultEvent),
    Done(DoneEvent),
}

/// A result.
#[derive(Debug, Deserialize)]
pub(super) struct ResultEvent {
    pub(super) cell: u64,
    pub(super) bundle: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    pub(super) is_last_expression: bool,
    #[serde(default)]
    pub(super) display_id: Option<String>,
}

/// The end of a cell.
#[derive(Debug, Deserialize)]
pub(super) struct DoneEvent {
    pub(super) cell: u64,
    pub(super) status: DoneStatus,
    #[serde(default, deserialize_with = "exit_code")]
    pub(super) exit_code: i32,
    #[serde(default)]
    pub(super) error: Option<CellError>,
}

/// 0 to 255 as it is; anything else is what no process can end with, and told as 255.
fn exit_code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let code = serde_json::Number::deserialize(deserializer)?;
    Ok(code
        .as_u64()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
        .into())
}

/// How a cell ended, as its interpreter sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DoneStatus {
    Ok,
    Error,
    Exit,
    Interrupted,
}

/// A message that arrived.
#[derive(Debug)]
pub(super) enum Incoming {
    Whole(Bytes),
    /// It was longer than is held.
    TooLong {
        length: u64,
        /// Its first bytes.
        start: Bytes,
        /// Where all of it lies, if there was room.
        path: Option<String>,
    },
}

/// One end of a control socket.
#[derive(Debug)]
pub(super) struct Channel {
    socket: UnixStream,
    buffer: BytesMut,
    long: Option<Long>,
    /// What the other end has yet to take.
    outgoing: BytesMut,
}

/// A message that is too long, half way through.
#[derive(Debug)]
struct Long {
    length: u64,
    left: u64,
    start: Bytes,
    file: Option<SpillFile>,
}

impl Channel {
    pub(super) fn new(socket: StdStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: UnixStream::from_std(socket)?,
            buffer: BytesMut::new(),
            long: None,
            outgoing: BytesMut::new(),
        })
    }

    /// Leaves a message to [`receive`](Self::receive), which sends it as the other end takes it: one that is stopped holds up
    /// nobody. An error: it has taken nothing for long.
    pub(super) fn post(&mut self, request: &Request<'_>) -> io::Result<()> {
        if self.outgoing.len() > MOST_WAITING {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        append(&mut self.outgoing, request)
    }

    /// Sends a message and, with its first byte, descriptors. Not while anything that was posted waits.
    pub(super) async fn send(&mut self, request: &Request<'_>, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut message = BytesMut::new();
        append(&mut message, request)?;
        let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let socket = &self.socket;
        let first = || {
            let rights = [ControlMessage::ScmRights(&raw)];
            let rights = if raw.is_empty() { &[][..] } else { &rights[..] };
            let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            Ok(sendmsg::<()>(
                socket.as_raw_fd(),
                &[IoSlice::new(&message)],
                rights,
                flags,
                None,
            )?)
        };
        let sent = socket.async_io(Interest::WRITABLE, first).await?;
        message.advance(sent);
        self.socket.write_all(&message).await
    }

    /// The next message; `None` when the other end closed. Sends meanwhile what was posted. Cancel-safe.
    pub(super) async fn receive(&mut self, spill: &Spill) -> io::Result<Option<Incoming>> {
        loop {
            // One who says more than can be looked at leaves everybody else their turn.
            consume_budget().await;
            if let Some(incoming) = self.next_buffered(spill) {
                return Ok(Some(incoming));
            }
            self.flush()?;
            let wanted = if self.outgoing.is_empty() {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            };
            if !self.socket.ready(wanted).await?.is_readable() {
                continue;
            }
            self.buffer.reserve(READ);
            match self.socket.try_read_buf(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends what the other end takes now.
    fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.socket.try_write(&self.outgoing) {
                Ok(count) => self.outgoing.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        // Do not hold on to the memory of a large one.
        self.outgoing = BytesMut::new();
        Ok(())
    }

    fn next_buffered(&mut self, spill: &Spill) -> Option<Incoming> {
        if let Some(long) = &mut self.long {
            long.take(&mut self.buffer);
            return (long.left == 0).then(|| self.long.take()).flatten().map(Long::finish);
        }
        let header: [u8; HEADER] = *self.buffer.first_chunk()?;
        let length = u32::from_be_bytes(header) as usize;
        if length > LONGEST {
            if self.buffer.len() < HEADER + START {
                return None;
            }
            self.buffer.advance(HEADER);
            self.long = Some(Long {
                length: length as u64,
                left: length as u64,
                start: Bytes::copy_from_slice(&self.buffer[..START]),
                file: spill.create(Kind::Json).ok(),
            });
            return self.next_buffered(spill);
        }
        if self.buffer.len() < HEADER + length {
            self.buffer.reserve(HEADER + length - self.buffer.len());
            return None;
        }
        self.buffer.advance(HEADER);
        let message = self.buffer.split_to(length).freeze();
        if self.buffer.is_empty() {
            // Do not hold on to the memory of a large one.
            self.buffer = BytesMut::new();
        }
        Some(Incoming::Whole(message))
    }
}

fn append(out: &mut BytesMut, request: &Request<'_>) -> io::Result<()> {
    let body = serde_json::to_vec(request).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    out.reserve(HEADER + body.len());
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&body);
    Ok(())
}

impl Long {
    fn take(&mut self, buffer: &mut BytesMut) {
        let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let piece = buffer.split_to(count);
        self.left -= count as u64;
        if let Some(file) = &mut self.file
            && file.write(&piece).is_err()
        {
            self.file = None;
        }
    }

    fn finish(self) -> Incoming {
        Incoming::TooLong {
            length: self.length,
            start: self.start,
            path: self.file.map(SpillFile::keep),
        }
    }
}
