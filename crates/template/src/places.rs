//! Where everything lies, and how things appear there: made under a name that the next start removes, then renamed.

use std::{
    io,
    path::{Path, PathBuf},
};

use atoll_model::{BuildId, TemplateName};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Digest, TemplateError};

/// Names of half-made things begin with this.
const MAKING: &str = "making-";

/// The state folder, as far as templates go. The tree is in docs/design/0001-foundation.md.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    state: PathBuf,
}

impl Places {
    pub(crate) fn new(state: PathBuf) -> Self {
        Self { state }
    }

    pub(crate) fn guests(&self) -> PathBuf {
        self.state.join("guest")
    }

    pub(crate) fn guest(&self, digest: &Digest) -> PathBuf {
        self.guests().join(digest.as_str())
    }

    pub(crate) fn template(&self, name: &TemplateName) -> PathBuf {
        self.state.join("templates").join(name.as_str())
    }

    pub(crate) fn all_rootfs(&self, name: &TemplateName) -> PathBuf {
        self.template(name).join("rootfs")
    }

    pub(crate) fn rootfs(&self, name: &TemplateName, id: &Digest) -> PathBuf {
        self.all_rootfs(name).join(id.as_str())
    }

    /// What is known of a rootfs; written after it is complete.
    pub(crate) fn rootfs_record(&self, name: &TemplateName, id: &Digest) -> PathBuf {
        self.all_rootfs(name).join(format!("{id}.json"))
    }

    pub(crate) fn bakes(&self, name: &TemplateName) -> PathBuf {
        self.template(name).join("bakes")
    }

    pub(crate) fn bake(&self, name: &TemplateName, digest: &Digest) -> PathBuf {
        self.bakes(name).join(digest.as_str())
    }

    pub(crate) fn current(&self, name: &TemplateName) -> PathBuf {
        self.template(name).join("current.json")
    }

    pub(crate) fn log(&self, name: &TemplateName) -> PathBuf {
        self.template(name).join("build.log")
    }

    /// A new empty folder for something half made.
    pub(crate) fn making(&self, name: &TemplateName, build: BuildId) -> Result<Making, TemplateError> {
        let path = self.template(name).join(format!("{MAKING}{build}"));
        std::fs::create_dir_all(&path).map_err(TemplateError::host("make", &path))?;
        Ok(Making { path })
    }

    /// Removes what a crash left half made.
    pub(crate) fn sweep(&self) -> Result<(), TemplateError> {
        let templates = self.state.join("templates");
        for template in names_in(&templates)? {
            let folder = templates.join(&template);
            for name in names_in(&folder)?.into_iter().filter(|name| name.starts_with(MAKING)) {
                let path = folder.join(name);
                std::fs::remove_dir_all(&path).map_err(TemplateError::host("remove", path))?;
            }
            forget_halves(&folder.join("rootfs"))?;
        }
        Ok(())
    }
}

/// A rootfs without its record was being removed.
fn forget_halves(rootfs: &Path) -> Result<(), TemplateError> {
    let names = names_in(rootfs)?;
    for name in &names {
        let path = rootfs.join(name);
        if name.parse::<Digest>().is_ok() && !names.contains(&format!("{name}.json")) {
            std::fs::remove_dir_all(&path).map_err(TemplateError::host("remove", path))?;
        }
    }
    Ok(())
}

/// Names in a folder; none when there is no such folder.
pub(crate) fn names_in(folder: &Path) -> Result<Vec<String>, TemplateError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(TemplateError::host("list", folder)(error)),
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names
        .collect::<io::Result<_>>()
        .map_err(TemplateError::host("list", folder))
}

/// Moves a finished file or folder to its name.
pub(crate) fn put(from: &Path, to: &Path) -> Result<(), TemplateError> {
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent).map_err(TemplateError::host("make", parent))?;
    }
    std::fs::rename(from, to).map_err(TemplateError::host("rename into place", to))
}

/// Writes a small file whole or not at all.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), TemplateError> {
    let text = serde_json::to_vec_pretty(value).map_err(|error| TemplateError::host("write", path)(error.into()))?;
    let temporary = path.with_extension("json.new");
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(TemplateError::host("make", parent))?;
    }
    std::fs::write(&temporary, text).map_err(TemplateError::host("write", &temporary))?;
    put(&temporary, path)
}

/// Reads what [`write_json`] wrote; `None` when it is missing or of another release.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, TemplateError> {
    match std::fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(TemplateError::host("read", path)(error)),
    }
}

/// A folder for something half made, removed with all it holds when this is dropped.
#[derive(Debug)]
pub(crate) struct Making {
    path: PathBuf,
}

impl Making {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove what a build left; the next start tries again");
        }
    }
}
