//! What use cases take and give, free of any wire format.

use std::collections::BTreeMap;

use atoll_model::{
    BuildId, Environment, GoneReason, Isolation, KeyId, SandboxId, Scope, State, TemplateName, WorkspaceId,
};
use atoll_store::BuildStatus;
use serde::Serialize;
use time::OffsetDateTime;

/// What a caller wants of a new sandbox. `Default` is all defaults, with the template `code-interpreter`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CreateSandbox {
    /// A template's name or alias; `code-interpreter` when absent.
    pub template: Option<String>,
    /// Idle limit in seconds, 0 for "never"; [`DEFAULT_TTL_SECONDS`](atoll_model::limits::DEFAULT_TTL_SECONDS) when absent.
    pub ttl_seconds: Option<u64>,
    /// Exempt from the idle limit.
    pub persistent: bool,
    /// The caller's own strings. `workspace`, `kind` and `app.id` are dropped, `secret.*` is never shown again.
    pub metadata: BTreeMap<String, String>,
    /// Strings to filter lists by.
    pub labels: BTreeMap<String, String>,
    /// Environment of every command and context.
    pub env: Environment,
    /// Cores; the template's when absent.
    pub cpu: Option<u32>,
    /// Memory in MiB; the template's when absent.
    pub memory_mb: Option<u64>,
    /// Disk in MiB; the template's when absent.
    pub disk_mb: Option<u64>,
    /// The least isolation that the caller accepts.
    pub isolation: Option<Isolation>,
    /// Two creates of one workspace with the same key and the same other fields are one sandbox.
    pub idempotency_key: Option<String>,
}

/// A sandbox as callers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxView {
    /// Its id.
    pub id: SandboxId,
    /// Who owns it.
    pub workspace: WorkspaceId,
    /// The template that it was made from, aliases resolved.
    pub template: TemplateName,
    /// The bake that it was restored from.
    pub bake: String,
    /// Where it stands.
    pub state: State,
    /// Why it is no more, for `Deleted`, `Failed` and `Stopping`.
    pub gone: Option<GoneReason>,
    /// One sentence on a failure.
    pub failure: Option<String>,
    /// Cores.
    pub cpu: u32,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in MiB.
    pub disk_mb: u64,
    /// The caller's strings, with `workspace` added and `secret.*` left out (pandastack-v1 §4.2).
    pub metadata: BTreeMap<String, String>,
    /// Strings to filter by.
    pub labels: BTreeMap<String, String>,
    /// Idle limit in seconds; 0 is "never".
    pub ttl_seconds: u64,
    /// Exempt from the idle limit.
    pub persistent: bool,
    /// The level that it runs at, never below what was asked.
    pub isolation: Isolation,
    /// The engine's name.
    pub engine: String,
    /// How its machine came to be; `restore`.
    pub boot_mode: &'static str,
    /// Milliseconds from the start of the restore to the agent's acknowledgement.
    pub boot_ms: Option<u64>,
    /// When it was asked for.
    pub created_at: OffsetDateTime,
    /// When it ended.
    pub ended_at: Option<OffsetDateTime>,
}

/// Which sandboxes a list holds.
#[derive(Debug, Clone, Default)]
pub struct SandboxFilter {
    /// Only those that have all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Only those with all of these metadata.
    pub metadata: BTreeMap<String, String>,
    /// Also those that failed after they had run, as long as they are kept.
    pub include_failed: bool,
}

/// A sandbox's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LifecycleView {
    /// Idle limit in seconds; 0 is "never".
    pub ttl_seconds: u64,
    /// Exempt from the idle limit.
    pub persistent: bool,
    /// Seconds since the last use; 0 while something runs.
    pub idle_seconds: u64,
}

/// A change of the lease; what is absent stays.
#[derive(Debug, Clone, Copy, Default)]
pub struct LifecyclePatch {
    /// Idle limit in seconds; 0 is "never".
    pub ttl_seconds: Option<u64>,
    /// Exempt from the idle limit.
    pub persistent: Option<bool>,
}

/// A key as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyView {
    /// Its row.
    pub id: KeyId,
    /// The first 12 characters of its text (`atl_` and 8 digits).
    pub prefix: String,
    /// What a person called it.
    pub name: String,
    /// What it may do.
    pub scope: Scope,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// After when it is refused.
    pub expires_at: Option<OffsetDateTime>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<OffsetDateTime>,
}

/// The caller about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeView {
    /// Its workspace.
    pub workspace: WorkspaceId,
    /// The workspace's name.
    pub workspace_name: String,
    /// Its key.
    pub key: KeyView,
}

/// Something that happened to a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct EventView {
    /// Counts up over all sandboxes.
    pub sequence: i64,
    /// When.
    pub at: OffsetDateTime,
    /// To which.
    pub sandbox: SandboxId,
    /// As in `sandbox.running` (pandastack-v1 §2.8).
    pub kind: String,
    /// Facts, an object.
    pub payload: serde_json::Value,
}

/// A template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateView {
    /// Its name.
    pub name: TemplateName,
    /// Other names that it answers to.
    pub aliases: Vec<String>,
    /// One sentence.
    pub description: String,
    /// Cores of its sandboxes when the caller names none.
    pub cpu: u32,
    /// Memory in MiB, likewise.
    pub memory_mb: u64,
    /// Disk in MiB, likewise.
    pub disk_mb: u64,
    /// Bytes of its root directory and snapshot on the host; absent before it is built.
    pub size_bytes: Option<u64>,
    /// The bake in force; sandboxes can be created when there is one.
    pub bake: Option<String>,
}

/// A build of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildView {
    /// Its id.
    pub id: BuildId,
    /// What it builds.
    pub template: TemplateName,
    /// How far it is.
    pub status: BuildStatus,
    /// One sentence, when it failed.
    pub error: Option<String>,
    /// When it was asked for.
    pub started_at: OffsetDateTime,
    /// When it ended.
    pub ended_at: Option<OffsetDateTime>,
}

/// What runs here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionView {
    /// Atoll's version.
    pub version: &'static str,
    /// The engine's name.
    pub engine: &'static str,
    /// Name and version of what isolates.
    pub engine_version: String,
    /// The level that it gives.
    pub isolation: Isolation,
}

/// Whether sandboxes can be created now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Whether a create of a template that is built would be tried.
    pub ready: bool,
    /// What is missing, one sentence.
    pub reason: Option<String>,
}
