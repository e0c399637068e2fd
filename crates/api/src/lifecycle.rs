//! A sandbox's lease, and waking one that is awake.

use atoll_control::{LifecyclePatch, LifecycleView};
use atoll_model::{ErrorCode, SandboxId, State as Standing};
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    app::{App, Authenticated},
    error::{ApiError, ApiResult, ErrorBody},
    extract::{Id, Json},
};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(get, patch))
        .routes(routes!(wake))
        .routes(routes!(start))
        .routes(routes!(resume))
}

/// A sandbox's lease.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Lifecycle {
    /// Idle limit in seconds; 0 is "never".
    pub(crate) ttl_seconds: u64,
    /// Exempt from the idle limit.
    pub(crate) persistent: bool,
    /// Seconds since the last use; 0 while something runs.
    pub(crate) idle_seconds: u64,
}

impl From<LifecycleView> for Lifecycle {
    fn from(view: LifecycleView) -> Self {
        Self {
            ttl_seconds: view.ttl_seconds,
            persistent: view.persistent,
            idle_seconds: view.idle_seconds,
        }
    }
}

/// A change of the lease; what is absent stays.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct LifecycleChange {
    /// Idle limit in seconds; 0 is "never".
    #[schema(maximum = 31_536_000)]
    ttl_seconds: Option<u64>,
    /// Exempt from the idle limit.
    persistent: Option<bool>,
}

/// Gets a sandbox's lease. Does not count as use.
#[utoipa::path(
    get, path = "/sandboxes/{id}/lifecycle", tag = "sandboxes", operation_id = "lifecycle_get",
    responses((status = 200, description = "The lease.", body = Lifecycle))
)]
async fn get(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
) -> ApiResult<axum::Json<Lifecycle>> {
    Ok(axum::Json(app.control.lifecycle_get(&caller, id).await?.into()))
}

/// Changes a sandbox's lease.
#[utoipa::path(
    patch, path = "/sandboxes/{id}/lifecycle", tag = "sandboxes", operation_id = "lifecycle_patch",
    request_body = LifecycleChange,
    responses((status = 200, description = "The lease as it is now.", body = Lifecycle))
)]
async fn patch(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Json(body): Json<LifecycleChange>,
) -> ApiResult<axum::Json<Lifecycle>> {
    let patch = LifecyclePatch {
        ttl_seconds: body.ttl_seconds,
        persistent: body.persistent,
    };
    Ok(axum::Json(
        app.control.lifecycle_patch(&caller, id, patch).await?.into(),
    ))
}

/// What a wake comes to.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Woken {
    /// `running`.
    status: &'static str,
}

/// Wakes a hibernated sandbox. One that runs is left as it is; this release hibernates none.
#[utoipa::path(
    post, path = "/sandboxes/{id}/wake", tag = "sandboxes", operation_id = "sandbox_wake",
    responses(
        (status = 200, description = "It runs.", body = Woken),
        (status = 501, description = "It does not run, and this release cannot wake it.", body = ErrorBody),
    )
)]
async fn wake(app: State<App>, caller: Authenticated, id: Id<SandboxId>) -> ApiResult<axum::Json<Woken>> {
    already_running(app, caller, id).await?;
    Ok(axum::Json(Woken { status: "running" }))
}

/// The same as wake.
#[utoipa::path(
    post, path = "/sandboxes/{id}/start", tag = "sandboxes", operation_id = "sandbox_start",
    responses(
        (status = 200, description = "It runs.", body = Woken),
        (status = 501, description = "It does not run, and this release cannot wake it.", body = ErrorBody),
    )
)]
async fn start(app: State<App>, caller: Authenticated, id: Id<SandboxId>) -> ApiResult<axum::Json<Woken>> {
    wake(app, caller, id).await
}

/// Resumes a paused sandbox. One that runs is left as it is; this release pauses none.
#[utoipa::path(
    post, path = "/sandboxes/{id}/resume", tag = "sandboxes", operation_id = "sandbox_resume",
    responses(
        (status = 204, description = "It runs."),
        (status = 501, description = "It does not run, and this release cannot resume it.", body = ErrorBody),
    )
)]
async fn resume(app: State<App>, caller: Authenticated, id: Id<SandboxId>) -> ApiResult<StatusCode> {
    already_running(app, caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn already_running(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
) -> ApiResult<()> {
    let view = app.control.sandbox_get(&caller, id).await?;
    if view.state == Standing::Running {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorCode::NotSupported,
        format!(
            "the sandbox is {}, and this release cannot bring it back",
            view.state.as_str()
        ),
    ))
}
