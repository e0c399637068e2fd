//! What handlers share, and who calls them.

use std::sync::Arc;

use atoll_control::{Caller, Control};
use atoll_model::ErrorCode;
use axum::extract::{FromRef, FromRequestParts};
use http::{HeaderMap, Method, header, request::Parts};

use crate::{
    config::ApiConfig,
    error::{ApiError, ApiResult},
    key_end,
    metrics::Meter,
};

/// The state of every handler.
#[derive(Debug, Clone, FromRef)]
pub(crate) struct App {
    pub(crate) control: Control,
    pub(crate) config: Arc<ApiConfig>,
    pub(crate) meter: Meter,
}

/// The caller, once its key was found good. Taken before the body, so that a stranger's body is never looked at.
#[derive(Debug)]
pub(crate) struct Authenticated(pub(crate) Caller);

impl FromRequestParts<App> for Authenticated {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> ApiResult<Self> {
        let token = token(parts).ok_or_else(|| ApiError::new(ErrorCode::Unauthorized, "missing bearer token"))?;
        let caller = app.control.authenticate(&token).await?;
        key_end::note(parts, &caller);
        Ok(Self(caller))
    }
}

/// The key: from `Authorization: Bearer`, `X-API-Key`, or on a GET from `?access_token=`, since browsers cannot set
/// headers on a WebSocket or an EventSource (pandastack-v1 §1.2).
fn token(parts: &Parts) -> Option<String> {
    bearer(&parts.headers)
        .or_else(|| parts.headers.get("x-api-key")?.to_str().ok())
        .map(|token| token.trim().to_owned())
        .or_else(|| {
            (parts.method == Method::GET)
                .then(|| query_token(parts.uri.query()?))
                .flatten()
        })
        .filter(|token| !token.is_empty())
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

fn query_token(query: &str) -> Option<String> {
    form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| name == "access_token")
        .map(|(_, token)| token.into_owned())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn token_of(request: http::request::Builder) -> Option<String> {
        token(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn a_key_is_found_in_each_of_its_places() {
        let get = || Request::get("/");
        assert_eq!(
            token_of(get().header("authorization", "Bearer a")).as_deref(),
            Some("a")
        );
        assert_eq!(
            token_of(get().header("authorization", "bearer  a ")).as_deref(),
            Some("a")
        );
        assert_eq!(token_of(get().header("x-api-key", "b")).as_deref(), Some("b"));
        assert_eq!(token_of(Request::get("/?x=1&access_token=c%2B")).as_deref(), Some("c+"));
        assert_eq!(token_of(Request::post("/?access_token=c")), None);
        assert_eq!(token_of(get().header("authorization", "Basic a")), None);
        assert_eq!(token_of(get().header("authorization", "Bearer ")), None);
    }
}
