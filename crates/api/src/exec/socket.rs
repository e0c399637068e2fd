//! One command on a WebSocket, byte for byte: what `atoll exec` and `atoll run` use.

use std::{collections::BTreeMap, time::Duration};

use atoll_control::{Caller, Control, ExecRequest};
use atoll_model::{ErrorCode, SandboxId};
use atoll_protocol::types::TerminalSize;
use axum::{
    extract::{
        State,
        ws::{Message, WebSocket},
    },
    response::Response,
};
use serde::Deserialize;
use serde_json::json;

use super::{
    interactive::{Interactive, Socket, Wire, name_terminal, text},
    wire::ExecBody,
};
use crate::{
    app::{App, Authenticated},
    error::{ApiError, ApiResult, ErrorBody},
    extract::{self, Id},
};

/// How long a client may take to say what to run.
const FIRST_MESSAGE: Duration = Duration::from_secs(30);

/// The first message.
#[derive(Debug, Deserialize)]
struct Start {
    cmd: Option<String>,
    argv: Option<Vec<String>>,
    cwd: Option<String>,
    user: Option<String>,
    env: Option<BTreeMap<String, String>>,
    timeout_seconds: Option<f64>,
    terminal: Option<TerminalSize>,
}

impl Start {
    fn into_request(self) -> ApiResult<ExecRequest> {
        let body = ExecBody {
            cmd: self.cmd,
            argv: self.argv,
            cwd: self.cwd,
            user: self.user,
            env: self.env,
            timeout_seconds: self.timeout_seconds,
            ..ExecBody::default()
        };
        let mut request = body.into_command()?.request;
        request.terminal = self.terminal;
        if request.terminal.is_some() {
            name_terminal(&mut request.env);
        }
        Ok(request)
    }
}

/// Runs one command on a WebSocket, its bytes untouched.
///
/// The first text message says what to run: `{"cmd" | "argv", "cwd"?, "user"?, "env"?, "timeout_seconds"?, "terminal"?: {"rows",
/// "cols"}}`. Then binary messages inwards are standard input and `{"stdin_end": true}` ends it; `{"resize": {"rows", "cols"}}` resizes
/// the terminal. Outwards come `{"start": {"exec_id", "pid"}}`, binary messages with one byte ahead (1 standard output, 2 standard
/// error), and at the end `{"exit": {"exit_code", "duration_ms", ...}}` or `{"error": {"error", "code"}}`. Closing the socket ends the command.
#[utoipa::path(
    get, path = "/sandboxes/{id}/exec/socket", tag = "commands", operation_id = "exec_socket",
    responses(
        (status = 101, description = "The socket."),
        (status = 426, description = "The request asks for no WebSocket.", body = ErrorBody),
    )
)]
pub(crate) async fn socket(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    upgrade: Socket,
) -> ApiResult<Response> {
    // An id that names nothing is a 404 before the upgrade.
    app.control.sandbox_get(&caller, id).await?;
    Ok(upgrade.serve(move |socket| serve(app.control, caller, id, socket)))
}

async fn serve(control: Control, caller: Caller, sandbox: SandboxId, mut socket: WebSocket) {
    let wire = Wire::Command;
    let started = async {
        let request = first_message(&mut socket).await?.into_request()?;
        Ok(control.exec_start(&caller, sandbox, request, true).await?)
    };
    let (session, said) = match started.await {
        Ok(session) => {
            let said = text(&json!({ "start": { "exec_id": session.exec_id, "pid": session.pid } }));
            (Some(session), said)
        }
        Err(error) => (None, wire.complaint(&error)),
    };
    // A client that left is noticed by whoever uses the socket next.
    let _left = socket.send(said).await;
    if let Some(session) = session {
        let exec = session.exec_id;
        let interactive = Interactive {
            control,
            caller,
            sandbox,
            exec,
            wire,
        };
        interactive.serve(socket, session).await;
    } else {
        let _left = socket.send(Message::Close(None)).await;
    }
}

async fn first_message(socket: &mut WebSocket) -> ApiResult<Start> {
    let missing = || {
        ApiError::new(
            ErrorCode::InvalidRequest,
            "the first message must be JSON that says what to run",
        )
    };
    loop {
        let received = tokio::time::timeout(FIRST_MESSAGE, socket.recv()).await;
        match received.map_err(|_| missing())? {
            Some(Ok(Message::Text(text))) => return extract::parse(text.as_bytes(), false),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            _ => return Err(missing()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_says_what_to_run() {
        let parse = |text: &str| extract::parse::<Start>(text.as_bytes(), false)?.into_request();
        let request = parse(r#"{"argv": ["vi"], "env": {"A": "b"}, "terminal": {"rows": 24, "cols": 80}}"#).unwrap();
        assert_eq!(request.env["TERM"], "xterm-256color");
        assert!(parse(r#"{"argv": ["vi"]}"#).unwrap().env.is_empty());
        for wrong in [
            "{}",
            r#"{"argv": []}"#,
            r#"{"cmd": "x", "typo": 1}"#,
            r#"{"cmd": "x", "terminal": {"rows": 1}}"#,
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
