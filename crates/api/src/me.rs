//! The caller about itself, and its workspace's keys. On the wire a key is a token.

use atoll_control::KeyView;
use atoll_model::Scope;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    app::{App, Authenticated},
    error::{ApiError, ApiResult},
    extract::{Json, Name},
};

/// The longest life that a token may be given, in days.
const MAX_DAYS: f64 = 3650.0;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(me))
        .routes(routes!(list, create))
        .routes(routes!(revoke))
}

/// A workspace.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Org {
    /// Its id.
    id: String,
    /// Its name.
    name: String,
}

/// The caller.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Me {
    /// The id of the key that calls; there are no user accounts.
    user_id: String,
    /// Always null: keys have no mail address.
    email: Option<String>,
    /// The id of its workspace.
    current_org: String,
    /// The one workspace that it may use.
    orgs: Vec<Org>,
    /// `api_token`.
    auth_method: &'static str,
    /// Its key.
    token: Token,
}

/// A token as lists show it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Token {
    /// The first characters of its text.
    prefix: String,
    /// What a person called it.
    label: String,
    /// `read-only`, `full` or `admin`.
    #[schema(example = "full")]
    scope: &'static str,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    /// After when it is refused.
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    expires_at: Option<OffsetDateTime>,
    /// When it was last used, to the minute.
    #[serde(with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    last_used_at: Option<OffsetDateTime>,
}

impl From<KeyView> for Token {
    fn from(view: KeyView) -> Self {
        Self {
            prefix: view.prefix,
            label: view.name,
            scope: view.scope.as_str(),
            created_at: view.created_at,
            expires_at: view.expires_at,
            last_used_at: view.last_used_at,
        }
    }
}

/// Tells who calls.
#[utoipa::path(
    get, path = "/me", tag = "tokens", operation_id = "me",
    responses((status = 200, description = "The caller.", body = Me))
)]
async fn me(State(app): State<App>, Authenticated(caller): Authenticated) -> ApiResult<axum::Json<Me>> {
    let view = app.control.me(&caller).await?;
    let workspace = view.workspace.to_string();
    Ok(axum::Json(Me {
        user_id: view.key.id.to_string(),
        email: None,
        current_org: workspace.clone(),
        orgs: vec![Org {
            id: workspace,
            name: view.workspace_name,
        }],
        auth_method: "api_token",
        token: view.key.into(),
    }))
}

/// The workspace's tokens.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tokens {
    /// All that are valid.
    items: Vec<Token>,
}

/// Lists the workspace's tokens.
#[utoipa::path(
    get, path = "/me/tokens", tag = "tokens", operation_id = "token_list",
    responses((status = 200, description = "The tokens.", body = Tokens))
)]
async fn list(State(app): State<App>, Authenticated(caller): Authenticated) -> ApiResult<axum::Json<Tokens>> {
    let items = app.control.key_list(&caller).await?;
    Ok(axum::Json(Tokens {
        items: items.into_iter().map(Token::from).collect(),
    }))
}

/// A token to make.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TokenBody {
    /// What to call it.
    label: String,
    /// After how many days it is refused; never when absent.
    #[schema(exclusive_minimum = 0.0, maximum = 3650.0)]
    expires_in_days: Option<f64>,
    /// `read-only`, `full` or `admin`; `full` when absent.
    #[schema(value_type = Option<String>, pattern = "^(read-only|full|admin)$")]
    scope: Option<Scope>,
}

/// A token that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NewToken {
    /// Its text. It is shown this once.
    token: String,
    /// As in lists.
    #[serde(flatten)]
    shown: Token,
}

/// Makes a token.
#[utoipa::path(
    post, path = "/me/tokens", tag = "tokens", operation_id = "token_create", request_body = TokenBody,
    responses((status = 200, description = "The token, shown this once.", body = NewToken))
)]
async fn create(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Json(body): Json<TokenBody>,
) -> ApiResult<axum::Json<NewToken>> {
    let expires_in = body.expires_in_days.map(days).transpose()?;
    let scope = body.scope.unwrap_or(Scope::Full);
    let (view, text) = app.control.key_create(&caller, &body.label, scope, expires_in).await?;
    Ok(axum::Json(NewToken {
        token: text.expose().to_owned(),
        shown: view.into(),
    }))
}

fn days(days: f64) -> ApiResult<Duration> {
    if days > 0.0 && days <= MAX_DAYS {
        return Ok(Duration::seconds_f64(days * 86_400.0));
    }
    Err(ApiError::field(
        "expires_in_days",
        format!("expires_in_days must be more than 0 and at most {MAX_DAYS}, not {days}"),
    ))
}

/// Revokes a token. Works at once.
#[utoipa::path(
    delete, path = "/me/tokens/{prefix}", tag = "tokens", operation_id = "token_revoke",
    responses((status = 204, description = "It is refused from now on."))
)]
async fn revoke(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Name(prefix): Name,
) -> ApiResult<StatusCode> {
    app.control.key_revoke(&caller, &prefix).await?;
    Ok(StatusCode::NO_CONTENT)
}
