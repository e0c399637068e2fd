//! Server-sent events as the known clients parse them (pandastack-v1 §2.6): one `event:` and one `data:` line a frame,
//! LF only, data in ASCII, `: ping` comments while nothing happens. The same as lines of JSON for who asks for that.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Body,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::{Stream, StreamExt};
use http::{HeaderMap, HeaderValue, header};
use serde::Serialize;
use utoipa::ToSchema;

use crate::ascii::to_ascii_json;

/// How often a comment is sent while a stream is silent. Half of the clients' 30 seconds without a byte.
const PING_EVERY: Duration = Duration::from_secs(15);

/// The other form: one JSON value a line.
const NDJSON: &str = "application/x-ndjson";

/// One event, as the document describes it.
#[derive(Debug, ToSchema)]
#[allow(dead_code)]
pub(crate) struct StreamEvent {
    /// Its name.
    event: Option<String>,
    /// Its data: JSON as text in server-sent events, a JSON value in lines of JSON.
    #[schema(value_type = Value)]
    data: String,
}

/// One frame.
#[derive(Debug)]
pub(crate) struct Frame {
    event: Option<&'static str>,
    data: String,
}

impl Frame {
    /// A named event.
    pub(crate) fn named<T: Serialize>(event: &'static str, data: &T) -> Self {
        Self {
            event: Some(event),
            data: encode(data),
        }
    }

    /// Data without a name.
    pub(crate) fn unnamed<T: Serialize>(data: &T) -> Self {
        Self {
            event: None,
            data: encode(data),
        }
    }

    /// A line that is not JSON; line breaks inside become spaces, since a frame has one data line.
    pub(crate) fn text(event: Option<&'static str>, line: &str) -> Self {
        Self {
            event,
            data: line.replace(['\r', '\n'], " "),
        }
    }
}

fn encode<T: Serialize>(data: &T) -> String {
    to_ascii_json(data).unwrap_or_else(|error| {
        tracing::error!(%error, "an event could not be written as JSON");
        r#"{"error":"the server could not write this event"}"#.to_owned()
    })
}

/// The response that sends these frames, each as soon as it is there.
pub(crate) fn respond(frames: impl Stream<Item = Frame> + Send + 'static) -> Response {
    let events = frames.map(|frame| {
        let event = match frame.event {
            Some(name) => Event::default().event(name),
            None => Event::default(),
        };
        Ok::<_, Infallible>(event.data(frame.data))
    });
    let keep_alive = KeepAlive::new().interval(PING_EVERY).text("ping");
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    // A proxy in between must hand on each frame at once.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// The same as one JSON object a line, `{"event": ..., "data": ...}`, when the caller accepts that.
pub(crate) fn respond_as(headers: &HeaderMap, frames: impl Stream<Item = Frame> + Send + 'static) -> Response {
    let accepts = |value: &HeaderValue| value.to_str().is_ok_and(|value| value.contains(NDJSON));
    if !headers.get_all(header::ACCEPT).iter().any(accepts) {
        return respond(frames);
    }
    let lines = frames.map(|frame| {
        let name = frame.event.unwrap_or("message");
        Ok::<_, Infallible>(format!("{{\"event\":\"{name}\",\"data\":{}}}\n", frame.data))
    });
    ([(header::CONTENT_TYPE, NDJSON)], Body::from_stream(lines)).into_response()
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn lines_of_json_are_given_to_who_asks() {
        let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("application/x-ndjson"))]);
        let frames = [Frame::named("exit", &serde_json::json!({"exit_code": 0}))];
        let response = respond_as(&headers, stream::iter(frames));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "{\"event\":\"exit\",\"data\":{\"exit_code\":0}}\n");
    }

    #[tokio::test]
    async fn a_frame_is_one_event_line_one_data_line_and_a_blank_one() {
        let frames = [
            Frame::named("stdout", &serde_json::json!({"chunk": "é\r\n"})),
            Frame::unnamed(&serde_json::json!({"line": "x"})),
            Frame::text(Some("done"), "end"),
        ];
        let response = respond(stream::iter(frames));
        assert_eq!(
            response.headers()[header::CONTENT_TYPE],
            "text/event-stream; charset=utf-8"
        );
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let expected = "event: stdout\ndata: {\"chunk\":\"\\u00e9\\r\\n\"}\n\n\
                        data: {\"line\":\"x\"}\n\n\
                        event: done\ndata: end\n\n";
        assert_eq!(body, expected.as_bytes());
    }
}
