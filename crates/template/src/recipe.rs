//! `template.toml`: what a template is made of.

mod check;

use std::collections::BTreeMap;

use atoll_model::{Limits, TemplateName};
use serde::{Deserialize, Serialize};

use crate::{Digest, RecipeError};

/// Part of every digest: raise it when the same recipe would be built differently than before.
const FORMAT: &str = "atoll-recipe-1";

/// A recipe, checked. Unknown fields are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Its name; that of its folder.
    pub name: TemplateName,
    /// Other names that creates may use.
    #[serde(default)]
    pub aliases: Vec<TemplateName>,
    /// One sentence for people who choose.
    pub description: String,
    /// The Debian system below.
    pub base: BaseSystem,
    /// Python packages, installed with the system's pip.
    #[serde(default)]
    pub python: PythonPackages,
    /// Users beside root, in the order of their making.
    #[serde(default, rename = "user")]
    pub users: Vec<UserEntry>,
    /// Folders.
    #[serde(default, rename = "folder")]
    pub folders: Vec<FolderEntry>,
    /// Files.
    #[serde(default, rename = "file")]
    pub files: Vec<FileEntry>,
    /// Shell commands that root runs in the rootfs at the end.
    #[serde(default)]
    pub run: Vec<String>,
    /// Environment of every command and context.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What a sandbox gets when its creator names nothing else.
    #[serde(default)]
    pub size: Size,
    /// Interpreters to keep warm.
    #[serde(default, rename = "warm")]
    pub warm_ups: Vec<WarmUp>,
}

/// `[base]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaseSystem {
    /// Debian's release, as in `bookworm`.
    pub suite: String,
    /// Packages on top of the essential ones. Nothing that they only recommend is installed.
    #[serde(default)]
    pub packages: Vec<String>,
}

/// `[python]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PythonPackages {
    /// Each as `name==version`.
    #[serde(default)]
    pub packages: Vec<String>,
}

/// `[[user]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserEntry {
    /// Login name.
    pub name: String,
    /// User and group number, 1000 to 59999.
    pub uid: u32,
    /// Home folder, which is made and is the user's.
    pub home: String,
    /// Login shell.
    #[serde(default = "bash")]
    pub shell: String,
    /// Whether `sudo` works without a password.
    #[serde(default)]
    pub sudo: bool,
}

/// `[[folder]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderEntry {
    /// Absolute path.
    pub path: String,
    /// A user of the template.
    #[serde(default = "root")]
    pub owner: String,
    /// Permission bits in octal.
    #[serde(default = "folder_mode")]
    pub mode: String,
}

/// `[[file]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Absolute path; parents are made.
    pub path: String,
    /// What it holds.
    pub text: String,
    /// A user of the template.
    #[serde(default = "root")]
    pub owner: String,
    /// Permission bits in octal.
    #[serde(default = "file_mode")]
    pub mode: String,
}

/// `[size]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Size {
    /// Cores.
    pub cpu: u32,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// What may be written to the disk, in MiB.
    pub disk_mb: u64,
    /// Processes and threads.
    pub pids: u32,
}

/// `[[warm]]`: an interpreter that is started and warmed once, at the bake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmUp {
    /// As in `python`.
    pub language: String,
    /// The driver's command line, inside the guest.
    pub argv: Vec<String>,
    /// Who runs it, and so every context of that language.
    #[serde(default = "root")]
    pub user: String,
    /// What it runs once: imports and first calls.
    #[serde(default)]
    pub code: String,
    /// How long that may take.
    #[serde(default = "warm_seconds")]
    pub timeout_seconds: u32,
}

impl Default for Size {
    fn default() -> Self {
        let Limits {
            cpu,
            memory_mb,
            disk_mb,
            pids,
        } = Limits::default();
        Self {
            cpu,
            memory_mb,
            disk_mb,
            pids,
        }
    }
}

impl From<Size> for Limits {
    fn from(size: Size) -> Self {
        Self {
            cpu: size.cpu,
            memory_mb: size.memory_mb,
            disk_mb: size.disk_mb,
            pids: size.pids,
        }
    }
}

impl Recipe {
    /// Reads a recipe. `file` is what errors call it.
    ///
    /// # Errors
    /// [`RecipeError::Syntax`] and [`RecipeError::Field`].
    pub fn parse(file: &str, text: &str) -> Result<Self, RecipeError> {
        let recipe: Self = toml::from_str(text).map_err(|error| RecipeError::Syntax {
            file: file.to_owned(),
            detail: error.to_string(),
        })?;
        check::check(file, &recipe)?;
        Ok(recipe)
    }

    /// Of all that the rootfs depends on: two recipes with the same one have interchangeable rootfs.
    #[must_use]
    pub fn rootfs_digest(&self) -> Digest {
        let parts = (
            &self.base,
            &self.python,
            &self.users,
            &self.folders,
            &self.files,
            &self.run,
            &self.env,
        );
        digest_of("rootfs", &parts)
    }

    /// Of all that a bake on that rootfs depends on, the smoke tests aside.
    #[must_use]
    pub fn bake_digest(&self) -> Digest {
        digest_of("bake", &(&self.env, &self.size, &self.warm_ups))
    }
}

fn digest_of(kind: &str, parts: &impl Serialize) -> Digest {
    // Plain data of strings and numbers always has a JSON form; TOML's layout and comments do not count.
    let canonical = serde_json::to_vec(parts).unwrap_or_default();
    Digest::of([FORMAT.as_bytes(), kind.as_bytes(), &canonical])
}

fn bash() -> String {
    "/bin/bash".to_owned()
}

fn root() -> String {
    "root".to_owned()
}

fn folder_mode() -> String {
    "0755".to_owned()
}

fn file_mode() -> String {
    "0644".to_owned()
}

fn warm_seconds() -> u32 {
    300
}
