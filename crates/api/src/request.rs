//! What happens to every request before a handler sees it, and to every answer after: an id, a span in the log, a
//! measure, and the refusal of a URI or headers that nobody should send.

use std::time::Instant;

use atoll_model::ErrorCode;
use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use tracing::Instrument;
use uuid::Uuid;

use crate::{
    error::{self, ApiError},
    metrics::Meter,
};

/// The header that names a request, both ways.
const REQUEST_ID: &str = "x-request-id";
/// The longest id that a caller may choose, in characters (pandastack-v1 §1.2).
const MAX_REQUEST_ID: usize = 64;
/// The longest path and query, in bytes. A path inside a sandbox has at most 4096 bytes, which percent-encoding triples.
const MAX_URI: usize = 16 * 1024;
/// The most that all headers together may have, in bytes.
const MAX_HEADERS: usize = 32 * 1024;

/// The outermost layer of the router.
pub(crate) async fn observe(State(meter): State<Meter>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let id = request_id(request.headers());
    let method = request.method().clone();
    // The matched pattern, never the query: it may hold a token.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "none".to_owned(), |matched| matched.as_str().to_owned());
    let span = tracing::info_span!("request", id, %method, route);
    let answer = match acceptable(request.uri(), request.headers()) {
        Ok(()) => next.run(request).instrument(span.clone()).await,
        Err(error) => error.into_response(),
    };
    let mut answer = error::finish(answer, &id);
    if let Ok(value) = HeaderValue::from_str(&id) {
        answer.headers_mut().insert(REQUEST_ID, value);
    }
    let took = began.elapsed();
    let status = answer.status();
    span.in_scope(|| tracing::debug!(status = status.as_u16(), millis = took.as_millis() as u64, "answered"));
    meter.answered(&method, &route, status, took);
    answer
}

/// The caller's id when it is one that can stand in a log line and a header; a new one otherwise.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let kept: String = given
        .unwrap_or_default()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "-_.:/+=".contains(*c))
        .take(MAX_REQUEST_ID)
        .collect();
    if kept.is_empty() {
        let random = Uuid::new_v4().simple().to_string();
        random[..16].to_owned()
    } else {
        kept
    }
}

fn acceptable(uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let length = uri.path().len() + uri.query().map_or(0, str::len);
    if length > MAX_URI {
        return Err(ApiError::transport(
            StatusCode::URI_TOO_LONG,
            ErrorCode::TooLarge,
            format!("the path and query have {length} bytes; the most is {MAX_URI}"),
        ));
    }
    let length: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    if length > MAX_HEADERS {
        return Err(ApiError::transport(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            ErrorCode::TooLarge,
            format!("the headers have {length} bytes; the most is {MAX_HEADERS}"),
        ));
    }
    decodes(uri.path(), "path")?;
    decodes(uri.query().unwrap_or_default(), "query")
}

/// Refuses escapes that are not two digits, bytes that are no UTF-8, and NUL: each would reach a handler as another
/// text than the one sent.
fn decodes(part: &str, what: &str) -> Result<(), ApiError> {
    let refuse = |why| Err(ApiError::new(ErrorCode::InvalidRequest, format!("the {what} {why}")));
    let bytes = part.as_bytes();
    let whole = |at: usize| {
        let digit = |index: usize| bytes.get(index).is_some_and(u8::is_ascii_hexdigit);
        digit(at + 1) && digit(at + 2)
    };
    let broken = bytes.iter().enumerate().any(|(at, byte)| *byte == b'%' && !whole(at));
    if broken {
        return refuse("has a % that is not followed by two hexadecimal digits");
    }
    match percent_decode_str(part).decode_utf8() {
        Err(_) => refuse("is not UTF-8"),
        Ok(text) if text.contains('\0') => refuse("holds a NUL character"),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_id(value: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(REQUEST_ID, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        request_id(&headers)
    }

    #[test]
    fn a_callers_request_id_is_kept_within_bounds() {
        assert_eq!(with_id("abc-1"), "abc-1");
        assert_eq!(with_id("a\tb<script>"), "abscript");
        assert_eq!(with_id(&"x".repeat(100)).len(), MAX_REQUEST_ID);
        let minted = request_id(&HeaderMap::new());
        assert!(minted.len() == 16 && minted.bytes().all(|b| b.is_ascii_hexdigit()));
    }

    #[test]
    fn only_clean_percent_encoding_passes() {
        for bad in ["/a%", "/a%2", "/a%zz", "/%ff", "/%00", "/a%c3"] {
            assert!(decodes(bad, "path").is_err(), "{bad}");
        }
        for good in ["/", "/a%2Fb", "/%e2%82%ac", "path=%2Ftmp%2Fa+b"] {
            assert!(decodes(good, "path").is_ok(), "{good}");
        }
    }
}
