//! The output contract: what is kept of a stream, and how a cut is told.

use serde::{Deserialize, Serialize};

/// How many bytes of each stream are kept for the answer; half from the head, half from the tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputLimit(pub u64);

impl Default for OutputLimit {
    /// 1 MiB a stream (pandastack-v1 §4.6).
    fn default() -> Self {
        Self(1 << 20)
    }
}

/// What became of one output stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSummary {
    /// Bytes that the program wrote.
    pub total_bytes: u64,
    /// Whether the answer holds less than that.
    pub truncated: bool,
    /// Where inside the sandbox the whole stream lies, when it was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill_path: Option<String>,
}
