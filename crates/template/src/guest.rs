//! What every sandbox sees read-only at `/opt/atoll`: the agent and the drivers of contexts.

use std::{borrow::Cow, os::unix::fs::PermissionsExt, path::Path, time::SystemTime};

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

    /// Writes them below `guests`. Those that are there already are compared, and replaced where a disk or a person has
    /// changed them.
    pub(crate) fn install(&self, guests: &Path) -> Result<(), TemplateError> {
        let target = guests.join(self.digest.as_str());
        if target.is_dir() {
            return self.repair(guests, &target);
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
        std::fs::create_dir_all(folder).map_err(TemplateError::host("make", folder))?;
        for file in &self.files {
            let path = folder.join(file.path.as_ref());
            let parent = path.parent().unwrap_or(folder);
            std::fs::create_dir_all(parent).map_err(TemplateError::host("make", parent))?;
            file.write(&path)?;
        }
        Ok(())
    }

    /// Puts a whole file in the place of each that is not as it was written. Sandboxes that run see the folder: a file is
    /// replaced in one step, and one that is right is left alone.
    fn repair(&self, guests: &Path, target: &Path) -> Result<(), TemplateError> {
        for file in &self.files {
            let path = target.join(file.path.as_ref());
            if file.is_whole(&path) {
                continue;
            }
            tracing::warn!(path = %path.display(), "a file of the guests was damaged and is replaced");
            let parent = path.parent().unwrap_or(target);
            std::fs::create_dir_all(parent).map_err(TemplateError::host("make", parent))?;
            if path.is_dir() {
                std::fs::remove_dir_all(&path).map_err(TemplateError::host("remove", &path))?;
            }
            let making = guests.join(format!("making-{}", BuildId::random()));
            let put = file
                .write(&making)
                .and_then(|()| std::fs::rename(&making, &path).map_err(TemplateError::host("replace", &path)));
            if put.is_err() {
                // The first error says what is wrong; the next start removes what is half made.
                let _ = std::fs::remove_file(&making);
            }
            put?;
        }
        Ok(())
    }
}

impl GuestFile {
    fn mode(&self) -> u32 {
        if self.executable { 0o755 } else { 0o644 }
    }

    fn write(&self, path: &Path) -> Result<(), TemplateError> {
        std::fs::write(path, &self.bytes).map_err(TemplateError::host("write", path))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(self.mode()))
            .map_err(TemplateError::host("set the mode of", path))?;
        // Always the same: a snapshot that has the file open finds it as it was, also when it was replaced.
        std::fs::File::open(path)
            .and_then(|written| written.set_modified(SystemTime::UNIX_EPOCH))
            .map_err(TemplateError::host("set the time of", path))
    }

    /// Whether it lies there with its bytes and mode. One that cannot be read does not.
    fn is_whole(&self, path: &Path) -> bool {
        let is_alike = std::fs::symlink_metadata(path).is_ok_and(|found| {
            let mode = found.permissions().mode() & 0o7777;
            found.is_file() && mode == self.mode() && found.len() == self.bytes.len() as u64
        });
        is_alike && std::fs::read(path).is_ok_and(|bytes| bytes == *self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

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
    fn damaged_files_are_replaced_and_the_others_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let files = [
            "agent",
            "a/truncated",
            "a/changed",
            "a/mode",
            "b/missing",
            "b/link",
            "b/folder",
        ];
        let image = GuestImage::new(files.map(|path| file(path, b"bytes", path == "agent")).to_vec());
        image.install(home.path()).unwrap();
        let folder = home.path().join(image.digest().as_str());
        let at = |path: &str| folder.join(path);
        let inode = |path: &str| at(path).symlink_metadata().unwrap().ino();
        let before = inode("agent");
        std::fs::write(at("a/truncated"), b"byt").unwrap();
        std::fs::write(at("a/changed"), b"BYTES").unwrap();
        std::fs::set_permissions(at("a/mode"), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::remove_dir_all(at("b")).unwrap();
        std::fs::create_dir_all(at("b/folder/x")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", at("b/link")).unwrap();
        image.install(home.path()).unwrap();
        for path in files {
            let found = at(path).symlink_metadata().unwrap();
            assert!(found.is_file(), "{path}");
            assert_eq!(std::fs::read(at(path)).unwrap(), b"bytes", "{path}");
            let mode = if path == "agent" { 0o755 } else { 0o644 };
            assert_eq!(found.permissions().mode() & 0o7777, mode, "{path}");
        }
        assert_eq!(inode("agent"), before);
        assert_eq!(places::names_in(home.path()).unwrap().len(), 1);
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
