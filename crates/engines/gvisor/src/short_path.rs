//! A short name for a folder whose path is long.
//!
//! `runsc` puts a socket below its root, and the kernel limits a socket's path to 107 bytes. State folders may lie deeper than
//! that leaves room for, so such a one is reached through a symbolic link.

use std::{
    fs::{self, DirBuilder},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, symlink},
    path::{Path, PathBuf},
};

/// The longest path of a machines folder that needs no link, in bytes.
const LONGEST: usize = 55;
/// Holds the links. Empty after a boot, when no machine lives either.
const LINKS: &str = "/run/atoll";

/// The folder itself when its path is short enough, and a link to it otherwise.
pub(crate) fn of(folder: &Path) -> io::Result<PathBuf> {
    if folder.as_os_str().len() <= LONGEST {
        return Ok(folder.to_owned());
    }
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    let link = Path::new(LINKS).join(format!("{:016x}", hasher.finish()));
    match DirBuilder::new().mode(0o700).create(LINKS) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => check_ours(Path::new(LINKS))?,
    }
    match symlink(folder, &link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && fs::read_link(&link)? == folder => Ok(link),
        Err(error) => Err(error),
        Ok(()) => Ok(link),
    }
}

/// Nobody else may say where the links lead.
fn check_ours(links: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(links)?;
    if found.is_dir() && found.uid() == own_uid() && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("{} is not a folder of this user alone", links.display()),
    ))
}

/// The user of this process, by what the kernel says of its own folder.
fn own_uid() -> u32 {
    fs::metadata("/proc/self").map_or(u32::MAX, |own| own.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_path_is_left_alone() {
        let short = Path::new("/var/lib/atoll/machines");
        assert_eq!(of(short).unwrap(), short);
    }
}
