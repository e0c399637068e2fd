//! The files of the workspace, as git knows them.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// Something that is not as it should be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    file: PathBuf,
    message: String,
}

impl Finding {
    pub(crate) fn new(file: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.message)
    }
}

/// Why the tree cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is not TOML: {detail}", path.display())]
    NotToml { path: PathBuf, detail: String },
    #[error("git ls-files failed: {0}")]
    Git(String),
}

/// The workspace: its root, and its files relative to that.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    files: Vec<PathBuf>,
}

impl Tree {
    /// The workspace that this program was built in: tracked files, and new ones that are not ignored.
    #[expect(clippy::disallowed_methods, reason = "git, for a tool of developers")]
    pub(crate) fn of_this_workspace() -> Result<Self, TreeError> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&root)
            .output()
            .map_err(|error| TreeError::Git(error.to_string()))?;
        if !listed.status.success() {
            return Err(TreeError::Git(String::from_utf8_lossy(&listed.stderr).into_owned()));
        }
        let listing = String::from_utf8_lossy(&listed.stdout);
        let files = listing.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
        // A file that was deleted and not committed yet is still listed.
        let files = files.filter(|file| root.join(file).is_file()).collect();
        Ok(Self { root, files })
    }

    #[cfg(test)]
    pub(crate) fn at(root: &Path, files: &[&str]) -> Self {
        Self {
            root: root.to_owned(),
            files: files.iter().map(PathBuf::from).collect(),
        }
    }

    /// The files with this extension.
    pub(crate) fn with_extension<'a>(&'a self, extension: &'a str) -> impl Iterator<Item = &'a Path> {
        let files = self.files.iter().map(PathBuf::as_path);
        files.filter(move |file| file.extension().is_some_and(|found| found == extension))
    }

    /// The files with this name.
    pub(crate) fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Path> {
        let files = self.files.iter().map(PathBuf::as_path);
        files.filter(move |file| file.file_name().is_some_and(|found| found == name))
    }

    /// Whether there is such a file or folder.
    pub(crate) fn has(&self, relative: &Path) -> bool {
        self.root.join(relative).exists()
    }

    /// A file's text.
    pub(crate) fn read(&self, relative: &Path) -> Result<String, TreeError> {
        let path = self.root.join(relative);
        fs::read_to_string(&path).map_err(|source| TreeError::Unreadable {
            path: relative.to_owned(),
            source,
        })
    }

    /// A file's text as TOML.
    pub(crate) fn read_toml(&self, relative: &Path) -> Result<toml::Table, TreeError> {
        self.read(relative)?
            .parse()
            .map_err(|error: toml::de::Error| TreeError::NotToml {
                path: relative.to_owned(),
                detail: error.to_string(),
            })
    }
}
