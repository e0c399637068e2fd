//! What the server says, as far as the CLI shows it to people. Programs get the server's JSON itself.

use std::collections::BTreeMap;

use serde::Deserialize;
use time::{OffsetDateTime, serde::rfc3339};

/// A sandbox.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) template: String,
    pub(crate) status: String,
    pub(crate) cpu: u32,
    pub(crate) memory_mb: u64,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(with = "rfc3339")]
    pub(crate) created_at: OffsetDateTime,
}

/// A directory entry, and the answer of a stat.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) is_dir: bool,
    /// `f`, `d`, `l`, or `o` for other (pandastack-v1 §2.9).
    #[serde(default)]
    pub(crate) mode: String,
    /// Permission bits in octal.
    #[serde(default)]
    pub(crate) permissions: String,
}

/// A directory.
#[derive(Debug, Deserialize)]
pub(crate) struct Listing {
    pub(crate) entries: Option<Vec<Entry>>,
    /// Ask again with `after` set to this.
    #[serde(default)]
    pub(crate) next: Option<String>,
}

/// A template.
#[derive(Debug, Deserialize)]
pub(crate) struct Template {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) description: Option<String>,
    #[serde(default)]
    pub(crate) size_bytes: Option<u64>,
    pub(crate) cpu: u32,
    pub(crate) memory_mb: u64,
    #[serde(default)]
    pub(crate) ready: Option<bool>,
}

/// A build of a template.
#[derive(Debug, Deserialize)]
pub(crate) struct Build {
    pub(crate) id: String,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) error: Option<String>,
}

/// A key, without its text.
#[derive(Debug, Deserialize)]
pub(crate) struct Key {
    pub(crate) prefix: String,
    pub(crate) label: String,
    #[serde(default)]
    pub(crate) scope: Option<String>,
    #[serde(with = "rfc3339")]
    pub(crate) created_at: OffsetDateTime,
}

/// A wrapped list.
#[derive(Debug, Deserialize)]
pub(crate) struct Items<T> {
    pub(crate) items: Vec<T>,
}
