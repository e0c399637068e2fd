//! What the contract has and this release has not: a deliberate refusal, so that a client learns more than "not found".

use atoll_model::{ErrorCode, Refusal, SandboxId};
use axum::{
    Router,
    extract::{RawPathParams, State},
    routing::any,
};

use crate::{
    app::{App, Authenticated},
    error::{ApiError, ApiResult},
};

/// Under a sandbox: path and what it would be.
const OF_A_SANDBOX: [(&str, &str); 14] = [
    ("pause", "pausing a sandbox"),
    ("hibernate", "hibernating a sandbox"),
    ("stop", "hibernating a sandbox"),
    ("fork", "forking a sandbox"),
    ("fork-tree", "forking a sandbox"),
    ("promote", "promoting a fork"),
    ("snapshots", "snapshots of sandboxes"),
    ("ports", "ports of sandboxes"),
    ("ports/{port}", "ports of sandboxes"),
    ("proxy/{*rest}", "ports of sandboxes"),
    ("preview", "previews of ports"),
    ("preview-token", "previews of ports"),
    ("mcp", "an MCP endpoint of a sandbox"),
    ("lsp/{language}", "language servers"),
];

/// Beside sandboxes: path and what it would be. Everything below the path, too.
const OF_THE_SERVER: [(&str, &str); 15] = [
    ("snapshots", "snapshots of sandboxes"),
    ("volumes", "volumes"),
    ("functions", "functions"),
    ("schedules", "schedules"),
    ("databases", "databases"),
    ("apps", "apps"),
    ("github", "GitHub integration"),
    ("webhooks", "webhooks"),
    ("orgs", "organisations"),
    ("billing", "billing"),
    ("audit", "the audit log"),
    ("stats", "statistics of boots"),
    ("mcp", "an MCP endpoint"),
    ("p", "previews of ports"),
    ("metrics", "stored metrics"),
];

pub(crate) fn routes() -> Router<App> {
    let mut router = Router::new();
    for (path, what) in OF_A_SANDBOX {
        let handler = move |app: State<App>, caller: Authenticated, params: RawPathParams| async move {
            // Another workspace's sandbox is not found here either.
            exists(app, caller, &params).await?;
            Err::<(), ApiError>(refused(what))
        };
        router = router.route(&format!("/sandboxes/{{id}}/{path}"), any(handler));
    }
    for (path, what) in OF_THE_SERVER {
        let handler = move |_: Authenticated| async move { Err::<(), ApiError>(refused(what)) };
        // `/metrics` itself is served.
        if path != "metrics" {
            router = router.route(&format!("/{path}"), any(handler));
        }
        router = router.route(&format!("/{path}/{{*rest}}"), any(handler));
    }
    router
}

async fn exists(State(app): State<App>, Authenticated(caller): Authenticated, params: &RawPathParams) -> ApiResult<()> {
    let id = params
        .iter()
        .find(|(name, _)| *name == "id")
        .and_then(|(_, text)| text.parse::<SandboxId>().ok());
    let id = id.ok_or_else(|| Refusal::not_found("sandbox"))?;
    app.control.sandbox_get(&caller, id).await?;
    Ok(())
}

fn refused(what: &str) -> ApiError {
    ApiError::new(
        ErrorCode::NotSupported,
        format!("{what}: not supported by this release"),
    )
}

/// What this release refuses, for the document.
pub(crate) fn list() -> String {
    let of_a_sandbox = OF_A_SANDBOX
        .iter()
        .map(|(path, _)| format!("`/v1/sandboxes/{{id}}/{path}`"));
    let of_the_server = OF_THE_SERVER.iter().map(|(path, _)| format!("`/v1/{path}/...`"));
    of_a_sandbox.chain(of_the_server).collect::<Vec<_>>().join(", ")
}
