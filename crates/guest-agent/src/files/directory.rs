//! Entries: look at them, list them, make and remove them.

use std::{
    collections::BinaryHeap,
    ffi::OsString,
    fs::{self, Metadata},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use atoll_protocol::types::{FileInfo, FileKind, FileList, GuestCode, GuestRefusal};

use super::blocking;
use crate::refusal::{from_io, refuse};

const DEFAULT_PAGE: u64 = 1000;
const LONGEST_PAGE: u64 = 10_000;

fn info(name: String, found: &Metadata) -> FileInfo {
    let kind = found.file_type();
    FileInfo {
        name,
        kind: if kind.is_file() {
            FileKind::File
        } else if kind.is_dir() {
            FileKind::Directory
        } else if kind.is_symlink() {
            FileKind::Symlink
        } else {
            FileKind::Other
        },
        size: found.len(),
        mode: found.permissions().mode() & 0o7777,
        mtime: found.mtime(),
    }
}

/// One entry; a link that leads nowhere is itself the answer.
pub(crate) async fn stat(path: PathBuf) -> Result<FileInfo, GuestRefusal> {
    blocking(move || {
        let found = fs::metadata(&path).or_else(|_| fs::symlink_metadata(&path));
        let found = found.map_err(|error| from_io(&path.display().to_string(), &error))?;
        let name = path.file_name().map_or("/".into(), |name| name.to_string_lossy());
        Ok(info(name.into_owned(), &found))
    })
    .await
}

/// A page of a directory. Reads all names and keeps only those of the page, so that memory does not grow with the folder.
pub(crate) async fn list(path: PathBuf, after: Option<String>, limit: Option<u64>) -> Result<FileList, GuestRefusal> {
    let limit = limit.unwrap_or(DEFAULT_PAGE);
    if limit == 0 || limit > LONGEST_PAGE {
        return Err(refuse(GuestCode::Invalid, format!("limit must be 1 to {LONGEST_PAGE}")));
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    blocking(move || {
        let failed = |error| from_io(&path.display().to_string(), &error);
        let mut page: BinaryHeap<(String, OsString)> = BinaryHeap::with_capacity(limit + 2);
        for entry in fs::read_dir(&path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let shown = name.to_string_lossy().into_owned();
            if after.as_ref().is_some_and(|after| shown <= *after) {
                continue;
            }
            // One more than the page, to know whether there is another.
            page.push((shown, name));
            if page.len() > limit + 1 {
                page.pop();
            }
        }
        let more = page.len() > limit;
        let mut names = page.into_sorted_vec();
        names.truncate(limit);
        let next = if more {
            names.last().map(|(shown, _)| shown.clone())
        } else {
            None
        };
        // An entry that was removed meanwhile is none.
        let entries = names.into_iter().filter_map(|(shown, name)| {
            let found = fs::symlink_metadata(path.join(name)).ok()?;
            Some(info(shown, &found))
        });
        Ok(FileList {
            entries: entries.collect(),
            next,
        })
    })
    .await
}

/// Removes an entry; a link itself, never what it leads to.
pub(crate) async fn remove(path: PathBuf) -> Result<(), GuestRefusal> {
    blocking(move || {
        if path
            .components()
            .all(|part| part.as_os_str() == "/" || part.as_os_str() == "." || part.as_os_str() == "..")
        {
            return Err(refuse(GuestCode::Invalid, "the root directory cannot be removed"));
        }
        let removed = fs::symlink_metadata(&path).and_then(|found| {
            if found.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            }
        });
        removed.map_err(|error| from_io(&path.display().to_string(), &error))
    })
    .await
}

/// Makes a directory and its parents.
pub(crate) async fn make_directory(path: PathBuf) -> Result<(), GuestRefusal> {
    blocking(move || make_folders(&path)).await
}

/// Makes a folder and its parents where they are missing. Each belongs to whom the folder it lies in belongs to, so that
/// what is put into a user's folder is that user's.
pub(super) fn make_folders(path: &Path) -> Result<(), GuestRefusal> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => {
            let message = format!("{}: there is a file where a directory is wanted", path.display());
            return Err(refuse(GuestCode::WrongKind, message));
        }
        Err(_) => {}
    }
    if let Some(parent) = path.parent() {
        make_folders(parent)?;
    }
    match fs::create_dir(path) {
        Ok(()) => {
            give_to_owner_of_parent(path);
            Ok(())
        }
        // Somebody else was quicker.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(from_io(&path.display().to_string(), &error)),
    }
}

/// Gives a new entry to the owner of the folder that it is in. An agent that may not do that owns everything anyway.
pub(super) fn give_to_owner_of_parent(path: &Path) {
    if let Some(found) = path.parent().and_then(|parent| fs::metadata(parent).ok()) {
        let _ = std::os::unix::fs::lchown(path, Some(found.uid()), Some(found.gid()));
    }
}
