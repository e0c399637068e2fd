//! Files of a sandbox. Paths are absolute and resolved by the agent, inside the guest.

use std::error::Error;

use atoll_model::{Refusal, SandboxId, Scope};
use atoll_protocol::types::{FileInfo, FileList, FileWritten};
use bytes::Bytes;
use futures_util::Stream;

use crate::{Caller, Control, FileBody, check::check_path, guest::Counts};

/// Entries of one page of a directory.
const MAX_PAGE: u32 = 10_000;

impl Control {
    /// Reads a file, or `length` bytes of it from `offset` on, as a stream.
    ///
    /// # Errors
    /// `NotFound`; `InvalidRequest` for what is no plain file. Once the stream runs, its error says that it is not whole.
    pub async fn file_read(
        &self,
        caller: &Caller,
        id: SandboxId,
        path: &str,
        offset: u64,
        length: Option<u64>,
    ) -> Result<FileBody, Refusal> {
        check_path(path)?;
        let lent = self.lend(caller, id, Scope::ReadOnly, Counts::AsUse).await?;
        let read = lent.race(lent.link.file_read(path, offset, length)).await?;
        Ok(FileBody::new(read, lent))
    }

    /// Writes a file from a stream as it comes. It appears complete under its name, or not at all when the body breaks off.
    /// Parents are made. `mode` are permission bits; absent, those of the file it replaces, or 0644.
    ///
    /// # Errors
    /// `DiskFull`; `InvalidRequest` when the body failed or a directory is there.
    pub async fn file_write<S, E>(
        &self,
        caller: &Caller,
        id: SandboxId,
        path: &str,
        mode: Option<u32>,
        body: S,
    ) -> Result<FileWritten, Refusal>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        check_path(path)?;
        if mode.is_some_and(|mode| mode > 0o7777) {
            return Err(Refusal::field("mode", "mode must be at most 7777 (octal)"));
        }
        let lent = self.lend(caller, id, Scope::Full, Counts::AsUse).await?;
        lent.race(lent.link.file_write(path, mode, body)).await
    }

    /// One entry; a symbolic link is followed.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn file_stat(&self, caller: &Caller, id: SandboxId, path: &str) -> Result<FileInfo, Refusal> {
        check_path(path)?;
        let lent = self.lend(caller, id, Scope::ReadOnly, Counts::AsLook).await?;
        lent.prompt(lent.link.file_stat(path)).await
    }

    /// A page of a directory: at most `limit` entries (1 to 10000) whose names come after `after`.
    ///
    /// # Errors
    /// `NotFound`; `InvalidRequest` for what is no directory.
    pub async fn file_list(
        &self,
        caller: &Caller,
        id: SandboxId,
        path: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<FileList, Refusal> {
        check_path(path)?;
        if !(1..=MAX_PAGE).contains(&limit) {
            return Err(Refusal::field(
                "limit",
                format!("limit must be 1 to {MAX_PAGE}, not {limit}"),
            ));
        }
        let lent = self.lend(caller, id, Scope::ReadOnly, Counts::AsLook).await?;
        lent.race(lent.link.file_list(path, after, limit)).await
    }

    /// Removes an entry, a directory with all it holds.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn file_remove(&self, caller: &Caller, id: SandboxId, path: &str) -> Result<(), Refusal> {
        check_path(path)?;
        let lent = self.lend(caller, id, Scope::Full, Counts::AsUse).await?;
        lent.race(lent.link.file_remove(path)).await
    }

    /// Renames; replaces a file that is at the new path.
    ///
    /// # Errors
    /// `NotFound` when there is nothing at the old path; `InvalidRequest` when a directory is at the new one.
    pub async fn file_move(&self, caller: &Caller, id: SandboxId, from: &str, to: &str) -> Result<(), Refusal> {
        check_path(from)?;
        check_path(to)?;
        let lent = self.lend(caller, id, Scope::Full, Counts::AsUse).await?;
        lent.race(lent.link.file_move(from, to)).await
    }

    /// Makes a directory and its parents; that it is there already is no error.
    ///
    /// # Errors
    /// `InvalidRequest` when a file is in the way.
    pub async fn file_mkdir(&self, caller: &Caller, id: SandboxId, path: &str) -> Result<(), Refusal> {
        check_path(path)?;
        let lent = self.lend(caller, id, Scope::Full, Counts::AsUse).await?;
        lent.race(lent.link.file_mkdir(path)).await
    }
}
