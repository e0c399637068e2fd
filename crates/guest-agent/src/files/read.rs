//! Reading: plain files and the kernel's own, streamed, with the next piece read while one is sent.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use atoll_protocol::types::{GuestCode, GuestRefusal};
use bytes::Bytes;
use nix::libc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::blocking;
use crate::refusal::{from_io, refuse};

/// Bytes read at once.
const PIECE: usize = 256 * 1024;

/// A file that is being read.
#[derive(Debug)]
pub(crate) struct Reading {
    size: Option<u64>,
    /// Bytes that may still be read.
    left: u64,
    next: Next,
}

#[derive(Debug)]
enum Next {
    /// Read already.
    Here(Bytes, Option<File>),
    /// Being read.
    Coming(JoinHandle<io::Result<(Bytes, File)>>),
    End,
}

/// Opens a file and reads its first piece, so that whatever is wrong with it is known before the answer begins.
pub(crate) async fn open(path: PathBuf, offset: u64, length: Option<u64>) -> Result<Reading, GuestRefusal> {
    blocking(move || {
        let shown = path.display().to_string();
        let failed = |error| from_io(&shown, &error);
        // Without blocking: the other end of a FIFO may never come.
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(&path)
            .map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            let what = if found.is_dir() {
                "a directory"
            } else {
                "a FIFO, socket or device"
            };
            return Err(refuse(
                GuestCode::WrongKind,
                format!("{shown} is {what}, not a plain file"),
            ));
        }
        if offset > 0 {
            file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        }
        let left = length.unwrap_or(u64::MAX);
        let first = read_piece(&mut file, left).map_err(failed)?;
        let claimed = found.len().saturating_sub(offset).min(left);
        // The kernel's own files claim to be empty, or a page long; only what was read says how long they are.
        let (size, file) = if left == 0 || (first.len() as u64) < left.min(PIECE as u64) {
            (Some(first.len() as u64), None)
        } else if claimed >= first.len() as u64 && claimed > 0 {
            (Some(claimed), Some(file))
        } else {
            (None, Some(file))
        };
        Ok(Reading {
            size,
            left: size.map_or(left, |size| left.min(size)),
            next: Next::Here(first, file),
        })
    })
    .await
}

/// Reads until the piece is full or the file ends.
fn read_piece(file: &mut File, left: u64) -> io::Result<Bytes> {
    let wanted = left.min(PIECE as u64);
    let mut piece = Vec::with_capacity(usize::try_from(wanted).unwrap_or(PIECE));
    file.take(wanted).read_to_end(&mut piece)?;
    Ok(piece.into())
}

impl Reading {
    /// Bytes that will come, when that is known.
    pub(crate) fn size(&self) -> Option<u64> {
        self.size
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let (piece, file) = match std::mem::replace(&mut self.next, Next::End) {
            Next::Here(piece, file) => (piece, file),
            Next::Coming(reading) => {
                let (piece, file) = reading.await.map_err(io::Error::other)??;
                (piece, Some(file))
            }
            Next::End => return Ok(None),
        };
        self.left -= (piece.len() as u64).min(self.left);
        if piece.is_empty() {
            return Ok(None);
        }
        let left = self.left;
        if let Some(mut file) = file
            && left > 0
        {
            self.next = Next::Coming(spawn_blocking(move || Ok((read_piece(&mut file, left)?, file))));
        }
        Ok(Some(piece))
    }
}
