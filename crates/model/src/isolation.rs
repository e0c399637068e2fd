//! How strong the wall around a sandbox is.

use serde::{Deserialize, Serialize};

/// Isolation levels, weakest first. A caller may demand a minimum; it is never silently lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// A plain process of the host. Only the engine for tests; refused to every caller.
    None,
    /// A kernel of its own in user space: the guest's system calls never reach the host's kernel directly.
    Kernel,
    /// A hardware virtual machine.
    Vm,
}

impl Isolation {
    /// The word used on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Kernel => "kernel",
            Self::Vm => "vm",
        }
    }

    /// The level of that word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::None, Self::Kernel, Self::Vm]
            .into_iter()
            .find(|level| level.as_str() == word)
    }
}
