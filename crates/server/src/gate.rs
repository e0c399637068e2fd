//! What the server answers from its first moment on: the API once there is one, a 503 that says what is missing before.
//!
//! `/healthz` is 200 only when the templates that the operator asked for are baked; the rest of the API works as soon as the
//! records were read, so that sandboxes which outlived a restart are usable while a template is baked anew.

use std::sync::{Arc, OnceLock};

use axum::{
    Json, Router,
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;
use tokio::sync::watch;
use tower::ServiceExt;

/// Seconds after which a client may ask again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("2");

/// Stands before the API.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    api: Arc<OnceLock<Router>>,
    /// What is missing; `None` when nothing is.
    missing: watch::Sender<Option<String>>,
}

impl Gate {
    /// Closed, with a first reason.
    pub(crate) fn closed(reason: &str) -> Self {
        Self {
            api: Arc::default(),
            missing: watch::Sender::new(Some(reason.to_owned())),
        }
    }

    /// Lets requests through to the API. Only the first router counts.
    pub(crate) fn admit(&self, api: Router) {
        self.api.get_or_init(|| api);
    }

    /// Says what is missing until the server is ready.
    pub(crate) fn wait_for(&self, reason: impl Into<String>) {
        self.missing.send_replace(Some(reason.into()));
    }

    /// Nothing is missing any more.
    pub(crate) fn ready(&self) {
        self.missing.send_replace(None);
    }

    /// Answers one request.
    pub(crate) async fn answer(self, request: Request) -> Response {
        let missing = self.missing.borrow().clone();
        let about_health = matches!(request.uri().path(), "/healthz" | "/v1/healthz");
        match (self.api.get(), missing) {
            (Some(api), None) => pass(api, request).await,
            (Some(api), Some(_)) if !about_health => pass(api, request).await,
            (_, missing) => unavailable(&missing.unwrap_or_else(|| "the server is starting".to_owned())),
        }
    }
}

async fn pass(api: &Router, request: Request) -> Response {
    match api.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn unavailable(reason: &str) -> Response {
    let body = Json(json!({ "status": "unavailable", "error": reason, "code": "no_capacity" }));
    (
        StatusCode::SERVICE_UNAVAILABLE,
        [(header::RETRY_AFTER, RETRY_AFTER)],
        body,
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, routing::get};

    use super::*;

    fn api() -> Router {
        Router::new()
            .route("/healthz", get(|| async { "ok" }))
            .route("/v1/me", get(|| async { "me" }))
    }

    async fn status(gate: &Gate, path: &str) -> u16 {
        let request = Request::get(path).body(Body::empty()).unwrap();
        gate.clone().answer(request).await.status().as_u16()
    }

    #[tokio::test]
    async fn the_api_works_before_the_server_calls_itself_healthy() {
        let gate = Gate::closed("reading records");
        assert_eq!(
            [status(&gate, "/healthz").await, status(&gate, "/v1/me").await],
            [503, 503]
        );
        gate.admit(api());
        gate.wait_for("baking");
        assert_eq!(
            [status(&gate, "/healthz").await, status(&gate, "/v1/me").await],
            [503, 200]
        );
        gate.ready();
        assert_eq!(
            [status(&gate, "/healthz").await, status(&gate, "/v1/me").await],
            [200, 200]
        );
    }
}
