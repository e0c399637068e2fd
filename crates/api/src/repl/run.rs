//! Cells: collected, and as a stream of events.

use std::collections::BTreeMap;

use atoll_control::{CellReport, CellRequest, CellSession, CellText, Held};
use atoll_model::{ContextId, Outcome, Refusal, SandboxId, limits::DEFAULT_CELL_TIMEOUT_SECONDS};
use atoll_protocol::types::{CellEnd, CellError};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use futures_util::{Stream, stream};
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    of_session,
    results::{Bundle, bundle},
};
use crate::{
    app::{App, Authenticated},
    error::{ApiError, ApiResult, ErrorBody, code_word},
    exec::{ChunkData, append_line, millis, output_limit},
    extract::{Id, Json},
    output::{NO_EXIT, OutcomeFields, OutputFields, TIMEOUT_EXIT, ending_in_words},
    seconds,
    slow::{self, SlowAnswer},
    sse::{self, Frame, StreamEvent},
};

/// A cell to run.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct RunBody {
    /// The source. An empty cell is an empty success.
    #[schema(example = "1 + 1")]
    code: String,
    /// Deadline in milliseconds of running time; 30000 when absent.
    #[schema(exclusive_minimum = 0.0, maximum = 86_400_000.0)]
    timeout_ms: Option<f64>,
    /// The same in seconds, fractions allowed. Give one of the two.
    #[schema(exclusive_minimum = 0.0, maximum = 86_400.0)]
    timeout_seconds: Option<f64>,
    /// Environment of this run only.
    env: Option<BTreeMap<String, String>>,
    /// How many bytes of each stream to keep for the answer, half from the head, half from the tail; 1 MiB when absent.
    #[schema(minimum = 0, maximum = 16_777_216)]
    max_output_bytes: Option<u64>,
}

impl RunBody {
    fn into_request(self) -> ApiResult<CellRequest> {
        if self.timeout_ms.is_some() && self.timeout_seconds.is_some() {
            return Err(ApiError::field(
                "timeout_ms",
                "give either timeout_ms or timeout_seconds, not both",
            ));
        }
        let millis = seconds::from_millis("timeout_ms", self.timeout_ms)?;
        let seconds = seconds::from_seconds("timeout_seconds", self.timeout_seconds)?;
        Ok(CellRequest {
            code: self.code,
            timeout: millis.or(seconds),
            env: self.env.unwrap_or_default(),
            keep: output_limit(self.max_output_bytes)?,
        })
    }
}

/// A cell that ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunReply {
    /// What it wrote to standard output.
    stdout: String,
    /// What it wrote to standard error, and the traceback when it raised.
    stderr: String,
    /// 0; 1 for an exception, `n` for `exit(n)`, 124 when its deadline passed, -1 when it has none.
    exit: i32,
    /// The same as `exit`.
    exit_code: i32,
    /// Its results in order of appearance, each a map of MIME type to text: images in base64, JSON types as JSON text.
    results: Vec<Bundle>,
    /// The traceback when it raised; otherwise one sentence when it did not end by itself. Absent when all went well.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The class of the exception.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_name: Option<String>,
    /// The text of the exception.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_value: Option<String>,
    /// The code of a refusal that came after the answer had begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// Results left out because all together were too large.
    results_dropped: u64,
    /// Which cell of the context this was, from 1; 0 when it never started.
    execution_count: u64,
    /// How long it ran, in milliseconds, waiting in the queue not counted.
    duration_ms: u64,
    /// How it ended.
    #[serde(flatten)]
    outcome: OutcomeFields,
    /// What became of its output.
    #[serde(flatten)]
    output: OutputFields,
}

impl From<CellReport> for RunReply {
    fn from(report: CellReport) -> Self {
        let exit = exit(&report.outcome, report.exit_code);
        let output = OutputFields::of(&report.stdout, &report.stderr);
        let mut stderr = report.stderr.text;
        let note = ending_in_words("cell", &report.outcome);
        if let Some(text) = report.error.as_ref().map(|error| &error.traceback).or(note.as_ref())
            && !stderr.trim_end().ends_with(text.trim_end())
        {
            // Some agents read standard error only, others `error` only; both must see it (pandastack-v1 §4.5).
            append_line(&mut stderr, text.trim_end());
        }
        Self {
            stdout: report.stdout.text,
            stderr,
            exit,
            exit_code: exit,
            results: report.results.into_iter().map(bundle).collect(),
            error: report.error.as_ref().map(|error| error.traceback.clone()).or(note),
            error_name: report.error.as_ref().map(|error| error.name.clone()),
            error_value: report.error.map(|error| error.value),
            code: None,
            results_dropped: report.results_dropped,
            execution_count: report.execution_count,
            duration_ms: millis(report.duration),
            outcome: OutcomeFields::from(&report.outcome),
            output,
        }
    }
}

/// The exit code on the wire: a cell that did not end by itself never has the 0 of a success.
fn exit(outcome: &Outcome, code: i32) -> i32 {
    match outcome {
        Outcome::Ok | Outcome::Error => code,
        Outcome::Timeout { .. } => TIMEOUT_EXIT,
        _ if code != 0 => code,
        _ => NO_EXIT,
    }
}

/// Runs a cell and answers with all that it gave.
///
/// A cell that raises is a 200. After 20 seconds without a result a 200 is begun and spaces are sent ahead of the
/// JSON; a deadline that passes later is told in it (`exit` 124, `outcome` "timeout"). Cells of one context run in the order
/// of their calls. A client that goes away interrupts its cell.
#[utoipa::path(
    post, path = "/sandboxes/{id}/repl/sessions/{sid}/run", tag = "code", operation_id = "cell_run", request_body = RunBody,
    responses(
        (status = 200, description = "It ended.", body = RunReply),
        (status = 504, description = "Its deadline passed, within 20 seconds. `result` has what it gave so far.", body = ErrorBody),
    )
)]
pub(crate) async fn run(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Id(context): Id<ContextId>,
    Json(body): Json<RunBody>,
) -> ApiResult<Response> {
    let request = body.into_request()?;
    let default = std::time::Duration::from_secs(DEFAULT_CELL_TIMEOUT_SECONDS);
    let deadline = request.timeout.unwrap_or(default);
    let work = async move {
        let (ran, share) = Held::split(app.control.cell_run(&caller, id, context, request).await);
        (Ran(ran.map_err(of_session)), share)
    };
    Ok(slow::answer(Some(deadline), work).await)
}

struct Ran(Result<CellReport, Refusal>);

impl SlowAnswer for Ran {
    type Body = RunReply;

    fn in_time(self) -> Response {
        let report = match self.0 {
            Ok(report) => report,
            Err(refusal) => return ApiError::from(refusal).into_response(),
        };
        let timed_out = matches!(report.outcome, Outcome::Timeout { .. });
        let message = timed_out.then(|| ending_in_words("cell", &report.outcome)).flatten();
        let reply = RunReply::from(report);
        match message {
            Some(message) => ApiError::timeout(message, &reply).into_response(),
            None => axum::Json(reply).into_response(),
        }
    }

    fn late(self) -> RunReply {
        match self.0 {
            Ok(report) => report.into(),
            Err(refusal) => RunReply {
                stdout: String::new(),
                stderr: format!("{}\n", refusal.message),
                exit: NO_EXIT,
                exit_code: NO_EXIT,
                results: Vec::new(),
                error_name: None,
                error_value: None,
                code: Some(code_word(refusal.code)),
                results_dropped: 0,
                execution_count: 0,
                duration_ms: 0,
                outcome: OutcomeFields::refused(refusal.code),
                output: OutputFields::default(),
                error: Some(refusal.message),
            },
        }
    }
}

/// What `result` carries in a stream of events.
#[derive(Debug, Serialize, ToSchema)]
struct ResultData {
    data: Bundle,
    is_last_expression: bool,
}

/// What `exit` carries in a stream of events.
#[derive(Debug, Serialize, ToSchema)]
struct CellExitData {
    exit_code: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_value: Option<String>,
    execution_count: u64,
    duration_ms: u64,
    #[serde(flatten)]
    outcome: OutcomeFields,
    #[serde(flatten)]
    output: OutputFields,
}

impl From<CellEnd> for CellExitData {
    fn from(end: CellEnd) -> Self {
        let (name, value, traceback) = match end.error {
            Some(CellError { name, value, traceback }) => (Some(name), Some(value), Some(traceback)),
            None => (None, None, None),
        };
        Self {
            exit_code: exit(&end.outcome, end.exit_code),
            error: traceback.or_else(|| ending_in_words("cell", &end.outcome)),
            error_name: name,
            error_value: value,
            execution_count: end.execution_count,
            duration_ms: end.duration_ms,
            outcome: OutcomeFields::from(&end.outcome),
            output: OutputFields::summed(&end.stdout, &end.stderr),
        }
    }
}

/// Runs a cell and streams what it gives.
///
/// Events: `stdout` and `stderr` `{"chunk"}`, `result` `{"data": {MIME type: text}, "is_last_expression"}`, and `exit`
/// as the last one, however it ended. A client that goes away interrupts the cell. With `Accept: application/x-ndjson`
/// each event is one line `{"event", "data"}`.
#[utoipa::path(
    post, path = "/sandboxes/{id}/repl/sessions/{sid}/run/stream", tag = "code", operation_id = "cell_stream",
    request_body = RunBody,
    responses((status = 200, description = "The events.", content(
        (StreamEvent = "text/event-stream"),
        (StreamEvent = "application/x-ndjson"),
    )))
)]
pub(crate) async fn stream(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Id(context): Id<ContextId>,
    headers: HeaderMap,
    Json(body): Json<RunBody>,
) -> ApiResult<Response> {
    let session = app.control.cell_start(&caller, id, context, body.into_request()?).await;
    Ok(sse::respond_as(&headers, frames(session.map_err(of_session)?)))
}

fn frames(session: CellSession) -> impl Stream<Item = Frame> + Send {
    stream::unfold(session, |mut session| async move {
        let frame = match session.next_text().await? {
            CellText::Stdout(chunk) => Frame::named("stdout", &ChunkData { chunk }),
            CellText::Stderr(chunk) => Frame::named("stderr", &ChunkData { chunk }),
            CellText::Result(result) => {
                let is_last_expression = result.is_last_expression;
                let data = bundle(result);
                Frame::named(
                    "result",
                    &ResultData {
                        data,
                        is_last_expression,
                    },
                )
            }
            CellText::End(end) => Frame::named("exit", &CellExitData::from(end)),
        };
        Some((frame, session))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use atoll_control::OutputText;
    use http::StatusCode;

    use super::*;

    fn report(outcome: Outcome, stderr: &str, error: Option<&str>) -> CellReport {
        let text = |text: &str| OutputText {
            text: text.to_owned(),
            ..OutputText::default()
        };
        CellReport {
            exit_code: i32::from(error.is_some()),
            error: error.map(|traceback| CellError {
                name: "ValueError".into(),
                value: "x".into(),
                traceback: traceback.into(),
            }),
            outcome,
            stdout: text("before"),
            stderr: text(stderr),
            results: Vec::new(),
            results_dropped: 0,
            execution_count: 1,
            duration: Duration::from_millis(5),
        }
    }

    #[test]
    fn a_traceback_is_in_both_places_once() {
        for stderr in ["", "warned", "Traceback\nValueError: x\n"] {
            let reply = RunReply::from(report(Outcome::Error, stderr, Some("Traceback\nValueError: x\n")));
            assert_eq!(reply.stderr.matches("ValueError: x").count(), 1, "{stderr:?}");
            assert_eq!(reply.error.as_deref(), Some("Traceback\nValueError: x\n"));
            assert_eq!((reply.exit, reply.exit_code), (1, 1));
        }
    }

    #[test]
    fn what_did_not_end_by_itself_is_no_success_and_says_why() {
        let reply = RunReply::from(report(
            Outcome::ContextDied {
                signal: Some(9),
                exit_code: None,
            },
            "",
            None,
        ));
        assert_eq!(reply.exit, NO_EXIT);
        assert!(reply.stderr.contains("signal 9") && reply.error.unwrap().contains("variables are lost"));
    }

    #[test]
    fn a_timeout_is_a_504_in_time_and_124_when_late() {
        let timeout = || {
            let outcome = Outcome::Timeout {
                timeout_ms: 60_000,
                context_restarted: false,
            };
            Ran(Ok(report(outcome, "", None)))
        };
        assert_eq!(timeout().in_time().status(), StatusCode::GATEWAY_TIMEOUT);
        let late = timeout().late();
        assert_eq!(
            (late.exit, late.error.as_deref()),
            (124, Some("cell timeout after 60s"))
        );
    }

    #[test]
    fn a_cell_names_its_wrong_field() {
        for (json, field) in [
            ("{}", "code"),
            (r#"{"code": 1}"#, "code"),
            (r#"{"code": "", "timeout_ms": -1}"#, "timeout_ms"),
            (r#"{"code": "", "timeout_ms": 1, "timeout_seconds": 1}"#, "timeout_ms"),
        ] {
            let parsed = crate::extract::parse::<RunBody>(json.as_bytes(), false).and_then(RunBody::into_request);
            assert_eq!(parsed.unwrap_err().body("r").field.as_deref(), Some(field), "{json}");
        }
    }
}
