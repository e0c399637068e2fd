//! Watching one sandbox: what its programs print, what happens to it, what it uses. None of it counts as use.

use atoll_control::{EventFollow, EventView, LogFollow, LogStream};
use atoll_model::SandboxId;
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use futures_util::{Stream, StreamExt, stream};
use http::header;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    app::{App, Authenticated},
    error::{ApiError, ApiResult},
    extract::{Id, Query},
    sse::{self, Frame, StreamEvent},
};

/// Events in one answer when the caller names no number (pandastack-v1 §2.8).
const DEFAULT_TAIL: u32 = 50;
/// A line that has no end yet is sent once it is this long, in bytes.
const LONG_LINE: usize = 8192;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(logs))
        .routes(routes!(events))
        .routes(routes!(usage))
}

/// The clients of the contract say `true` and `false`, or `1` and `0` (pandastack-v1 §2.8).
pub(crate) fn flag(field: &str, value: Option<&str>) -> ApiResult<bool> {
    match value {
        None | Some("0" | "false") => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(other) => Err(ApiError::field(
            field,
            format!("{field} must be true or false, not \"{other}\""),
        )),
    }
}

/// Which output, and whether to stay.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LogQuery {
    /// `stdout`, `stderr` or `both`; `both` when absent.
    #[param(pattern = "^(stdout|stderr|both)$")]
    stream: Option<String>,
    /// `true` or `1`: go on with what is printed from now on, as events.
    #[param(pattern = "^(true|false|1|0)$")]
    follow: Option<String>,
}

/// Gives what a sandbox's commands and cells printed last, at most 64 KiB, as plain text.
///
/// With `follow` the same as events whose data is `{"line"}`, and then each line as it is printed, until the
/// sandbox ends.
#[utoipa::path(
    get, path = "/sandboxes/{id}/logs", tag = "watching", operation_id = "sandbox_logs", params(LogQuery),
    responses((status = 200, description = "The output.", content(
        (String = "text/plain"),
        (StreamEvent = "text/event-stream"),
    )))
)]
async fn logs(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Query(query): Query<LogQuery>,
) -> ApiResult<Response> {
    let wanted = match query.stream.as_deref() {
        None | Some("both") => LogStream::Both,
        Some("stdout") => LogStream::Stdout,
        Some("stderr") => LogStream::Stderr,
        Some(_) => return Err(ApiError::field("stream", "stream must be stdout, stderr or both")),
    };
    if !flag("follow", query.follow.as_deref())? {
        let text = app.control.log_tail(&caller, id, wanted).await?;
        return Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response());
    }
    let follow = app.control.log_follow(&caller, id, wanted).await?;
    Ok(sse::respond(lines(follow)))
}

#[derive(Debug, Serialize)]
struct LineData {
    line: String,
}

fn lines(follow: LogFollow) -> impl Stream<Item = Frame> + Send {
    let batches = stream::unfold(Some((Lines::default(), follow)), |state| async move {
        let (mut lines, mut follow) = state?;
        match follow.next().await {
            Some(text) => Some((lines.push(&text), Some((lines, follow)))),
            None => Some((lines.rest().into_iter().collect(), None)),
        }
    });
    batches
        .flat_map(stream::iter)
        .map(|line| Frame::unnamed(&LineData { line }))
}

/// Cuts text into lines; the last one waits for its end.
#[derive(Debug, Default)]
struct Lines {
    unfinished: String,
}

impl Lines {
    fn push(&mut self, text: &str) -> Vec<String> {
        self.unfinished.push_str(text);
        let whole = self.unfinished.rfind('\n').map_or(0, |at| at + 1);
        let rest = self.unfinished.split_off(whole);
        let mut lines: Vec<String> = self.unfinished.split_inclusive('\n').map(str::to_owned).collect();
        self.unfinished = rest;
        if self.unfinished.len() > LONG_LINE {
            lines.push(std::mem::take(&mut self.unfinished));
        }
        lines
    }

    fn rest(self) -> Option<String> {
        (!self.unfinished.is_empty()).then_some(self.unfinished)
    }
}

/// Something that happened to a sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SandboxEvent {
    /// Counts up over all sandboxes.
    sequence: i64,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    time: OffsetDateTime,
    /// To which.
    sandbox_id: String,
    /// As in `sandbox.running`.
    #[serde(rename = "type")]
    kind: String,
    /// Facts.
    #[schema(value_type = Object)]
    payload: serde_json::Value,
}

impl From<EventView> for SandboxEvent {
    fn from(view: EventView) -> Self {
        Self {
            sequence: view.sequence,
            time: view.at,
            sandbox_id: view.sandbox.to_string(),
            kind: view.kind,
            payload: view.payload,
        }
    }
}

/// What happened to a sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SandboxEvents {
    /// Oldest first.
    events: Vec<SandboxEvent>,
}

/// How many events, and whether to stay.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct EventQuery {
    /// The newest so many; 50 when absent.
    #[param(minimum = 1, maximum = 1000)]
    tail: Option<u32>,
    /// `true` or `1`: go on with what happens from now on, as events named `event`.
    #[param(pattern = "^(true|false|1|0)$")]
    follow: Option<String>,
}

/// Lists what happened to a sandbox, or follows it.
#[utoipa::path(
    get, path = "/sandboxes/{id}/events", tag = "watching", operation_id = "sandbox_events", params(EventQuery),
    responses((status = 200, description = "The events.", content(
        (SandboxEvents = "application/json"),
        (StreamEvent = "text/event-stream"),
    )))
)]
async fn events(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Query(query): Query<EventQuery>,
) -> ApiResult<Response> {
    let tail = query.tail.unwrap_or(DEFAULT_TAIL);
    if !flag("follow", query.follow.as_deref())? {
        let events = app.control.event_list(&caller, id, tail).await?;
        let events = events.into_iter().map(SandboxEvent::from).collect();
        return Ok(axum::Json(SandboxEvents { events }).into_response());
    }
    // Followed first and listed then; what comes both ways is told once.
    let follow = app.control.event_follow(&caller, id).await?;
    let past = app.control.event_list(&caller, id, tail).await?;
    let told = past.last().map_or(i64::MIN, |event| event.sequence);
    let frames = stream::iter(past)
        .chain(followed(follow, told))
        .map(|view| Frame::named("event", &SandboxEvent::from(view)));
    Ok(sse::respond(frames))
}

fn followed(follow: EventFollow, after: i64) -> impl Stream<Item = EventView> + Send {
    stream::unfold(follow, move |mut follow| async move {
        loop {
            let event = follow.next().await?;
            if event.sequence > after {
                return Some((event, follow));
            }
        }
    })
}

/// What the host holds for a sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SandboxUsage {
    /// Seconds since it was created.
    uptime_seconds: u64,
    /// Processor time used so far, over the time since it was created, in percent of one core.
    host_cpu_percent: f64,
    /// Processor time used so far, in microseconds.
    cpu_micros: u64,
    /// Memory held now, in bytes.
    host_rss_bytes: u64,
    /// The most memory ever held, in bytes.
    memory_peak_bytes: u64,
    /// What it wrote to its disk and the host holds, in bytes.
    disk_bytes: u64,
    /// Processes of the host that serve it.
    host_processes: u32,
}

/// Measures a sandbox from outside.
#[utoipa::path(
    get, path = "/sandboxes/{id}/metrics", tag = "watching", operation_id = "sandbox_usage",
    responses((status = 200, description = "What it uses.", body = SandboxUsage))
)]
async fn usage(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
) -> ApiResult<axum::Json<SandboxUsage>> {
    let view = app.control.sandbox_get(&caller, id).await?;
    let usage = app.control.sandbox_usage(&caller, id).await?;
    let uptime = (OffsetDateTime::now_utc() - view.created_at)
        .as_seconds_f64()
        .max(0.001);
    Ok(axum::Json(SandboxUsage {
        uptime_seconds: uptime as u64,
        host_cpu_percent: (usage.cpu_micros as f64 / uptime / 1e6 * 1e4).round() / 100.0,
        cpu_micros: usage.cpu_micros,
        host_rss_bytes: usage.memory_bytes,
        memory_peak_bytes: usage.memory_peak_bytes,
        disk_bytes: usage.disk_bytes,
        host_processes: usage.host_processes,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_its_lines_wherever_it_was_cut_before() {
        let mut lines = Lines::default();
        assert_eq!(lines.push("a\n\nb"), ["a\n", "\n"]);
        assert_eq!(lines.push("c\n"), ["bc\n"]);
        assert_eq!(lines.push("d"), Vec::<String>::new());
        assert_eq!(lines.rest().as_deref(), Some("d"));
    }

    #[test]
    fn a_line_without_end_is_not_held_for_ever() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(&"x".repeat(LONG_LINE + 1)).len(), 1);
        assert_eq!(lines.rest(), None);
    }

    #[test]
    fn both_spellings_of_a_flag_are_taken() {
        for (value, expected) in [
            (None, false),
            (Some("true"), true),
            (Some("1"), true),
            (Some("0"), false),
        ] {
            assert_eq!(flag("follow", value).unwrap(), expected);
        }
        assert!(flag("follow", Some("yes")).is_err());
    }
}
