//! A shell on a terminal, over a WebSocket (pandastack-v1 §2.7): binary is the terminal's bytes both ways, text is
//! `{"resize": {"rows", "cols"}}` or `{"stdin": "..."}` inwards and `{"exit": n}` or `{"error": "..."}` outwards.

use std::{collections::BTreeMap, time::Duration};

use atoll_control::{Caller, Control, ExecEvent, ExecInput, ExecOutput, ExecRequest, ExecSession};
use atoll_model::{ExecId, SandboxId};
use atoll_protocol::types::TerminalSize;
use axum::{
    extract::{
        State, WebSocketUpgrade,
        ws::{Message, WebSocket},
    },
    response::Response,
};
use bytes::Bytes;
use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use serde::Deserialize;
use tokio::{sync::mpsc, time::interval};
use utoipa::IntoParams;

use super::wire::ExecOutcome;
use crate::{
    app::{App, Authenticated},
    error::{ApiError, ApiResult, ErrorBody},
    extract::{Id, Query},
};

/// How often the client is pinged (pandastack-v1 §2.7).
const PING_EVERY: Duration = Duration::from_secs(20);
/// The longest message that a client may send, in bytes.
pub(crate) const MAX_MESSAGE: usize = 1 << 20;
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
    fn into_request(self) -> ApiResult<ExecRequest> {
        let size = terminal_size(self.rows.unwrap_or(24), self.cols.unwrap_or(80))?;
        let term = ("TERM".to_owned(), "xterm-256color".to_owned());
        Ok(ExecRequest {
            cwd: self.cwd,
            user: self.user,
            env: BTreeMap::from([term]),
            terminal: Some(size),
            ..ExecRequest::shell(self.cmd.unwrap_or_else(|| SHELL.to_owned()))
        })
    }
}

fn terminal_size(rows: u16, cols: u16) -> ApiResult<TerminalSize> {
    for (field, value) in [("rows", rows), ("cols", cols)] {
        if !(1..=1000).contains(&value) {
            return Err(ApiError::field(
                field,
                format!("{field} must be 1 to 1000, not {value}"),
            ));
        }
    }
    Ok(TerminalSize { rows, cols })
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
    Socket(upgrade): Socket,
) -> ApiResult<Response> {
    let request = query.into_request()?;
    // Started before the upgrade, so that a refusal is an HTTP answer.
    let session = app.control.exec_start(&caller, id, request, true).await?;
    let terminal = Terminal {
        control: app.control,
        caller,
        sandbox: id,
        exec: session.exec_id,
    };
    Ok(upgrade.on_upgrade(move |socket| terminal.serve(socket, session)))
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

/// A WebSocket to be, with bounded messages.
pub(crate) struct Socket(pub(crate) WebSocketUpgrade);

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for Socket {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut http::request::Parts, state: &S) -> ApiResult<Self> {
        let upgrade = WebSocketUpgrade::from_request_parts(parts, state).await;
        let upgrade = upgrade.map_err(|_| {
            ApiError::transport(
                http::StatusCode::UPGRADE_REQUIRED,
                atoll_model::ErrorCode::InvalidRequest,
                "this route speaks WebSocket: ask for an upgrade",
            )
        })?;
        Ok(Self(upgrade.max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE)))
    }
}

struct Terminal {
    control: Control,
    caller: Caller,
    sandbox: SandboxId,
    exec: ExecId,
}

/// A text message from the client.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Inward {
    Resize { rows: u16, cols: u16 },
    Stdin(String),
}

impl Terminal {
    /// Ends when the command does or the client leaves, whichever is first; dropping the session ends the command.
    async fn serve(self, socket: WebSocket, session: ExecSession) {
        let (sink, stream) = socket.split();
        // Input waits while the program does not read; the output goes on meanwhile, or both would wait for each other.
        let (complaints, told) = mpsc::channel(4);
        tokio::select! {
            () = self.inward(stream, session.input, complaints) => {}
            () = outward(sink, session.output, told) => {}
        }
    }

    async fn inward(&self, mut stream: SplitStream<WebSocket>, mut input: ExecInput, complaints: mpsc::Sender<String>) {
        while let Some(Ok(message)) = stream.next().await {
            let done = match message {
                Message::Binary(bytes) => input.write(bytes).await.map_err(ApiError::from),
                Message::Text(text) => self.instructed(&text, &mut input).await,
                Message::Ping(_) | Message::Pong(_) => Ok(()),
                Message::Close(_) => return,
            };
            if let Err(error) = done {
                // The client is told, unless it leaves four complaints unread.
                let _full = complaints.try_send(error.to_string());
            }
        }
    }

    async fn instructed(&self, text: &str, input: &mut ExecInput) -> ApiResult<()> {
        match crate::extract::parse(text.as_bytes(), false)? {
            Inward::Stdin(text) => Ok(input.write(Bytes::from(text)).await?),
            Inward::Resize { rows, cols } => {
                let size = terminal_size(rows, cols)?;
                Ok(self
                    .control
                    .exec_resize(&self.caller, self.sandbox, self.exec, size)
                    .await?)
            }
        }
    }
}

async fn outward(
    mut sink: SplitSink<WebSocket, Message>,
    mut output: ExecOutput,
    mut complaints: mpsc::Receiver<String>,
) {
    let mut ping = interval(PING_EVERY);
    loop {
        let next = output.next();
        let mut next = std::pin::pin!(next);
        let event = loop {
            let message = tokio::select! {
                event = &mut next => break event,
                _ = ping.tick() => Message::Ping(Bytes::new()),
                Some(complaint) = complaints.recv() => told(&serde_json::json!({ "error": complaint })),
            };
            if sink.send(message).await.is_err() {
                return;
            }
        };
        let sent = match event {
            Some(ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes)) => sink.send(Message::Binary(bytes)).await,
            Some(ExecEvent::End(end)) => {
                let last = match ExecOutcome::from(end) {
                    ExecOutcome::Exit(exit) => told(&serde_json::json!({ "exit": exit.code() })),
                    ExecOutcome::Error(error) => told(&serde_json::json!({ "error": error.error, "code": error.code })),
                };
                sink.send(last).await
            }
            None => {
                // The client may be gone already, which is as good.
                let _gone = sink.close().await;
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

pub(crate) fn told(value: &serde_json::Value) -> Message {
    Message::Text(value.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_of_no_or_of_absurd_size_is_refused() {
        for (rows, cols) in [(0, 80), (24, 0), (65_535, 80), (24, 1001)] {
            assert!(terminal_size(rows, cols).is_err());
        }
        assert!(terminal_size(1, 1000).is_ok());
    }

    #[test]
    fn text_messages_are_a_resize_or_input() {
        let parse = |text: &str| crate::extract::parse::<Inward>(text.as_bytes(), false);
        assert!(matches!(
            parse(r#"{"resize":{"rows":1,"cols":2}}"#),
            Ok(Inward::Resize { rows: 1, cols: 2 })
        ));
        assert!(matches!(parse(r#"{"stdin":"x"}"#), Ok(Inward::Stdin(text)) if text == "x"));
        for wrong in [
            "",
            "{}",
            "x",
            r#"{"resize":{"rows":-1,"cols":2}}"#,
            r#"{"resize":null}"#,
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
