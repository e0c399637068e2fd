//! From a refusal to an HTTP answer: the one place that knows which code has which status.
//!
//! The envelope is flat, because the clients of the contract (pandastack-v1 §1.3) read `error` as a string and
//! misread a nested object. Some of them act on words inside the text of a 5xx (§1.4), so [`ApiError`] makes sure that
//! those words appear only where they are meant.

use atoll_model::{ErrorCode, Refusal};
use axum::{
    Json,
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Words in a 5xx that make the known clients retry for 20 seconds in silence (pandastack-v1 §1.4).
const RETRY_WORDS: [&str; 3] = ["connect: connection refused", "no route to host", "i/o timeout"];
/// Words in a 5xx that make the known clients report a timeout of the code.
const TIMEOUT_WORDS: [&str; 2] = ["timeout", "deadline exceeded"];
/// Seconds until a create that met a full host may be tried again, when the refusal does not say (pandastack-v1 §1.5).
const CAPACITY_RETRY_AFTER: u32 = 5;
/// Seconds until a call that met a bound may be tried again, when the refusal does not say.
const TOO_MANY_RETRY_AFTER: u32 = 1;

/// The body of every answer that is not a success.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// One sentence for people: what is wrong and what would help.
    pub(crate) error: String,
    /// The same for programs; the list of codes only grows.
    #[schema(example = "invalid_request")]
    pub(crate) code: String,
    /// The field of the request that is at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    /// For 401: what is wrong with the credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    /// For 504: the command's or cell's ordinary result, as far as it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) result: Option<Value>,
    /// The id of this request, as in the `X-Request-Id` header; the server's log has more under it.
    pub(crate) request_id: String,
}

/// A refusal on its way out.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{refusal}")]
pub(crate) struct ApiError {
    refusal: Refusal,
    /// A status that only the transport knows of (405, 414, 431); the code's own otherwise.
    status: Option<StatusCode>,
    /// What was done before the deadline.
    result: Option<Value>,
}

pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            status: None,
            result: None,
        }
    }
}

impl ApiError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Refusal::new(code, message).into()
    }

    /// A field that is missing, of the wrong type or outside its range.
    pub(crate) fn field(field: &str, message: impl Into<String>) -> Self {
        Refusal::field(field, message).into()
    }

    /// A refusal by HTTP itself, with a status that no error code has.
    pub(crate) fn transport(status: StatusCode, code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            refusal: Refusal::new(code, message),
            status: Some(status),
            result: None,
        }
    }

    /// A deadline that passed, with what was done until then.
    pub(crate) fn timeout<T: Serialize>(message: String, result: &T) -> Self {
        Self {
            result: serde_json::to_value(result).ok(),
            ..Self::new(ErrorCode::Timeout, message)
        }
    }

    pub(crate) fn code(&self) -> ErrorCode {
        self.refusal.code
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status.unwrap_or_else(|| status_of(self.refusal.code))
    }

    fn retry_after(&self) -> Option<u32> {
        self.refusal.retry_after.or(match self.refusal.code {
            ErrorCode::NoCapacity => Some(CAPACITY_RETRY_AFTER),
            ErrorCode::TooMany => Some(TOO_MANY_RETRY_AFTER),
            _ => None,
        })
    }

    /// The envelope for the request of that id.
    pub(crate) fn body(self, request_id: &str) -> ErrorBody {
        let text = safe_text(self.status(), &self.refusal);
        let (error, detail) = match self.refusal.code {
            // The contract's 401 says "unauthorized" and puts the reason beside it.
            ErrorCode::Unauthorized => ("unauthorized".to_owned(), Some(text)),
            _ => (text, None),
        };
        ErrorBody {
            error,
            code: code_word(self.refusal.code),
            field: self.refusal.field,
            detail,
            request_id: request_id.to_owned(),
            result: self.result,
        }
    }
}

/// Puts the refusal beside an empty body; [`finish`] writes the body, since only the outermost layer knows the
/// request's id.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the body of a response that an [`ApiError`] began; leaves others alone.
pub(crate) fn finish(mut response: Response<Body>, request_id: &str) -> Response<Body> {
    let Some(error) = response.extensions_mut().remove::<ApiError>() else {
        return response;
    };
    let retry_after = error.retry_after();
    let mut written = (error.status(), Json(error.body(request_id))).into_response();
    if let Some(seconds) = retry_after {
        written.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    if written.status() == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer");
        written.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    }
    // A 405 comes with the list of allowed methods.
    if let Some(allow) = response.headers_mut().remove(header::ALLOW) {
        written.headers_mut().insert(header::ALLOW, allow);
    }
    written
}

/// The status of each code.
fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        // An unknown template is a wrong field of the create; a template asked for by its path is `NotFound`.
        ErrorCode::InvalidRequest
        | ErrorCode::UnknownField
        | ErrorCode::TemplateUnknown
        | ErrorCode::IsolationUnavailable => StatusCode::BAD_REQUEST,
        ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        // A sandbox that is no more is not found, for who reads no codes; the code says that there was one.
        ErrorCode::NotFound | ErrorCode::SandboxGone => StatusCode::NOT_FOUND,
        ErrorCode::Conflict | ErrorCode::NotRunning => StatusCode::CONFLICT,
        ErrorCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::TooMany => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorCode::NotSupported => StatusCode::NOT_IMPLEMENTED,
        ErrorCode::AgentLost => StatusCode::BAD_GATEWAY,
        ErrorCode::NoCapacity => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::Timeout => StatusCode::GATEWAY_TIMEOUT,
        ErrorCode::InsufficientStorage | ErrorCode::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
    }
}

/// The word of a code on the wire.
pub(crate) fn code_word(code: ErrorCode) -> String {
    match serde_json::to_value(code) {
        Ok(Value::String(word)) => word,
        // A unit variant always serialises as a string.
        _ => "internal".to_owned(),
    }
}

/// The refusal's text, made safe for clients that act on words of a 5xx.
fn safe_text(status: StatusCode, refusal: &Refusal) -> String {
    let text = &refusal.message;
    if !status.is_server_error() {
        return text.clone();
    }
    let lower = text.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if refusal.code == ErrorCode::Timeout {
        return if has(&TIMEOUT_WORDS) && !has(&RETRY_WORDS) {
            text.clone()
        } else {
            "timeout".to_owned()
        };
    }
    if has(&TIMEOUT_WORDS) || has(&RETRY_WORDS) {
        tracing::warn!(
            text,
            "a refusal's text had words that clients act on; a plain one was sent"
        );
        return format!(
            "the server could not do this ({}); its log says more under the request id",
            code_word(refusal.code)
        );
    }
    text.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(code: ErrorCode, message: &str) -> String {
        ApiError::new(code, message).body("r").error
    }

    #[test]
    fn a_timeout_always_says_so_and_nothing_else_does() {
        assert_eq!(
            text(ErrorCode::Timeout, "command timeout after 2s"),
            "command timeout after 2s"
        );
        assert_eq!(text(ErrorCode::Timeout, "too slow"), "timeout");
        assert_eq!(text(ErrorCode::Timeout, "i/o timeout"), "timeout");
        for message in [
            "agent: read timeout",
            "Deadline Exceeded",
            "dial: connect: connection refused",
        ] {
            let told = text(ErrorCode::AgentLost, message).to_lowercase();
            for word in RETRY_WORDS.iter().chain(&TIMEOUT_WORDS) {
                assert!(!told.contains(word), "{told}");
            }
        }
        assert_eq!(
            text(ErrorCode::InvalidRequest, "timeout must be positive"),
            "timeout must be positive"
        );
    }

    #[test]
    fn a_full_host_says_when_to_come_back() {
        let response = finish(ApiError::new(ErrorCode::NoCapacity, "full").into_response(), "r");
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[header::RETRY_AFTER], "5");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
    }

    #[test]
    fn unauthorized_keeps_the_reason_in_detail() {
        let body = ApiError::new(ErrorCode::Unauthorized, "missing bearer token").body("r");
        assert_eq!(
            (body.error.as_str(), body.detail.as_deref()),
            ("unauthorized", Some("missing bearer token"))
        );
    }
}
