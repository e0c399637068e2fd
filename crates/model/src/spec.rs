//! What a caller asks for when creating a sandbox, already valid by type.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Environment, Isolation, Limits, TemplateName};

/// A create, after parsing and defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Which template, after aliases were resolved.
    pub template: TemplateName,
    /// Idle limit in seconds; 0 is "never".
    pub ttl_seconds: u64,
    /// Exempt from the idle limit, and from deletion by a client's clean-up.
    pub persistent: bool,
    /// The caller's own strings, returned as they came.
    pub metadata: BTreeMap<String, String>,
    /// Strings to filter by.
    pub labels: BTreeMap<String, String>,
    /// Environment of every command and context.
    pub env: Environment,
    /// Ceilings.
    pub limits: Limits,
    /// The least isolation that the caller accepts.
    pub isolation: Option<Isolation>,
}
