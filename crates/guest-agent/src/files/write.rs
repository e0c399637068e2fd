//! Writing: a file appears whole under its name or not at all.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, IoSlice, Write},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

use atoll_protocol::types::{FileWritten, GuestCode, GuestRefusal};
use bytes::Bytes;

use super::{
    blocking,
    directory::{give_to_owner_of_parent, make_folders},
};
use crate::{
    refusal::{from_io, refuse},
    server::{Body, Gone},
};

const DEFAULT_MODE: u32 = 0o644;
/// Bytes gathered for one write.
const BATCH: usize = 512 * 1024;
const LONGEST_LINK_CHAIN: usize = 40;

/// A file beside its target, until it takes its place. Removed when dropped before that.
#[derive(Debug)]
struct Temporary {
    file: File,
    path: PathBuf,
    target: PathBuf,
    placed: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.placed {
            // Nothing more can be done about it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes a file from the body of a call. A caller who leaves, or a disk that fills up, leaves nothing behind.
pub(crate) async fn write(
    path: PathBuf,
    mode: Option<u32>,
    body: &mut Body,
) -> Result<Result<FileWritten, GuestRefusal>, Gone> {
    let shown = path.display().to_string();
    let mut temporary = match blocking(move || begin(&path, mode)).await {
        Ok(temporary) => temporary,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let mut bytes = 0;
    while let Some(first) = body.chunk().await? {
        let mut batch = vec![first];
        let mut length = batch[0].len();
        while length < BATCH
            && let Some(chunk) = body.chunk_now().await?
        {
            length += chunk.len();
            batch.push(chunk);
        }
        bytes += length as u64;
        let name = shown.clone();
        let written = blocking(move || {
            write_batch(&mut temporary.file, batch).map_err(|error| from_io(&name, &error))?;
            Ok(temporary)
        });
        temporary = match written.await {
            Ok(temporary) => temporary,
            Err(refusal) => return Ok(Err(refusal)),
        };
    }
    Ok(blocking(move || place(temporary, &shown).map(|()| FileWritten { bytes })).await)
}

fn write_batch(file: &mut File, batch: Vec<Bytes>) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = batch.iter().map(|chunk| IoSlice::new(chunk)).collect();
    let mut slices = &mut slices[..];
    // Drops empty ones at the start; the end of a body is one.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match file.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut slices, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes the file beside its target, with the owner and permissions that it will have.
fn begin(path: &Path, mode: Option<u32>) -> Result<Temporary, GuestRefusal> {
    let target = follow_links(path)?;
    let shown = path.display().to_string();
    let failed = |error| from_io(&shown, &error);
    let (Some(folder), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(refuse(GuestCode::WrongKind, format!("{shown} is a directory")));
    };
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(refuse(GuestCode::WrongKind, format!("{shown} names a directory")));
    }
    let replaced = fs::symlink_metadata(&target).ok();
    if let Some(found) = &replaced
        && !found.is_file()
    {
        let kind = found.file_type();
        let special = kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device();
        let what = if special {
            "a FIFO, socket or device"
        } else {
            "a directory"
        };
        return Err(refuse(
            GuestCode::WrongKind,
            format!("{shown} is {what}, not a plain file"),
        ));
    }
    make_folders(folder)?;
    let random = getrandom::u64().map_err(|error| refuse(GuestCode::Internal, error.to_string()))?;
    // The name's own length may be all that the file system takes.
    let start: String = name.to_string_lossy().chars().take(50).collect();
    let path = folder.join(format!(".{start}.{random:016x}.part"));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    let temporary = Temporary {
        file,
        path,
        target: target.clone(),
        placed: false,
    };
    match &replaced {
        Some(found) => {
            // An agent that may not give files away owns everything anyway.
            let _ = fchown(&temporary.file, Some(found.uid()), Some(found.gid()));
        }
        None => give_to_owner_of_parent(&temporary.path),
    }
    let kept = replaced.map(|found| found.permissions().mode() & 0o7777);
    let mode = mode.or(kept).unwrap_or(DEFAULT_MODE);
    temporary
        .file
        .set_permissions(Permissions::from_mode(mode))
        .map_err(failed)?;
    Ok(temporary)
}

fn place(mut temporary: Temporary, shown: &str) -> Result<(), GuestRefusal> {
    fs::rename(&temporary.path, &temporary.target).map_err(|error| from_io(shown, &error))?;
    temporary.placed = true;
    Ok(())
}

/// Where a write to this path goes: through links, as if it were opened, to a file that need not exist.
fn follow_links(path: &Path) -> Result<PathBuf, GuestRefusal> {
    let mut path = path.to_owned();
    for _ in 0..LONGEST_LINK_CHAIN {
        let Ok(target) = fs::read_link(&path) else {
            return Ok(path);
        };
        path = match path.parent() {
            Some(folder) => folder.join(target),
            None => target,
        };
    }
    let message = format!("{}: too many links, one after the other", path.display());
    Err(refuse(GuestCode::WrongKind, message))
}
