//! The native HTTP API and its OpenAPI document: a superset of PandaStack's `/v1`.
//!
//! Translation only. A handler parses a request into what a use case of [`atoll_control`] takes, and writes what it gives
//! as JSON, events or bytes; no decision is made here. One file a resource, its wire types beside its handlers; start
//! with [`router`], then `sandboxes.rs`. What all routes share: `request.rs` (ids, spans, bounds), `app.rs` (keys),
//! `extract.rs` (strict parsing), `error.rs` (codes to statuses), `slow.rs` and `sse.rs` (answers that take their time).

mod app;
mod ascii;
mod body;
mod config;
mod error;
mod exec;
mod extract;
mod files;
mod host;
mod key_end;
mod lifecycle;
mod me;
mod metrics;
mod openapi;
mod output;
mod repl;
mod request;
mod sandboxes;
mod seconds;
mod slow;
mod sse;
mod templates;
mod unsupported;
mod watch;

use std::sync::Arc;

use atoll_control::Control;
use atoll_model::ErrorCode;
use axum::{
    Router,
    extract::Request,
    middleware::{from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use http::{Method, StatusCode, Uri, header};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;

pub use config::ApiConfig;

use crate::{app::App, error::ApiError, metrics::Meter};

/// The whole API, ready to be served.
pub fn router(control: Control, config: ApiConfig) -> Router {
    let (documented, _) = documented();
    let meter = Meter::new(control.clone());
    let app = App {
        control,
        config: Arc::new(config),
        meter: meter.clone(),
    };
    let (host, _) = host::routes().split_for_parts();
    let document = openapi_json();
    let serve_document = get(move || std::future::ready(json_text(document)));
    let also_v1 = host
        .merge(unsupported::routes())
        .route("/openapi.json", serve_document.clone());
    documented
        .nest("/v1", also_v1)
        .route("/openapi.json", serve_document)
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .with_state(app)
        .layer(from_fn(key_end::end_with_key))
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| panicked()))
        .layer(from_fn_with_state(meter, request::observe))
}

/// The OpenAPI document, as JSON with a line end: what `openapi/atoll.json` holds.
///
/// # Panics
/// Never: the document is made of strings and maps.
#[must_use]
pub fn openapi_json() -> String {
    let (_, document) = documented();
    let mut text = document.to_pretty_json().expect("an OpenAPI document is JSON");
    text.push('\n');
    text
}

/// Every route that the document has.
fn documented() -> (Router<App>, utoipa::openapi::OpenApi) {
    let v1 = OpenApiRouter::new()
        .merge(sandboxes::routes())
        .merge(lifecycle::routes())
        .merge(exec::routes())
        .merge(files::routes())
        .merge(repl::routes())
        .merge(watch::routes())
        .merge(templates::routes())
        .merge(me::routes());
    let (router, document) = OpenApiRouter::with_openapi(openapi::frame())
        .nest("/v1", v1)
        .merge(host::routes())
        .split_for_parts();
    (router, openapi::complete(document))
}

fn json_text(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn no_such_route(method: Method, uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    ApiError::new(ErrorCode::NotFound, format!("no such route: {method} {path}"))
}

async fn no_such_method(request: Request) -> ApiError {
    ApiError::transport(
        StatusCode::METHOD_NOT_ALLOWED,
        ErrorCode::InvalidRequest,
        format!("this route does not take {}; see the Allow header", request.method()),
    )
}

fn panicked() -> Response {
    tracing::error!("a handler panicked");
    ApiError::new(
        ErrorCode::Internal,
        "the server met a fault of its own; its log says more under the request id",
    )
    .into_response()
}
