//! Code contexts: create, list, interrupt, restart, close.

use std::collections::BTreeMap;

use atoll_control::ContextRequest;
use atoll_model::{ContextId, SandboxId};
use atoll_protocol::types::ContextInfo;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::of_session;
use crate::{
    app::{App, Authenticated},
    error::{ApiResult, ErrorBody},
    extract::{Id, OptionalJson},
};

/// A context to make.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct SessionBody {
    /// `python` (also `py`, `python3`); `python` when absent.
    language: Option<String>,
    /// Working directory; the home of its user when absent.
    cwd: Option<String>,
    /// Added to the sandbox's environment.
    env: Option<BTreeMap<String, String>>,
}

/// A context.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Session {
    /// Its id: 16 hexadecimal digits.
    id: String,
    /// The same.
    session_id: String,
    /// Its sandbox.
    sandbox_id: String,
    /// Its language.
    language: String,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    /// Cells it has run.
    cells: u64,
    /// Whether one runs now.
    busy: bool,
    /// How often its interpreter was started anew, its variables lost.
    restarts: u64,
}

impl Session {
    fn of(sandbox: SandboxId, info: ContextInfo) -> Self {
        Self {
            id: info.id.to_string(),
            session_id: info.id.to_string(),
            sandbox_id: sandbox.to_string(),
            language: info.language,
            created_at: OffsetDateTime::from_unix_timestamp(info.created_at).unwrap_or(OffsetDateTime::UNIX_EPOCH),
            cells: info.cells,
            busy: info.busy,
            restarts: info.restarts,
        }
    }
}

/// Makes a context: an interpreter that keeps its state from cell to cell.
#[utoipa::path(
    post, path = "/sandboxes/{id}/repl/sessions", tag = "code", operation_id = "session_create", request_body = Option<SessionBody>,
    responses(
        (status = 201, description = "It is ready.", body = Session),
        (status = 429, description = "The sandbox holds as many contexts as it may.", body = ErrorBody),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    OptionalJson(body): OptionalJson<SessionBody>,
) -> ApiResult<(StatusCode, axum::Json<Session>)> {
    let request = ContextRequest {
        language: body.language.unwrap_or_else(|| "python".to_owned()),
        cwd: body.cwd,
        env: body.env.unwrap_or_default(),
    };
    let made = app.control.context_create(&caller, id, request).await?;
    Ok((StatusCode::CREATED, axum::Json(Session::of(id, made))))
}

/// Lists a sandbox's contexts. Does not count as use.
#[utoipa::path(
    get, path = "/sandboxes/{id}/repl/sessions", tag = "code", operation_id = "session_list",
    responses((status = 200, description = "The contexts.", body = Vec<Session>))
)]
pub(crate) async fn list(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
) -> ApiResult<axum::Json<Vec<Session>>> {
    let contexts = app.control.context_list(&caller, id).await?;
    Ok(axum::Json(
        contexts.into_iter().map(|info| Session::of(id, info)).collect(),
    ))
}

/// Closes a context and ends what runs in it. The sandbox stays.
#[utoipa::path(
    delete, path = "/sandboxes/{id}/repl/sessions/{sid}", tag = "code", operation_id = "session_close",
    responses((status = 204, description = "It is gone."))
)]
pub(crate) async fn close(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Id(context): Id<ContextId>,
) -> ApiResult<StatusCode> {
    let done = app.control.context_close(&caller, id, context).await;
    done.map_err(of_session)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Interrupts the cell that runs, as Ctrl-C would. No fault when none does.
#[utoipa::path(
    post, path = "/sandboxes/{id}/repl/sessions/{sid}/interrupt", tag = "code", operation_id = "session_interrupt",
    responses((status = 204, description = "It was told."))
)]
pub(crate) async fn interrupt(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Id(context): Id<ContextId>,
) -> ApiResult<StatusCode> {
    let done = app.control.context_interrupt(&caller, id, context).await;
    done.map_err(of_session)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Starts a context's interpreter anew under the same id. Its variables are lost.
#[utoipa::path(
    post, path = "/sandboxes/{id}/repl/sessions/{sid}/restart", tag = "code", operation_id = "session_restart",
    responses((status = 200, description = "It is ready.", body = Session))
)]
pub(crate) async fn restart(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Id(context): Id<ContextId>,
) -> ApiResult<axum::Json<Session>> {
    let anew = app.control.context_restart(&caller, id, context).await;
    Ok(axum::Json(Session::of(id, anew.map_err(of_session)?)))
}
