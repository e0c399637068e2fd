//! Rows as callers see them.

use atoll_store::{BuildRow, EventRow, SandboxRow};

use crate::{BuildView, EventView, SandboxView};

/// How every machine comes to be in this release.
const BOOT_MODE: &str = "restore";
/// Metadata that is kept for the sandbox and never shown (pandastack-v1 §4.2).
const HIDDEN_METADATA: &str = "secret.";

pub(crate) fn sandbox(row: SandboxRow) -> SandboxView {
    let mut metadata = row.spec.metadata;
    metadata.retain(|name, _| !name.starts_with(HIDDEN_METADATA));
    metadata.insert("workspace".to_owned(), row.workspace.to_string());
    SandboxView {
        id: row.id,
        workspace: row.workspace,
        template: row.spec.template,
        bake: row.origin.bake,
        state: row.state,
        gone: row.gone,
        failure: row.failure,
        cpu: row.spec.limits.cpu,
        memory_mb: row.spec.limits.memory_mb,
        disk_mb: row.spec.limits.disk_mb,
        metadata,
        labels: row.spec.labels,
        ttl_seconds: row.spec.ttl_seconds,
        persistent: row.spec.persistent,
        isolation: row.origin.isolation,
        engine: row.origin.engine,
        boot_mode: BOOT_MODE,
        boot_ms: row.boot_ms,
        created_at: row.created_at,
        ended_at: row.ended_at,
    }
}

pub(crate) fn event(row: EventRow) -> EventView {
    EventView {
        sequence: row.sequence,
        at: row.at,
        sandbox: row.sandbox,
        kind: row.kind,
        payload: row.payload,
    }
}

pub(crate) fn build(row: BuildRow) -> BuildView {
    BuildView {
        id: row.id,
        template: row.template,
        status: row.status,
        error: row.error,
        started_at: row.started_at,
        ended_at: row.ended_at,
    }
}
