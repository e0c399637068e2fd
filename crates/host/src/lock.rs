//! One owner at a time, across processes.

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
};

use nix::fcntl::{Flock, FlockArg};

/// A lock that is held until this is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct FileLock {
    _flock: Flock<File>,
}

impl FileLock {
    /// Takes the lock on `path`, which is made when missing; `None` when another process has it.
    ///
    /// # Errors
    /// When the file cannot be made or the file system has no locks.
    pub fn try_take(path: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(flock) => Ok(Some(Self { _flock: flock })),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_refused_until_its_holder_drops_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = FileLock::try_take(&path).unwrap().unwrap();
        assert!(FileLock::try_take(&path).unwrap().is_none());
        drop(held);
        assert!(FileLock::try_take(&path).unwrap().is_some());
    }
}
