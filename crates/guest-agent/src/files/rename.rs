//! Renaming, also from one file system to another.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, lchown, symlink},
    path::Path,
};

use atoll_protocol::types::{FileMove, GuestCode, GuestRefusal};

use super::{blocking, checked};
use crate::refusal::{from_io, refuse};

/// Renames. Between file systems (`/tmp` may be one of its own) it copies and then removes.
pub(crate) async fn rename(request: FileMove) -> Result<(), GuestRefusal> {
    let (from, to) = (checked(&request.from)?, checked(&request.to)?);
    blocking(move || {
        let shown = format!("{} to {}", from.display(), to.display());
        match fs::rename(&from, &to) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
            moved => return moved.map_err(|error| from_io(&shown, &error)),
        }
        if fs::symlink_metadata(&to).is_ok_and(|found| found.is_dir()) {
            return Err(refuse(
                GuestCode::Conflict,
                format!("{} is a directory already", to.display()),
            ));
        }
        let random = getrandom::u64().map_err(|error| refuse(GuestCode::Internal, error.to_string()))?;
        let beside = to.with_file_name(format!(".{random:016x}.part"));
        let copied = copy(&from, &beside)
            .and_then(|()| fs::rename(&beside, &to))
            .and_then(|()| remove(&from));
        copied.map_err(|error| {
            // Whatever was copied is of no use; what cannot be removed of it either is named by the first error.
            let _ = remove(&beside);
            from_io(&shown, &error)
        })
    })
    .await
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

/// Copies an entry with all it holds, its owner and permissions.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(from)?;
    let kind = found.file_type();
    if kind.is_symlink() {
        symlink(fs::read_link(from)?, to)?;
    } else if kind.is_dir() {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            copy(&from.join(&name), &to.join(&name))?;
        }
        fs::set_permissions(to, found.permissions())?;
    } else if kind.is_file() {
        fs::copy(from, to)?;
    } else {
        return Err(io::Error::from_raw_os_error(nix::libc::ENXIO));
    }
    // An agent that may not give files away owns everything anyway.
    let _ = lchown(to, Some(found.uid()), Some(found.gid()));
    Ok(())
}
