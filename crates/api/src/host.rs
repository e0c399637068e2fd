//! The server itself: whether it works, what it is, what it counted.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header, request::Parts};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    app::{App, Authenticated},
    error::{ApiError, ApiResult},
    metrics,
};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(healthz))
        .routes(routes!(version))
        .routes(routes!(metrics_text))
}

/// Whether the server works.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthReply {
    /// `ok` or `unavailable`.
    status: &'static str,
    /// What is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Tells whether sandboxes can be created. Needs no key.
#[utoipa::path(
    get, path = "/healthz", tag = "host", operation_id = "healthz", security(()),
    responses(
        (status = 200, description = "They can.", body = HealthReply),
        (status = 503, description = "They cannot yet, or not now.", body = HealthReply),
    )
)]
async fn healthz(State(app): State<App>) -> (StatusCode, axum::Json<HealthReply>) {
    let health = app.control.health().await;
    let (status, word) = if health.ready {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
    };
    let error = health.reason;
    (status, axum::Json(HealthReply { status: word, error }))
}

/// What runs here.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VersionReply {
    /// The server's version.
    version: &'static str,
    /// What isolates sandboxes.
    engine: &'static str,
    /// Name and version of it.
    engine_version: String,
    /// The level of isolation that it gives.
    isolation: &'static str,
}

/// Tells what runs here. Needs no key.
#[utoipa::path(
    get, path = "/version", tag = "host", operation_id = "version", security(()),
    responses((status = 200, description = "The versions.", body = VersionReply))
)]
async fn version(State(app): State<App>) -> axum::Json<VersionReply> {
    let view = app.control.version();
    axum::Json(VersionReply {
        version: view.version,
        engine: view.engine,
        engine_version: view.engine_version,
        isolation: view.isolation.as_str(),
    })
}

/// What the server counted, in Prometheus' text format. Needs a key unless the operator opened it.
#[utoipa::path(
    get, path = "/metrics", tag = "host", operation_id = "metrics",
    responses((status = 200, description = "The numbers.", body = String, content_type = "application/openmetrics-text"))
)]
async fn metrics_text(State(app): State<App>, _: Scraper) -> ApiResult<Response> {
    let text = app.meter.text().map_err(|error| {
        tracing::error!(%error, "the metrics could not be written");
        ApiError::new(atoll_model::ErrorCode::Internal, "the metrics could not be written")
    })?;
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

/// Who may read the numbers.
struct Scraper;

impl axum::extract::FromRequestParts<App> for Scraper {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> ApiResult<Self> {
        if !app.config.open_metrics {
            Authenticated::from_request_parts(parts, app).await?;
        }
        Ok(Self)
    }
}
