//! What every sandbox sees read-only at `/opt/atoll`: the agent and the drivers of contexts.

use std::{borrow::Cow, os::unix::fs::PermissionsExt, path::Path};

use atoll_model::BuildId;

use crate::{Digest, TemplateError, places};

/// One file of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFile {
    /// Relative path, as in `agent` or `contexts/python/zygote.py`; no `..`.
    pub path: Cow<'static, str>,
    /// Its bytes.
    pub bytes: Cow<'static, [u8]>,
    /// Whether it is a program.
    pub executable: bool,
}

/// All files of it.
#[derive(Debug, Clone)]
pub struct GuestImage {
    files: Vec<GuestFile>,
    digest: Digest,
}

impl GuestImage {
    /// Takes files in any order.
    #[must_use]
    pub fn new(mut files: Vec<GuestFile>) -> Self {
        files.sort_by(|one, other| one.path.cmp(&other.path));
        let mode = |file: &GuestFile| if file.executable { &b"x"[..] } else { b"-" };
        let parts = files
            .iter()
            .flat_map(|file| [file.path.as_bytes(), mode(file), &file.bytes]);
        let digest = Digest::of(parts);
        Self { files, digest }
    }

    /// Of all files.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Writes them below `guests`, unless they are there already.
    pub(crate) fn install(&self, guests: &Path) -> Result<(), TemplateError> {
        let target = guests.join(self.digest.as_str());
        if target.is_dir() {
            return Ok(());
        }
        let making = guests.join(format!("making-{}", BuildId::random()));
        let written = self.write(&making).and_then(|()| places::put(&making, &target));
        // Somebody else may have put the same files there meanwhile.
        if written.is_err() {
            let _ = std::fs::remove_dir_all(&making);
        }
        if target.is_dir() { Ok(()) } else { written }
    }

    fn write(&self, folder: &Path) -> Result<(), TemplateError> {
        for file in &self.files {
            let path = folder.join(file.path.as_ref());
            let parent = path.parent().unwrap_or(folder);
            std::fs::create_dir_all(parent).map_err(TemplateError::host("make", parent))?;
            std::fs::write(&path, &file.bytes).map_err(TemplateError::host("write", &path))?;
            let mode = if file.executable { 0o755 } else { 0o644 };
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
                .map_err(TemplateError::host("set the mode of", &path))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &'static str, bytes: &'static [u8], executable: bool) -> GuestFile {
        GuestFile {
            path: path.into(),
            bytes: bytes.into(),
            executable,
        }
    }

    #[test]
    fn the_same_files_in_any_order_are_the_same_image() {
        let (a, b) = (file("a", b"1", true), file("b/c", b"2", false));
        let one = GuestImage::new(vec![a.clone(), b.clone()]);
        assert_eq!(one.digest(), GuestImage::new(vec![b.clone(), a.clone()]).digest());
        assert_ne!(one.digest(), GuestImage::new(vec![a, file("b/c", b"2", true)]).digest());
    }

    #[test]
    fn files_are_written_once_with_their_modes() {
        let home = tempfile::tempdir().unwrap();
        let image = GuestImage::new(vec![file("agent", b"x", true), file("contexts/p/z.py", b"y", false)]);
        image.install(home.path()).unwrap();
        image.install(home.path()).unwrap();
        let folder = home.path().join(image.digest().as_str());
        let mode = |path: &str| folder.join(path).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("agent"), mode("contexts/p/z.py")), (0o755, 0o644));
        assert_eq!(places::names_in(home.path()).unwrap().len(), 1);
    }
}
