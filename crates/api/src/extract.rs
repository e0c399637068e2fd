//! What a handler takes from a request, parsed strictly: a refusal names the field.

use std::str::FromStr;

use atoll_model::{BuildId, ContextId, ErrorCode, ExecId, Refusal, SandboxId};
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use http::{HeaderMap, header, request::Parts};
use serde::de::DeserializeOwned;

use crate::{
    body,
    error::{ApiError, ApiResult},
};

/// A JSON body of at most 1 MiB, whatever its content type says.
///
/// An unknown field is refused by its name, unless a known foreign client sent it: those send fields of their own
/// server's, and expect them to be ignored (pandastack-v1 §2.2).
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> ApiResult<Self> {
        let whole = Whole::read(request).await?;
        if whole.body.is_empty() {
            return Err(ApiError::new(ErrorCode::InvalidRequest, "a JSON body is required"));
        }
        parse(&whole.body, whole.lenient).map(Self)
    }
}

/// The same where the body may be left out; an empty one and `null` are the default.
#[derive(Debug)]
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl<T: DeserializeOwned + Default, S: Sync> FromRequest<S> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> ApiResult<Self> {
        let whole = Whole::read(request).await?;
        if whole.body.is_empty() {
            return Ok(Self(T::default()));
        }
        if whole.body.trim_ascii() == b"null" {
            return Ok(Self(T::default()));
        }
        parse(&whole.body, whole.lenient).map(Self)
    }
}

struct Whole {
    body: bytes::Bytes,
    lenient: bool,
}

impl Whole {
    async fn read(request: Request) -> ApiResult<Self> {
        let (parts, body) = request.into_parts();
        Ok(Self {
            body: body::read_small(&parts.headers, body).await?,
            lenient: is_known_client(&parts.headers),
        })
    }
}

/// Whether one of the clients of the contract sent this: `pandastack-py/0.10.0`, `node` (which is how Node's own fetch
/// and so the TypeScript client and the CLI name themselves), `undici`.
fn is_known_client(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    agent.is_some_and(|agent| agent == "node" || agent.starts_with("undici") || agent.starts_with("pandastack"))
}

/// Parses a JSON object; a refusal names the field at fault.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8], lenient: bool) -> ApiResult<T> {
    // Deriving would take an array for the fields of an object in their order.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(ApiError::new(ErrorCode::InvalidRequest, "a JSON object is wanted here"));
    }
    let mut source = serde_json::Deserializer::from_slice(bytes);
    let mut track = serde_path_to_error::Track::new();
    let mut unknown = None;
    let tracked = serde_path_to_error::Deserializer::new(&mut source, &mut track);
    let parsed = T::deserialize(serde_ignored::Deserializer::new(
        tracked,
        &mut |path: serde_ignored::Path<'_>| {
            unknown.get_or_insert_with(|| path.to_string());
        },
    ));
    let value = parsed.map_err(|error| wrong_json(&track.path().to_string(), &error))?;
    source.end().map_err(|error| wrong_json(".", &error))?;
    match unknown {
        Some(field) if !lenient => Err(Refusal {
            field: Some(field.clone()),
            ..Refusal::new(ErrorCode::UnknownField, format!("unknown field \"{field}\""))
        }
        .into()),
        _ => Ok(value),
    }
}

fn wrong_json(path: &str, error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    // A missing field is reported at its parent, with its name between back ticks.
    let missing = text
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split_once('`'))
        .map(|(name, _)| name);
    match (path, missing) {
        (".", Some(name)) => ApiError::field(name, format!("{name} required")),
        (parent, Some(name)) => ApiError::field(&format!("{parent}.{name}"), format!("{parent}.{name} required")),
        (".", None) => ApiError::new(
            ErrorCode::InvalidRequest,
            format!("the body is not the JSON wanted here: {text}"),
        ),
        (field, None) => ApiError::field(field, format!("{field}: {text}")),
    }
}

/// The query, each parameter parsed to its type. Unknown parameters are ignored: proxies and clients add their own.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<Self> {
        parse_query(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

fn parse_query<T: DeserializeOwned>(query: &str) -> ApiResult<T> {
    let source = serde_urlencoded::Deserializer::new(form_pairs(query));
    serde_path_to_error::deserialize(source).map_err(|error| {
        let path = error.path().to_string();
        let text = error.into_inner().to_string();
        match text
            .strip_prefix("missing field `")
            .and_then(|rest| rest.split_once('`'))
        {
            Some((name, _)) => ApiError::field(name, format!("the query parameter {name} is required")),
            None if path == "." => ApiError::new(ErrorCode::InvalidRequest, format!("the query is wrong: {text}")),
            None => ApiError::field(&path, format!("{path}: {text}")),
        }
    })
}

// The encoding was checked when the request came in (`request::acceptable`), so nothing is replaced here.
fn form_pairs(query: &str) -> form_urlencoded::Parse<'_> {
    form_urlencoded::parse(query.as_bytes())
}

/// Ids that stand in paths.
pub(crate) trait PathId: FromStr {
    /// The name of the path's parameter.
    const PARAMETER: &'static str;
    /// What is not found when it is none of these.
    const WHAT: &'static str;
}

impl PathId for SandboxId {
    const PARAMETER: &'static str = "id";
    const WHAT: &'static str = "sandbox";
}

impl PathId for ContextId {
    const PARAMETER: &'static str = "sid";
    const WHAT: &'static str = "session";
}

impl PathId for ExecId {
    const PARAMETER: &'static str = "exec_id";
    const WHAT: &'static str = "command";
}

impl PathId for BuildId {
    const PARAMETER: &'static str = "build_id";
    const WHAT: &'static str = "build";
}

/// An id from the path. A text that is no id names nothing, so it is a 404.
#[derive(Debug)]
pub(crate) struct Id<T>(pub(crate) T);

impl<T: PathId, S: Send + Sync> FromRequestParts<S> for Id<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResult<Self> {
        let params = RawPathParams::from_request_parts(parts, state).await;
        let params = params.map_err(|_| Refusal::not_found(T::WHAT))?;
        let found = params.iter().find(|(name, _)| *name == T::PARAMETER);
        let id = found.and_then(|(_, text)| text.parse().ok());
        Ok(Self(id.ok_or_else(|| Refusal::not_found(T::WHAT))?))
    }
}

/// The last parameter of the path, as text.
#[derive(Debug)]
pub(crate) struct Name(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResult<Self> {
        let params = RawPathParams::from_request_parts(parts, state).await;
        let params = params.map_err(|_| ApiError::new(ErrorCode::InvalidRequest, "the path is not UTF-8"))?;
        let last = params.iter().last().map(|(_, text)| text.to_owned());
        Ok(Self(last.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Wire {
        cmd: String,
        timeout_seconds: Option<f64>,
        #[serde(default)]
        env: BTreeMap<String, String>,
    }

    fn refused(json: &str) -> crate::error::ErrorBody {
        parse::<Wire>(json.as_bytes(), false).unwrap_err().body("r")
    }

    #[test]
    fn a_wrong_field_is_named() {
        for (json, field) in [
            (r#"{"cmd": 1}"#, "cmd"),
            (r#"{}"#, "cmd"),
            (r#"{"cmd": "x", "timeout_seconds": NaN}"#, "timeout_seconds"),
            (r#"{"cmd": "x", "timeout_seconds": "1"}"#, "timeout_seconds"),
            (r#"{"cmd": "x", "env": {"K": null}}"#, "env.K"),
            (r#"{"cmd": "x", "netwrok": true}"#, "netwrok"),
        ] {
            assert_eq!(refused(json).field.as_deref(), Some(field), "{json}");
        }
        assert_eq!(refused(r#"{"cmd": "x", "netwrok": 1}"#).code, "unknown_field");
    }

    #[test]
    fn what_is_not_json_is_a_refusal_too() {
        for json in [
            "",
            "[",
            "null",
            "[]",
            r#"{"cmd": "x"} x"#,
            r#"{"cmd": "\ud800"}"#,
            "\"\u{0}\"",
            &"[".repeat(10_000),
        ] {
            assert_eq!(refused(json).code, "invalid_request", "{json:.20}");
        }
    }

    #[test]
    fn the_known_clients_may_send_more() {
        assert!(parse::<Wire>(br#"{"cmd": "x", "volumes": []}"#, true).is_ok());
    }

    #[test]
    fn a_wrong_parameter_is_named() {
        #[derive(Debug, Deserialize)]
        #[allow(dead_code)]
        struct Parameters {
            path: String,
            limit: Option<u32>,
        }
        let field = |query| parse_query::<Parameters>(query).unwrap_err().body("r").field;
        assert_eq!(field("limit=x&path=/").as_deref(), Some("limit"));
        assert_eq!(field("").as_deref(), Some("path"));
        assert_eq!(parse_query::<Parameters>("path=a+b%2F&other=1").unwrap().path, "a b/");
    }
}
