//! Many commands on one WebSocket (pandastack-v1 §2.7): `{id, cmd, timeout_seconds?}` and `{id, cancel: true}` inwards,
//! `{id, stream, data}`, `{id, exit}` and `{id, error}` outwards.

use std::collections::HashMap;

use atoll_control::{Caller, Control, ExecText};
use atoll_model::{ErrorCode, SandboxId};
use axum::{
    extract::{
        State,
        ws::{Message, WebSocket},
    },
    response::Response,
};
use futures_util::{SinkExt, StreamExt, stream::SplitSink};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
};

use super::{
    interactive::{Socket, text},
    wire::{ExecBody, ExecOutcome},
};
use crate::{
    app::{App, Authenticated},
    error::{ApiError, ApiResult, ErrorBody},
    extract::Id,
};

/// Commands that one socket may run at once.
const MAX_AT_ONCE: usize = 64;
/// Messages that wait to be sent; the commands wait when the client does not read.
const QUEUE: usize = 64;

/// Runs many commands over one WebSocket.
///
/// Inwards `{"id", "cmd", "timeout_seconds"?}` starts a command under an id of your choice and `{"id", "cancel": true}`
/// ends it; outwards come `{"id", "stream": "stdout" | "stderr", "data"}` and at its end `{"id", "exit"}` or `{"id", "error"}`. Closing
/// the socket ends all of them.
#[utoipa::path(
    get, path = "/sandboxes/{id}/exec/ws", tag = "commands", operation_id = "exec_ws",
    responses(
        (status = 101, description = "The socket."),
        (status = 426, description = "The request asks for no WebSocket.", body = ErrorBody),
    )
)]
pub(crate) async fn mux(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    upgrade: Socket,
) -> ApiResult<Response> {
    // An id that names nothing is a 404 before the upgrade.
    app.control.sandbox_get(&caller, id).await?;
    let runner = Runner {
        control: app.control,
        caller,
        sandbox: id,
    };
    Ok(upgrade.serve(move |socket| runner.serve(socket)))
}

#[derive(Debug, Deserialize)]
struct Inward {
    /// A string or a number, returned as it came.
    id: Value,
    cmd: Option<String>,
    timeout_seconds: Option<f64>,
    #[serde(default)]
    cancel: bool,
}

#[derive(Debug, Clone)]
struct Runner {
    control: Control,
    caller: Caller,
    sandbox: SandboxId,
}

impl Runner {
    /// Ends when the client leaves; the commands end with it, since their tasks are aborted when `running` is dropped.
    async fn serve(self, socket: WebSocket) {
        let (sink, mut stream) = socket.split();
        let (sender, receiver) = mpsc::channel(QUEUE);
        let mut running = Running::default();
        let inward = async {
            while let Some(Ok(message)) = stream.next().await {
                match message {
                    Message::Text(text) => {
                        if let Some(reply) = self.instructed(&text, &mut running, &sender)
                            && sender.send(reply).await.is_err()
                        {
                            return;
                        }
                    }
                    Message::Close(_) => return,
                    Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => {}
                }
            }
        };
        tokio::select! {
            () = inward => {}
            () = outward(sink, receiver) => {}
        }
    }

    /// Does what the message says; gives what is to be answered at once, if anything.
    fn instructed(&self, text: &str, running: &mut Running, sender: &mpsc::Sender<Value>) -> Option<Value> {
        let inward: Inward = match crate::extract::parse(text.as_bytes(), true) {
            Ok(inward) => inward,
            Err(error) => return Some(failed(&Value::Null, &error)),
        };
        let id = inward.id;
        if inward.cancel {
            let ended = running.cancel(&id);
            return ended.then(|| json!({ "id": id, "error": "the command was cancelled", "code": "cancelled" }));
        }
        let body = ExecBody::shell(inward.cmd, inward.timeout_seconds);
        let (runner, sender, name) = (self.clone(), sender.clone(), id.clone());
        let work = async move {
            if let Err(error) = runner.run(&name, body, &sender).await {
                // Nobody reads any more when this fails.
                let _left = sender.send(failed(&name, &error)).await;
            }
        };
        let started = running.start(&id, work);
        started.err().map(|error| failed(&id, &error))
    }

    async fn run(&self, id: &Value, body: ExecBody, sender: &mpsc::Sender<Value>) -> ApiResult<()> {
        let command = body.into_command()?;
        let mut session = self
            .control
            .exec_start(&self.caller, self.sandbox, command.request, false)
            .await?;
        while let Some(event) = session.output.next_text().await {
            let message = match event {
                ExecText::Stdout(data) => json!({ "id": id, "stream": "stdout", "data": data }),
                ExecText::Stderr(data) => json!({ "id": id, "stream": "stderr", "data": data }),
                ExecText::End(end) => match ExecOutcome::from(end) {
                    ExecOutcome::Exit(exit) => json!({ "id": id, "exit": exit.code() }),
                    ExecOutcome::Error(error) => json!({ "id": id, "error": error.error, "code": error.code }),
                },
            };
            if sender.send(message).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn failed(id: &Value, error: &ApiError) -> Value {
    json!({ "id": id, "error": error.to_string(), "code": crate::error::code_word(error.code()) })
}

async fn outward(mut sink: SplitSink<WebSocket, Message>, mut receiver: mpsc::Receiver<Value>) {
    while let Some(message) = receiver.recv().await {
        if sink.send(text(&message)).await.is_err() {
            return;
        }
    }
}

/// The commands of one socket.
#[derive(Default)]
struct Running {
    tasks: JoinSet<()>,
    /// By the JSON text of the id that the client chose.
    by_id: HashMap<String, AbortHandle>,
}

impl Running {
    fn start(&mut self, id: &Value, work: impl Future<Output = ()> + Send + 'static) -> ApiResult<()> {
        while self.tasks.try_join_next().is_some() {}
        self.by_id.retain(|_, task| !task.is_finished());
        if self.by_id.contains_key(&id.to_string()) {
            let message = "a command with this id still runs on this socket";
            return Err(ApiError::new(ErrorCode::Conflict, message));
        }
        if self.by_id.len() >= MAX_AT_ONCE {
            let message = format!("{MAX_AT_ONCE} commands run on this socket; wait for one to end");
            return Err(ApiError::new(ErrorCode::TooMany, message));
        }
        let task = self.tasks.spawn(work);
        self.by_id.insert(id.to_string(), task);
        Ok(())
    }

    /// Ending the task drops its session, which ends the command. Says whether there was one.
    fn cancel(&mut self, id: &Value) -> bool {
        let task = self.by_id.remove(&id.to_string());
        let running = task.filter(|task| !task.is_finished());
        if let Some(task) = &running {
            task.abort();
        }
        running.is_some()
    }
}
