//! Builds of templates, and their logs.

use atoll_control::{BuildLog, BuildView};
use atoll_model::{BuildId, ErrorCode, Refusal};
use axum::{
    extract::{FromRequest, Multipart, Request, State},
    response::Response,
};
use futures_util::{FutureExt, Stream, StreamExt, stream};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};

use crate::{
    app::{App, Authenticated},
    body,
    error::{ApiError, ApiResult, ErrorBody},
    extract::{Id, Query},
    sse::{self, Frame, StreamEvent},
};

/// A build of a template.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Build {
    /// Its id: 16 hexadecimal digits.
    id: String,
    /// The template.
    name: String,
    /// `queued`, `building`, `done` or `failed`.
    #[schema(example = "done")]
    status: &'static str,
    /// One sentence, when it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// When it was asked for.
    #[serde(with = "time::serde::rfc3339")]
    started_at: OffsetDateTime,
    /// When it ended.
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    ended_at: Option<OffsetDateTime>,
}

impl From<BuildView> for Build {
    fn from(view: BuildView) -> Self {
        Self {
            id: view.id.to_string(),
            name: view.template.to_string(),
            status: view.status.as_str(),
            error: view.error,
            started_at: view.started_at,
            ended_at: view.ended_at,
        }
    }
}

/// What to build.
#[derive(Debug, Default, PartialEq, Eq, ToSchema)]
pub(crate) struct BuildForm {
    /// The template's name; this host has its recipe.
    name: String,
    /// Fields that this release cannot honour: `dockerfile`, `image_ref`, `rootfs` and others are refused with 501.
    #[schema(ignore)]
    other: Option<String>,
}

impl<S: Send + Sync> FromRequest<S> for BuildForm {
    type Rejection = ApiError;

    /// A form, in either encoding; JSON `{"name"}` does too.
    async fn from_request(request: Request, state: &S) -> ApiResult<Self> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        if kind.starts_with("multipart/") {
            return Self::from_parts(request, state).await;
        }
        let (parts, body) = request.into_parts();
        let bytes = body::read_small(&parts.headers, body).await?;
        if kind.starts_with("application/json") {
            let object: serde_json::Map<String, serde_json::Value> = crate::extract::parse(&bytes, true)?;
            let text = |value: serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            return Ok(Self::of(object.into_iter().map(|(name, value)| (name, text(value)))));
        }
        Ok(Self::of(form_urlencoded::parse(&bytes).into_owned()))
    }
}

impl BuildForm {
    /// Stops at the first field that is refused anyway, so that no file is read for nothing.
    async fn from_parts<S: Send + Sync>(request: Request, state: &S) -> ApiResult<Self> {
        let wrong = |error: &dyn std::fmt::Display| {
            ApiError::new(
                ErrorCode::InvalidRequest,
                format!("the form is not as it should be: {error}"),
            )
        };
        let (parts, whole) = request.into_parts();
        // Bounded like any small body; a multipart form whose files are larger is refused before they come.
        let limited = axum::body::Body::from(match body::read_small(&parts.headers, whole).await {
            Ok(bytes) => bytes,
            Err(_) => return Err(refused("files")),
        });
        let mut form = Multipart::from_request(Request::from_parts(parts, limited), state)
            .await
            .map_err(|error| wrong(&error))?;
        let mut fields = Vec::new();
        while let Some(field) = form.next_field().await.map_err(|error| wrong(&error))? {
            let name = field.name().unwrap_or_default().to_owned();
            fields.push((name, field.text().await.map_err(|error| wrong(&error))?));
        }
        Ok(Self::of(fields))
    }

    fn of(fields: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut form = Self::default();
        for (name, value) in fields {
            match name.as_str() {
                "name" => form.name = value,
                // Sizes of a build are the recipe's, as the clients send their defaults with every build.
                "size_mb" | "cpu" | "memory_mb" | "kernel" | "replace" => {}
                _ => form.other = form.other.or(Some(name)),
            }
        }
        form
    }
}

fn refused(field: &str) -> ApiError {
    Refusal {
        field: Some(field.to_owned()),
        ..Refusal::new(
            ErrorCode::NotSupported,
            format!("a build from {field} is not supported by this release; a template is built from the recipe that this host has under its name"),
        )
    }
    .into()
}

/// Builds a template that this host has the recipe of. A build of it that waits or runs already is given as it is.
#[utoipa::path(
    post, path = "/templates/build", tag = "templates", operation_id = "build_start",
    request_body(content(
        (BuildForm = "application/x-www-form-urlencoded"),
        (BuildForm = "multipart/form-data"),
        (BuildForm = "application/json"),
    )),
    responses(
        (status = 202, description = "It waits or runs.", body = Build),
        (status = 501, description = "Builds from a Dockerfile, an image or a root archive.", body = ErrorBody),
    )
)]
pub(crate) async fn start(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    form: BuildForm,
) -> ApiResult<(StatusCode, axum::Json<Build>)> {
    if let Some(field) = form.other {
        return Err(refused(&field));
    }
    if form.name.is_empty() {
        return Err(ApiError::field("name", "name required"));
    }
    let build = app.control.build_start(&caller, &form.name).await?;
    Ok((StatusCode::ACCEPTED, axum::Json(build.into())))
}

/// Lists builds, newest first.
#[utoipa::path(
    get, path = "/templates/builds", tag = "templates", operation_id = "build_list",
    responses((status = 200, description = "The builds.", body = Vec<Build>))
)]
pub(crate) async fn list(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> ApiResult<axum::Json<Vec<Build>>> {
    let builds = app.control.build_list(&caller).await?;
    Ok(axum::Json(builds.into_iter().map(Build::from).collect()))
}

/// Gets a build.
#[utoipa::path(
    get, path = "/templates/builds/{build_id}", tag = "templates", operation_id = "build_get",
    responses((status = 200, description = "The build.", body = Build))
)]
pub(crate) async fn get(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<BuildId>,
) -> ApiResult<axum::Json<Build>> {
    Ok(axum::Json(app.control.build_get(&caller, id).await?.into()))
}

/// Whether to stay.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct BuildLogQuery {
    /// `true` or `1`: stay until the build ends.
    #[param(pattern = "^(true|false|1|0)$")]
    follow: Option<String>,
}

/// Streams a build's log from its start on: each line as the data of an event, then an event `done`.
#[utoipa::path(
    get, path = "/templates/builds/{build_id}/logs", tag = "templates", operation_id = "build_logs",
    params(BuildLogQuery),
    responses((status = 200, description = "The lines.", body = StreamEvent, content_type = "text/event-stream"))
)]
pub(crate) async fn logs(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<BuildId>,
    Query(query): Query<BuildLogQuery>,
) -> ApiResult<Response> {
    let follow = crate::watch::flag("follow", query.follow.as_deref())?;
    let log = app.control.build_log(&caller, id).await?;
    let end = stream::once(std::future::ready(Frame::text(Some("done"), "end")));
    Ok(sse::respond(lines(log, follow).chain(end)))
}

/// Without `follow`, what was logged so far.
fn lines(log: BuildLog, follow: bool) -> impl Stream<Item = Frame> + Send {
    stream::unfold(log, move |mut log| async move {
        let line = if follow {
            log.next().await
        } else {
            log.next().now_or_never().flatten()
        };
        line.map(|line| (Frame::text(None, &line), log))
    })
}
