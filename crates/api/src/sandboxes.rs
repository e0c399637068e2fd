//! Sandboxes: create, list, get, delete.

use std::collections::BTreeMap;

use atoll_control::{CreateSandbox, SandboxFilter, SandboxView};
use atoll_model::{Environment, ErrorCode, Isolation, Refusal, SandboxId};
use axum::extract::{RawQuery, State};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    app::{App, Authenticated},
    error::{ApiError, ApiResult, ErrorBody},
    extract::{Id, Json},
};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(get, delete))
}

/// A sandbox.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Sandbox {
    /// Its id, a lower-case UUID.
    #[schema(value_type = String, format = Uuid)]
    pub(crate) id: SandboxId,
    /// The template that it was made from, aliases resolved.
    pub(crate) template: String,
    /// `creating`, `running`, `paused`, `hibernated`, `stopping`, `deleted` or `failed`.
    #[schema(example = "running")]
    pub(crate) status: &'static str,
    /// Cores.
    pub(crate) cpu: u32,
    /// Memory in MiB.
    pub(crate) memory_mb: u64,
    /// Disk in MiB.
    pub(crate) disk_mb: u64,
    /// The caller's strings; the server adds `workspace`, and never shows `secret.*` again.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Strings to filter lists by.
    pub(crate) labels: BTreeMap<String, String>,
    /// Idle limit in seconds; 0 is "never".
    pub(crate) ttl_seconds: u64,
    /// Exempt from the idle limit.
    pub(crate) persistent: bool,
    /// The level that it runs at: `kernel` or `vm`.
    #[schema(example = "kernel")]
    pub(crate) isolation: &'static str,
    /// What isolates it, as in `gvisor`.
    pub(crate) engine: String,
    /// How its machine came to be, as in `snapshot`.
    pub(crate) boot_mode: &'static str,
    /// Milliseconds from the start of the restore until it was usable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) boot_ms: Option<u64>,
    /// When it was asked for.
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) created_at: OffsetDateTime,
    /// When it ended.
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub(crate) ended_at: Option<OffsetDateTime>,
    /// Why it is no more, as in `deleted` or `expired`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gone: Option<&'static str>,
    /// One sentence on a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
}

impl From<SandboxView> for Sandbox {
    fn from(view: SandboxView) -> Self {
        Self {
            id: view.id,
            template: view.template.to_string(),
            status: view.state.as_str(),
            cpu: view.cpu,
            memory_mb: view.memory_mb,
            disk_mb: view.disk_mb,
            metadata: view.metadata,
            labels: view.labels,
            ttl_seconds: view.ttl_seconds,
            persistent: view.persistent,
            isolation: view.isolation.as_str(),
            engine: view.engine,
            boot_mode: view.boot_mode,
            boot_ms: view.boot_ms,
            created_at: view.created_at,
            ended_at: view.ended_at,
            gone: view.gone.map(|reason| reason.as_str()),
            failure: view.failure,
        }
    }
}

/// What to create. Everything may be left out.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CreateRequest {
    /// A template's name or alias; `code-interpreter` when absent.
    template: Option<String>,
    /// Idle limit in seconds, 0 for "never"; 3600 when absent. A running cell or command counts as use.
    #[schema(maximum = 31_536_000)]
    ttl_seconds: Option<u64>,
    /// Exempt from the idle limit.
    persistent: Option<bool>,
    /// Strings of your own, returned as they came.
    metadata: Option<BTreeMap<String, String>>,
    /// Strings to filter lists by.
    labels: Option<BTreeMap<String, String>>,
    /// Environment of every command and code context.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    env: Option<Environment>,
    /// Cores; the template's when absent.
    #[schema(minimum = 1, maximum = 64)]
    cpu: Option<u32>,
    /// Memory in MiB; the template's when absent.
    #[schema(minimum = 128, maximum = 65_536)]
    memory_mb: Option<u64>,
    /// Disk in MiB; the template's when absent.
    #[schema(minimum = 64, maximum = 1_048_576)]
    disk_mb: Option<u64>,
    /// The least isolation that you accept; refused when this host has none as strong.
    isolation: Option<WantedIsolation>,
    /// Two creates of one workspace with the same key and the same other fields are one sandbox. The header
    /// `Idempotency-Key` says the same.
    idempotency_key: Option<String>,
    /// Not supported by this release: refused with 501.
    from_snapshot: Option<String>,
    /// Not supported by this release: refused with 501 unless empty.
    volumes: Option<Vec<VolumeMount>>,
}

/// A level of isolation that can be asked for.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WantedIsolation {
    /// At least a kernel of its own in user space.
    Kernel,
    /// A hardware virtual machine.
    Vm,
}

/// A volume to attach.
#[derive(Debug, Deserialize, ToSchema)]
#[allow(dead_code)]
pub(crate) struct VolumeMount {
    /// Its name.
    name: String,
    /// Whether it can only be read.
    #[serde(default)]
    read_only: bool,
}

impl CreateRequest {
    fn into_wanted(self, header_key: Option<String>) -> ApiResult<CreateSandbox> {
        let refused = |field: &str, what: &str| Refusal {
            field: Some(field.to_owned()),
            ..Refusal::new(
                ErrorCode::NotSupported,
                format!("{what} are not supported by this release; leave {field} out"),
            )
        };
        if self.from_snapshot.is_some() {
            return Err(refused("from_snapshot", "snapshots").into());
        }
        if self.volumes.is_some_and(|volumes| !volumes.is_empty()) {
            return Err(refused("volumes", "volumes").into());
        }
        let idempotency_key = match (self.idempotency_key, header_key) {
            (Some(body), Some(header)) if body != header => {
                return Err(ApiError::field(
                    "idempotency_key",
                    "idempotency_key and the Idempotency-Key header differ",
                ));
            }
            (body, header) => body.or(header),
        };
        Ok(CreateSandbox {
            template: self.template,
            ttl_seconds: self.ttl_seconds,
            persistent: self.persistent.unwrap_or_default(),
            metadata: self.metadata.unwrap_or_default(),
            labels: self.labels.unwrap_or_default(),
            env: self.env.unwrap_or_default(),
            cpu: self.cpu,
            memory_mb: self.memory_mb,
            disk_mb: self.disk_mb,
            isolation: self.isolation.map(|wanted| match wanted {
                WantedIsolation::Kernel => Isolation::Kernel,
                WantedIsolation::Vm => Isolation::Vm,
            }),
            idempotency_key,
        })
    }
}

fn idempotency_header(headers: &HeaderMap) -> ApiResult<Option<String>> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| {
        ApiError::field(
            "idempotency_key",
            "the Idempotency-Key header may hold printable ASCII characters only",
        )
    })?;
    Ok(Some(text.to_owned()))
}

/// Creates a sandbox and answers once it runs.
#[utoipa::path(
    post, path = "/sandboxes", tag = "sandboxes", operation_id = "sandbox_create", request_body = CreateRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "As the field `idempotency_key`.")),
    responses(
        (status = 201, description = "It runs.", body = Sandbox),
        (status = 409, description = "The idempotency key was used for another create.", body = ErrorBody),
        (status = 503, description = "The host is full. Nothing was created; `Retry-After` says when to try again.", body = ErrorBody),
        (status = 507, description = "The host's memory or disk is full. Nothing was created.", body = ErrorBody),
    )
)]
async fn create(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    Json(body): Json<CreateRequest>,
) -> ApiResult<(StatusCode, axum::Json<Sandbox>)> {
    let wanted = body.into_wanted(idempotency_header(&headers)?)?;
    let made = app.control.sandbox_create(&caller, wanted).await?;
    Ok((StatusCode::CREATED, axum::Json(made.into())))
}

/// Lists the workspace's live sandboxes, newest first.
///
/// `label.NAME=VALUE` and `metadata.NAME=VALUE`, each as often as wanted, keep only those that have all of these.
#[utoipa::path(
    get, path = "/sandboxes", tag = "sandboxes", operation_id = "sandbox_list",
    params(("include_failed" = Option<bool>, Query, description = "Also those that failed after they had run.")),
    responses((status = 200, description = "The sandboxes.", body = Vec<Sandbox>))
)]
async fn list(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    RawQuery(query): RawQuery,
) -> ApiResult<axum::Json<Vec<Sandbox>>> {
    let filter = parse_filter(&query.unwrap_or_default())?;
    let views = app.control.sandbox_list(&caller, &filter).await?;
    Ok(axum::Json(views.into_iter().map(Sandbox::from).collect()))
}

fn parse_filter(query: &str) -> ApiResult<SandboxFilter> {
    let mut filter = SandboxFilter::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if let Some(label) = name.strip_prefix("label.") {
            filter.labels.insert(label.to_owned(), value.into_owned());
        } else if let Some(key) = name.strip_prefix("metadata.") {
            filter.metadata.insert(key.to_owned(), value.into_owned());
        } else if name == "include_failed" {
            filter.include_failed = match value.as_ref() {
                "true" | "1" => true,
                "false" | "0" => false,
                _ => {
                    return Err(ApiError::field(
                        "include_failed",
                        "include_failed must be true or false",
                    ));
                }
            };
        }
    }
    Ok(filter)
}

/// Gets a sandbox. Does not count as use.
#[utoipa::path(
    get, path = "/sandboxes/{id}", tag = "sandboxes", operation_id = "sandbox_get",
    responses((status = 200, description = "The sandbox.", body = Sandbox))
)]
async fn get(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
) -> ApiResult<axum::Json<Sandbox>> {
    Ok(axum::Json(app.control.sandbox_get(&caller, id).await?.into()))
}

/// Deletes a sandbox; answers once nothing of it is left.
#[utoipa::path(
    delete, path = "/sandboxes/{id}", tag = "sandboxes", operation_id = "sandbox_delete",
    responses((status = 204, description = "It is gone."))
)]
async fn delete(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
) -> ApiResult<StatusCode> {
    app.control.sandbox_delete(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(json: &str, header: Option<&str>) -> ApiResult<CreateSandbox> {
        crate::extract::parse::<CreateRequest>(json.as_bytes(), false)?.into_wanted(header.map(str::to_owned))
    }

    #[test]
    fn what_this_release_lacks_is_refused_by_its_field() {
        for (json, field) in [
            (r#"{"from_snapshot": "x"}"#, "from_snapshot"),
            (r#"{"volumes": [{"name": "v"}]}"#, "volumes"),
        ] {
            let body = wanted(json, None).unwrap_err().body("r");
            assert_eq!(
                (body.code.as_str(), body.field.as_deref()),
                ("not_supported", Some(field))
            );
        }
        assert!(wanted(r#"{"volumes": []}"#, None).is_ok());
    }

    #[test]
    fn a_wrong_create_names_its_field() {
        for (json, field) in [
            (r#"{"ttl_seconds": -1}"#, "ttl_seconds"),
            (r#"{"isolation": "none"}"#, "isolation"),
            (r#"{"metadata": {"a": 1}}"#, "metadata.a"),
            (r#"{"cpu": 1e18}"#, "cpu"),
            (r#"{"netwrok": true}"#, "netwrok"),
        ] {
            assert_eq!(
                wanted(json, None).unwrap_err().body("r").field.as_deref(),
                Some(field),
                "{json}"
            );
        }
    }

    #[test]
    fn the_idempotency_key_is_taken_from_either_place() {
        assert_eq!(wanted("{}", Some("k")).unwrap().idempotency_key.as_deref(), Some("k"));
        let both = r#"{"idempotency_key": "k"}"#;
        assert_eq!(wanted(both, Some("k")).unwrap().idempotency_key.as_deref(), Some("k"));
        assert!(wanted(both, Some("other")).is_err());
    }

    #[test]
    fn a_list_is_filtered_by_labels_and_metadata() {
        let filter = parse_filter("label.team=a&metadata.tool=b%20c&include_failed=1&x=y").unwrap();
        assert_eq!(filter.labels["team"], "a");
        assert_eq!(filter.metadata["tool"], "b c");
        assert!(filter.include_failed);
        assert!(parse_filter("include_failed=maybe").is_err());
    }
}
