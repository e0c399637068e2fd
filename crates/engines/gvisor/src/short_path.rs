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

/// A path of a folder that is short enough.
#[derive(Debug)]
pub(crate) struct ShortPath {
    path: PathBuf,
    /// The folder that the path leads to, when it is a link.
    target: Option<PathBuf>,
}

impl ShortPath {
    /// The folder itself when its path is short enough, and a link to it otherwise.
    pub(crate) fn to(folder: &Path) -> io::Result<Self> {
        if folder.as_os_str().len() <= LONGEST {
            return Ok(Self {
                path: folder.to_owned(),
                target: None,
            });
        }
        let mut hasher = DefaultHasher::new();
        folder.hash(&mut hasher);
        let links = Path::new(LINKS);
        match DirBuilder::new().mode(0o700).create(links) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => check_ours(links)?,
        }
        remove_dangling(links)?;
        let path = links.join(format!("{:016x}", hasher.finish()));
        match symlink(folder, &path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && fs::read_link(&path)? == folder => {}
            other => other?,
        }
        Ok(Self {
            path,
            target: Some(folder.to_owned()),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ShortPath {
    /// Removes the link, unless it leads to machines that live on.
    fn drop(&mut self) {
        let Some(target) = &self.target else {
            return;
        };
        let in_use = fs::read_dir(target).is_ok_and(|mut machines| machines.next().is_some());
        if !in_use && let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, link = %self.path.display(), "a link could not be removed");
        }
    }
}

/// Removes links of servers that were killed, and whose folders are gone since.
fn remove_dangling(links: &Path) -> io::Result<()> {
    for entry in fs::read_dir(links)? {
        let path = entry?.path();
        if path.is_symlink() && !path.exists() {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
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
        assert_eq!(ShortPath::to(short).unwrap().path(), short);
    }

    #[test]
    fn a_link_lives_as_long_as_there_are_machines_behind_it() {
        let top = tempfile::tempdir().unwrap();
        let machines = top.path().join("m".repeat(LONGEST));
        fs::create_dir_all(machines.join("one")).unwrap();
        let link = ShortPath::to(&machines).unwrap().path().to_owned();
        assert_eq!(fs::read_link(&link).unwrap(), machines);
        fs::remove_dir(machines.join("one")).unwrap();
        drop(ShortPath::to(&machines).unwrap());
        assert!(!link.is_symlink());
    }

    #[test]
    fn a_link_whose_folder_is_gone_is_removed() {
        let links = tempfile::tempdir().unwrap();
        symlink("/nowhere/at/all", links.path().join("gone")).unwrap();
        symlink("/", links.path().join("there")).unwrap();
        remove_dangling(links.path()).unwrap();
        assert!(!links.path().join("gone").is_symlink());
        assert!(links.path().join("there").is_symlink());
    }
}
