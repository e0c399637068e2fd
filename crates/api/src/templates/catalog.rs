//! The templates that sandboxes can be made from.

use atoll_control::TemplateView;
use atoll_model::ErrorCode;
use axum::extract::State;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    app::{App, Authenticated},
    error::{ApiError, ApiResult, ErrorBody},
    extract::Name,
};

/// A template.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Template {
    /// Its name.
    name: String,
    /// Other names that it answers to.
    aliases: Vec<String>,
    /// One sentence.
    description: String,
    /// Cores of its sandboxes when the caller names none.
    cpu: u32,
    /// Memory in MiB, likewise.
    memory_mb: u64,
    /// Disk in MiB, likewise.
    disk_mb: u64,
    /// Bytes on the host; 0 before it is built.
    size_bytes: u64,
    /// Whether it came with the server and cannot be deleted.
    is_global: bool,
    /// Whether sandboxes can be made from it now.
    ready: bool,
    /// The snapshot that new sandboxes are restored from.
    #[serde(skip_serializing_if = "Option::is_none")]
    bake: Option<String>,
}

impl From<TemplateView> for Template {
    fn from(view: TemplateView) -> Self {
        Self {
            name: view.name.to_string(),
            aliases: view.aliases,
            description: view.description,
            cpu: view.cpu,
            memory_mb: view.memory_mb,
            disk_mb: view.disk_mb,
            size_bytes: view.size_bytes.unwrap_or_default(),
            // This release knows only the recipes of its host.
            is_global: true,
            ready: view.bake.is_some(),
            bake: view.bake,
        }
    }
}

/// Lists the templates.
#[utoipa::path(
    get, path = "/templates", tag = "templates", operation_id = "template_list",
    responses((status = 200, description = "The templates.", body = Vec<Template>))
)]
pub(crate) async fn list(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> ApiResult<axum::Json<Vec<Template>>> {
    let views = app.control.template_list(&caller).await?;
    Ok(axum::Json(views.into_iter().map(Template::from).collect()))
}

/// Gets a template by its name or an alias.
#[utoipa::path(
    get, path = "/templates/{name}", tag = "templates", operation_id = "template_get",
    responses((status = 200, description = "The template.", body = Template))
)]
pub(crate) async fn get(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Name(name): Name,
) -> ApiResult<axum::Json<Template>> {
    Ok(axum::Json(app.control.template_get(&caller, &name).await?.into()))
}

/// Refuses to delete a template: all of them came with the server.
#[utoipa::path(
    delete, path = "/templates/{name}", tag = "templates", operation_id = "template_delete",
    responses((status = 403, description = "It came with the server.", body = ErrorBody))
)]
pub(crate) async fn delete(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Name(name): Name,
) -> ApiResult<StatusCode> {
    let view = app.control.template_get(&caller, &name).await?;
    Err(ApiError::new(
        ErrorCode::Forbidden,
        format!("the template {} came with the server and cannot be deleted", view.name),
    ))
}
