//! A shell on a terminal (pandastack-v1 §2.7).

use std::collections::BTreeMap;

use atoll_control::ExecRequest;
use atoll_model::SandboxId;
use atoll_protocol::types::TerminalSize;
use axum::{extract::State, response::Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::interactive::{Interactive, Socket, Wire, name_terminal};
use crate::{
    app::{App, Authenticated},
    error::{ApiResult, ErrorBody},
    extract::{Id, Query},
};

/// The shell: bash where the template has it.
const SHELL: &str = "if command -v bash >/dev/null 2>&1; then exec bash -i; else exec sh -i; fi";

/// The terminal.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PtyQuery {
    /// Rows, 1 to 1000; 24 when absent.
    #[param(minimum = 1, maximum = 1000)]
    rows: Option<u16>,
    /// Columns, 1 to 1000; 80 when absent.
    #[param(minimum = 1, maximum = 1000)]
    cols: Option<u16>,
    /// A shell command to run instead of an interactive shell.
    cmd: Option<String>,
    /// User name; root when absent.
    user: Option<String>,
    /// Working directory; the user's home when absent.
    cwd: Option<String>,
}

impl PtyQuery {
    fn into_request(self) -> ExecRequest {
        let mut env = BTreeMap::new();
        name_terminal(&mut env);
        ExecRequest {
            cwd: self.cwd,
            user: self.user,
            env,
            terminal: Some(TerminalSize {
                rows: self.rows.unwrap_or(24),
                cols: self.cols.unwrap_or(80),
            }),
            ..ExecRequest::shell(self.cmd.unwrap_or_else(|| SHELL.to_owned()))
        }
    }
}

/// Opens a shell on a terminal, as a WebSocket.
///
/// Binary messages are the terminal's bytes both ways; text messages inwards are `{"resize": {"rows", "cols"}}` or
/// `{"stdin": "text"}`, outwards `{"exit": code}` (the last) or `{"error": "text"}`.
#[utoipa::path(
    get, path = "/sandboxes/{id}/exec/pty", tag = "commands", operation_id = "exec_pty", params(PtyQuery),
    responses(
        (status = 101, description = "The terminal."),
        (status = 426, description = "The request asks for no WebSocket.", body = ErrorBody),
    )
)]
pub(crate) async fn pty(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Query(query): Query<PtyQuery>,
    upgrade: Socket,
) -> ApiResult<Response> {
    // Started before the upgrade, so that a refusal is an HTTP answer.
    let session = app.control.exec_start(&caller, id, query.into_request(), true).await?;
    let terminal = Interactive {
        control: app.control,
        caller,
        sandbox: id,
        exec: session.exec_id,
        wire: Wire::Terminal,
    };
    Ok(upgrade.serve(move |socket| terminal.serve(socket, session)))
}

/// The same as pty, under the name that the `pandastack` command line asks for.
#[utoipa::path(
    get, path = "/sandboxes/{id}/ssh", tag = "commands", operation_id = "sandbox_ssh", params(PtyQuery),
    responses(
        (status = 101, description = "The terminal."),
        (status = 426, description = "The request asks for no WebSocket.", body = ErrorBody),
    )
)]
pub(crate) async fn ssh(
    app: State<App>,
    caller: Authenticated,
    id: Id<SandboxId>,
    query: Query<PtyQuery>,
    socket: Socket,
) -> ApiResult<Response> {
    pty(app, caller, id, query, socket).await
}
