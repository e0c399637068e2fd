//! A command as a stream of events.

use atoll_control::{ExecOutput, ExecSession, ExecText};
use atoll_model::{ExecId, SandboxId};
use axum::{extract::State, response::Response};
use futures_util::{Stream, future::BoxFuture, stream};
use http::{HeaderMap, HeaderValue};
use serde::Serialize;
use utoipa::ToSchema;

use super::wire::{ExecBody, ExecOutcome};
use crate::{
    app::{App, Authenticated},
    error::{ApiResult, ErrorBody},
    extract::{Id, Json},
    sse::{self, Frame, StreamEvent},
};

/// What `stdout` and `stderr` carry. No character is cut between two chunks.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChunkData {
    pub(crate) chunk: String,
}

/// Runs a command and streams what it writes.
///
/// Events: `stdout` and `stderr` `{"chunk"}`, and as the last one either `exit` `{"exit_code", ...}` or `error`
/// `{"error", "code"}`. The header `X-Exec-Id` names the command. A client that goes away ends it. With `Accept:
/// application/x-ndjson` each event is one line `{"event", "data"}`.
#[utoipa::path(
    post, path = "/sandboxes/{id}/exec/stream", tag = "commands", operation_id = "exec_stream", request_body = ExecBody,
    responses((status = 200, description = "The events.", content(
        (StreamEvent = "text/event-stream"),
        (StreamEvent = "application/x-ndjson"),
    )))
)]
pub(crate) async fn stream(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    headers: HeaderMap,
    Json(body): Json<ExecBody>,
) -> ApiResult<Response> {
    let command = body.into_command()?;
    let stdin = command.collect.stdin;
    let session = app
        .control
        .exec_start(&caller, id, command.request, stdin.is_some())
        .await?;
    let ExecSession {
        exec_id,
        mut input,
        output,
        ..
    } = session;
    let fed = async move {
        if let Some(bytes) = stdin {
            // A command that ends without reading its input is no fault.
            let _unread = input.write(bytes).await;
        }
        input.end();
    };
    Ok(named(exec_id, sse::respond_as(&headers, frames(output, fed))))
}

/// Follows a command that runs or ran, from the retained tail of its output on.
#[utoipa::path(
    get, path = "/sandboxes/{id}/exec/{exec_id}/stream", tag = "commands", operation_id = "exec_attach",
    responses(
        (status = 200, description = "The events, as for a new command.", content(
            (StreamEvent = "text/event-stream"),
            (StreamEvent = "application/x-ndjson"),
        )),
        (status = 404, description = "No such sandbox or command.", body = ErrorBody),
    )
)]
pub(crate) async fn attach(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Id(exec): Id<ExecId>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let session = app.control.exec_attach(&caller, id, exec).await?;
    let ExecSession {
        exec_id, input, output, ..
    } = session;
    // The input stays open, and unused, as long as the output is followed.
    let held = async move {
        let _input = input;
        std::future::pending::<()>().await;
    };
    Ok(named(exec_id, sse::respond_as(&headers, frames(output, held))))
}

fn named(exec: ExecId, mut response: Response) -> Response {
    if let Ok(value) = HeaderValue::from_str(&exec.to_string()) {
        response.headers_mut().insert("x-exec-id", value);
    }
    response
}

/// The command's events, with work beside them that goes on only as long as somebody reads them.
fn frames(output: ExecOutput, beside: impl Future<Output = ()> + Send + 'static) -> impl Stream<Item = Frame> + Send {
    let beside: Option<BoxFuture<'static, ()>> = Some(Box::pin(beside));
    stream::unfold((output, beside), |(mut output, mut beside)| async move {
        let event = loop {
            let Some(work) = &mut beside else {
                break output.next_text().await;
            };
            tokio::select! {
                event = output.next_text() => break event,
                () = work => beside = None,
            }
        };
        event.map(|event| (frame(event), (output, beside)))
    })
}

fn frame(event: ExecText) -> Frame {
    match event {
        ExecText::Stdout(chunk) => Frame::named("stdout", &ChunkData { chunk }),
        ExecText::Stderr(chunk) => Frame::named("stderr", &ChunkData { chunk }),
        ExecText::End(end) => match ExecOutcome::from(end) {
            ExecOutcome::Exit(data) => Frame::named("exit", &data),
            ExecOutcome::Error(data) => Frame::named("error", &data),
        },
    }
}
