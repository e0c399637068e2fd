//! Folders and files that nobody but their owner looks into.

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

/// Makes a folder of mode 0700, or gives one that is there that mode. Folders above it are made as usual.
///
/// # Errors
/// It cannot be made, or is not ours.
pub fn folder(path: &Path) -> io::Result<()> {
    if let Some(above) = path.parent() {
        fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::set_permissions(path, Permissions::from_mode(0o700))
        }
        other => other,
    }
}

/// Makes an empty file of mode 0600, or gives one that is there that mode.
///
/// # Errors
/// It cannot be made, or is not ours.
pub fn file(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))
}

/// Writes a file whole or not at all, whenever this process may die: whoever reads it finds the old or the new text. A crash of
/// the host may lose either.
///
/// # Errors
/// It cannot be made, written or put in its place.
pub fn write_whole(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    fs::write(&unfinished, text)?;
    fs::rename(unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_and_what_was_open_to_others_end_private() {
        let top = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let inside = top.path().join("above/inside");
        for _ in 0..2 {
            folder(&inside).unwrap();
            file(&inside.join("data")).unwrap();
            assert_eq!((mode(&inside), mode(&inside.join("data"))), (0o700, 0o600));
            fs::set_permissions(&inside, Permissions::from_mode(0o755)).unwrap();
            fs::write(inside.join("data"), "kept").unwrap();
            fs::set_permissions(inside.join("data"), Permissions::from_mode(0o644)).unwrap();
        }
        file(&inside.join("data")).unwrap();
        assert_eq!(fs::read_to_string(inside.join("data")).unwrap(), "kept");
    }
}
