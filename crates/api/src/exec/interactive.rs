//! A command on a WebSocket: its bytes both ways, and JSON in text messages beside.

use std::{collections::BTreeMap, time::Duration};

use atoll_control::{Caller, Control, ExecEvent, ExecInput, ExecOutput, ExecSession};
use atoll_model::{ErrorCode, ExecId, SandboxId};
use atoll_protocol::types::{ExecEnd, TerminalSize};
use axum::{
    extract::{
        FromRequestParts, WebSocketUpgrade,
        ws::{Message, WebSocket},
    },
    response::Response,
};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{
    SinkExt, StreamExt,
    future::BoxFuture,
    stream::{SplitSink, SplitStream},
};
use http::{StatusCode, request::Parts};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::interval};

use super::wire::ExecOutcome;
use crate::{
    error::{ApiError, ApiResult, code_word},
    extract, key_end,
};

/// How often the client is pinged (pandastack-v1 §2.7).
const PING_EVERY: Duration = Duration::from_secs(20);
/// The longest message that a client may send, in bytes.
const MAX_MESSAGE: usize = 1 << 20;
/// Complaints about the client's messages that wait to be sent; more are dropped.
const COMPLAINTS: usize = 4;

/// A WebSocket to be, with bounded messages; it is closed when the key that opened it ends.
pub(crate) struct Socket {
    upgrade: WebSocketUpgrade,
    key_ended: BoxFuture<'static, ()>,
}

impl Socket {
    /// The answer that upgrades; `work` is dropped, and the socket with it, when the key ends.
    pub(crate) fn serve<W: Future<Output = ()> + Send + 'static>(
        self,
        work: impl FnOnce(WebSocket) -> W + Send + 'static,
    ) -> Response {
        self.upgrade.on_upgrade(async move |socket| {
            tokio::select! {
                () = work(socket) => {}
                () = self.key_ended => {}
            }
        })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Socket {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResult<Self> {
        let upgrade = WebSocketUpgrade::from_request_parts(parts, state).await;
        let upgrade = upgrade.map_err(|_| {
            ApiError::transport(
                StatusCode::UPGRADE_REQUIRED,
                ErrorCode::InvalidRequest,
                "this route speaks WebSocket: ask for an upgrade",
            )
        })?;
        Ok(Self {
            upgrade: upgrade.max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE),
            key_ended: key_end::of_request(parts),
        })
    }
}

/// How output and its end are written; input is the same for all.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wire {
    /// Binary messages are the terminal's bytes; `{"exit": code}` or `{"error": text, "code"}` ends it.
    Terminal,
    /// Binary messages have one byte ahead, 1 for standard output and 2 for standard error; `{"exit": {...}}` or
    /// `{"error": {"error", "code"}}` ends it.
    Command,
}

impl Wire {
    fn output(self, stream: u8, bytes: Bytes) -> Message {
        match self {
            Self::Terminal => Message::Binary(bytes),
            Self::Command => {
                let mut marked = BytesMut::with_capacity(bytes.len() + 1);
                marked.put_u8(stream);
                marked.put(bytes);
                Message::Binary(marked.freeze())
            }
        }
    }

    fn end(self, end: ExecEnd) -> Message {
        text(&match (self, ExecOutcome::from(end)) {
            (Self::Terminal, ExecOutcome::Exit(exit)) => json!({ "exit": exit.code() }),
            (Self::Terminal, ExecOutcome::Error(error)) => json!({ "error": error.error, "code": error.code }),
            (Self::Command, ExecOutcome::Exit(exit)) => json!({ "exit": exit }),
            (Self::Command, ExecOutcome::Error(error)) => json!({ "error": error }),
        })
    }

    pub(crate) fn complaint(self, error: &ApiError) -> Message {
        let (message, code) = (error.to_string(), code_word(error.code()));
        text(&match self {
            Self::Terminal => json!({ "error": message, "code": code }),
            Self::Command => json!({ "error": { "error": message, "code": code } }),
        })
    }
}

/// A text message.
pub(crate) fn text(value: &Value) -> Message {
    Message::Text(value.to_string().into())
}

/// Programs on a terminal want to know which; a caller's own choice stays.
pub(crate) fn name_terminal(env: &mut BTreeMap<String, String>) {
    env.entry("TERM".to_owned())
        .or_insert_with(|| "xterm-256color".to_owned());
}

/// A text message from the client.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Inward {
    Resize { rows: u16, cols: u16 },
    Stdin(String),
    StdinEnd(bool),
}

/// One command and the socket that it is used through.
pub(crate) struct Interactive {
    pub(crate) control: Control,
    pub(crate) caller: Caller,
    pub(crate) sandbox: SandboxId,
    pub(crate) exec: ExecId,
    pub(crate) wire: Wire,
}

impl Interactive {
    /// Ends when the command does or the client leaves, whichever is first; dropping the session ends the command.
    pub(crate) async fn serve(self, socket: WebSocket, session: ExecSession) {
        let (sink, stream) = socket.split();
        // Input waits while the program does not read; the output goes on meanwhile, or both would wait for each other.
        let (complaints, told) = mpsc::channel(COMPLAINTS);
        tokio::select! {
            () = self.inward(stream, session.input, complaints) => {}
            () = self.outward(sink, session.output, told) => {}
        }
    }

    async fn inward(
        &self,
        mut stream: SplitStream<WebSocket>,
        mut input: ExecInput,
        complaints: mpsc::Sender<Message>,
    ) {
        while let Some(Ok(message)) = stream.next().await {
            let done = match message {
                Message::Binary(bytes) => input.write(bytes).await.map_err(ApiError::from),
                Message::Text(text) => self.instructed(&text, &mut input).await,
                Message::Ping(_) | Message::Pong(_) => Ok(()),
                Message::Close(_) => return,
            };
            if let Err(error) = done {
                // The client is told, unless it leaves its complaints unread.
                let _full = complaints.try_send(self.wire.complaint(&error));
            }
        }
    }

    async fn instructed(&self, text: &str, input: &mut ExecInput) -> ApiResult<()> {
        match extract::parse(text.as_bytes(), false)? {
            Inward::Stdin(text) => Ok(input.write(Bytes::from(text)).await?),
            Inward::StdinEnd(ended) => {
                if ended {
                    input.end();
                }
                Ok(())
            }
            Inward::Resize { rows, cols } => {
                let size = TerminalSize { rows, cols };
                let resized = self.control.exec_resize(&self.caller, self.sandbox, self.exec, size);
                Ok(resized.await?)
            }
        }
    }

    async fn outward(
        &self,
        mut sink: SplitSink<WebSocket, Message>,
        mut output: ExecOutput,
        mut complaints: mpsc::Receiver<Message>,
    ) {
        let mut ping = interval(PING_EVERY);
        loop {
            let message = tokio::select! {
                event = output.next() => match event {
                    Some(ExecEvent::Stdout(bytes)) => self.wire.output(1, bytes),
                    Some(ExecEvent::Stderr(bytes)) => self.wire.output(2, bytes),
                    Some(ExecEvent::End(end)) => self.wire.end(end),
                    None => break,
                },
                Some(complaint) = complaints.recv() => complaint,
                _ = ping.tick() => Message::Ping(Bytes::new()),
            };
            if sink.send(message).await.is_err() {
                return;
            }
        }
        // The client may be gone already, which is as good.
        let _gone = sink.close().await;
    }
}

#[cfg(test)]
mod tests {
    use atoll_model::Outcome;
    use atoll_protocol::types::ExecEnd;

    use super::*;

    fn ended(outcome: Outcome, exit_code: Option<i32>) -> ExecEnd {
        ExecEnd {
            outcome,
            exit_code,
            signal: None,
            duration_ms: 5,
            stdout: Default::default(),
            stderr: Default::default(),
        }
    }

    fn said(message: Message) -> Value {
        serde_json::from_str(message.to_text().unwrap()).unwrap()
    }

    #[test]
    fn text_messages_are_a_resize_or_input() {
        let parse = |text: &str| extract::parse::<Inward>(text.as_bytes(), false);
        assert!(matches!(
            parse(r#"{"resize":{"rows":1,"cols":2}}"#),
            Ok(Inward::Resize { rows: 1, cols: 2 })
        ));
        assert!(matches!(parse(r#"{"stdin":"x"}"#), Ok(Inward::Stdin(text)) if text == "x"));
        assert!(matches!(parse(r#"{"stdin_end":true}"#), Ok(Inward::StdinEnd(true))));
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

    #[test]
    fn a_command_marks_its_streams_and_a_terminal_has_but_one() {
        let bytes = || Bytes::from_static(b"hi");
        assert_eq!(Wire::Terminal.output(1, bytes()), Message::Binary(bytes()));
        assert_eq!(
            Wire::Command.output(2, bytes()),
            Message::Binary(Bytes::from_static(b"\x02hi"))
        );
    }

    #[test]
    fn the_end_is_a_code_or_why_there_is_none() {
        assert_eq!(
            said(Wire::Terminal.end(ended(Outcome::Ok, Some(3)))),
            json!({ "exit": 3 })
        );
        let exit = said(Wire::Command.end(ended(Outcome::Ok, Some(3))));
        assert_eq!(
            (&exit["exit"]["exit_code"], &exit["exit"]["duration_ms"]),
            (&json!(3), &json!(5))
        );
        let lost = said(Wire::Command.end(ended(Outcome::AgentLost, None)));
        assert_eq!(lost["error"]["code"], "agent_lost");
    }
}
