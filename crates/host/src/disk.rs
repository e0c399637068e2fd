//! How full the host's file systems are.

use std::{io, path::Path};

use nix::sys::statvfs::statvfs;

/// Room of the file system that holds a path, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total: u64,
    /// What an ordinary process may still write.
    pub free: u64,
}

/// Room of the file system that holds `path`.
///
/// # Errors
/// When there is no such path.
pub fn space(path: &Path) -> io::Result<Space> {
    let stat = statvfs(path)?;
    let block = stat.fragment_size();
    Ok(Space {
        total: stat.blocks() * block,
        free: stat.blocks_available() * block,
    })
}

/// Bytes that the file or directory tree at `path` holds on its disk (blocks, not lengths; files with two names count twice).
/// What disappears while it is counted is left out.
///
/// # Errors
/// When a directory cannot be read for another reason than that it is gone.
pub fn tree_bytes(path: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let mut total = 0;
    let mut waiting = vec![path.to_owned()];
    while let Some(next) = waiting.pop() {
        let metadata = match next.symlink_metadata() {
            Ok(metadata) => metadata,
            Err(error) if gone(&error) => continue,
            Err(error) => return Err(error),
        };
        total += metadata.blocks() * 512;
        if !metadata.is_dir() {
            continue;
        }
        match std::fs::read_dir(&next) {
            Ok(entries) => {
                for entry in entries {
                    waiting.push(entry?.path());
                }
            }
            Err(error) if gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}
