//! Files, for the host. Paths are resolved inside the machine, which is the only wall that matters: the agent is root in it.
//!
//! Every call to the file system runs on a thread of its own, so that a slow one delays nobody.

mod directory;
mod read;
mod rename;
mod write;

use std::path::PathBuf;

use atoll_protocol::types::{GuestCode, GuestRefusal};
use tokio::task::spawn_blocking;

pub(crate) use self::{
    directory::{list, make_directory, remove, stat},
    read::open,
    rename::rename,
    write::write,
};
use crate::refusal::refuse;

/// The longest path that the kernel takes.
const LONGEST_PATH: usize = 4096;

/// A path from a caller.
pub(crate) fn checked(path: &str) -> Result<PathBuf, GuestRefusal> {
    if !path.starts_with('/') {
        return Err(refuse(GuestCode::Invalid, "path must be absolute"));
    }
    if path.contains('\0') {
        return Err(refuse(GuestCode::Invalid, "path must not hold a NUL byte"));
    }
    if path.len() >= LONGEST_PATH {
        return Err(refuse(
            GuestCode::Invalid,
            format!("path must be shorter than {LONGEST_PATH} bytes"),
        ));
    }
    Ok(PathBuf::from(path))
}

/// Runs a call that may take long.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, GuestRefusal> + Send + 'static,
) -> Result<T, GuestRefusal> {
    let failed = |error| refuse(GuestCode::Internal, format!("a file system call did not end: {error}"));
    spawn_blocking(work).await.map_err(failed)?
}
