//! What a credential may do.

use serde::{Deserialize, Serialize};

/// The scopes of a key, weakest first; each may do all that the one before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Looks: lists, gets, logs, events, stats. Runs nothing and changes nothing.
    ReadOnly,
    /// Makes, uses and deletes sandboxes.
    Full,
    /// Full, and makes and revokes keys and builds templates.
    Admin,
}

impl Scope {
    /// The word used on the wire and in the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Full => "full",
            Self::Admin => "admin",
        }
    }

    /// The scope of that word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::ReadOnly, Self::Full, Self::Admin]
            .into_iter()
            .find(|scope| scope.as_str() == word)
    }
}
