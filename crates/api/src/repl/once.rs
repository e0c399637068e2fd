//! Code that runs once, in a process of its own.

use atoll_control::{ExecCollect, ExecRequest, Held};
use atoll_model::{Refusal, SandboxId};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    app::{App, Authenticated},
    error::{ApiError, ApiResult, ErrorBody},
    exec::{Collected, ExecReply},
    extract::{Id, Json},
    seconds,
    slow::{self, SlowAnswer},
};

/// Code to run once.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct OnceBody {
    /// `python` (also `py`, `python3`) or `bash` (also `sh`, `shell`).
    #[schema(example = "python")]
    language: String,
    /// The source.
    code: String,
    /// Deadline in seconds, fractions allowed; none when absent.
    #[schema(exclusive_minimum = 0.0, maximum = 86_400.0)]
    timeout_seconds: Option<f64>,
}

/// Code that ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OnceReply {
    /// Its language.
    language: &'static str,
    /// How its process ended, as for a command.
    #[serde(flatten)]
    ran: ExecReply,
}

/// The languages that can be run once, each with its other names.
const LANGUAGES: [(&str, &[&str]); 2] = [("python", &["py", "python3"]), ("bash", &["sh", "shell"])];

fn language_of(name: &str) -> ApiResult<&'static str> {
    let name = name.to_lowercase();
    let found = LANGUAGES
        .iter()
        .find(|(language, others)| *language == name || others.contains(&name.as_str()));
    found
        .map(|(language, _)| *language)
        .ok_or_else(|| ApiError::field("language", format!("language must be python or bash, not \"{name}\"")))
}

fn request_of(language: &str, code: String) -> (ExecRequest, ExecCollect) {
    if language == "python" {
        // From standard input, so that the source may be longer than an argument.
        let collect = ExecCollect {
            stdin: Some(code.into()),
            ..ExecCollect::default()
        };
        (ExecRequest::argv(["python3", "-"]), collect)
    } else {
        (ExecRequest::argv(["bash", "-c", &code]), ExecCollect::default())
    }
}

/// Runs code once, in a process of its own that keeps nothing.
#[utoipa::path(
    post, path = "/sandboxes/{id}/repl", tag = "code", operation_id = "code_run_once", request_body = OnceBody,
    responses(
        (status = 200, description = "It ended.", body = OnceReply),
        (status = 504, description = "Its deadline passed, within 20 seconds. `result` has the output so far.", body = ErrorBody),
    )
)]
pub(crate) async fn once(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Json(body): Json<OnceBody>,
) -> ApiResult<Response> {
    let language = language_of(&body.language)?;
    let deadline = seconds::from_seconds("timeout_seconds", body.timeout_seconds)?;
    let (mut request, collect) = request_of(language, body.code);
    request.timeout = deadline;
    let work = async move {
        let ran = app.control.exec_run(&caller, id, request, collect).await;
        let (ran, share) = Held::split(ran);
        (Once { language, ran }, share)
    };
    Ok(slow::answer(deadline, work).await)
}

struct Once {
    language: &'static str,
    ran: Result<atoll_control::ExecResult, Refusal>,
}

impl SlowAnswer for Once {
    type Body = OnceReply;

    fn in_time(self) -> Response {
        match Collected(self.ran).into_reply() {
            Ok(ran) => {
                let language = self.language;
                axum::Json(OnceReply { language, ran }).into_response()
            }
            Err(error) => error.into_response(),
        }
    }

    fn late(self) -> OnceReply {
        OnceReply {
            language: self.language,
            ran: Collected(self.ran).late(),
        }
    }
}

/// The languages that code may be in.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Languages {
    /// For code that runs once.
    languages: Vec<&'static str>,
    /// For contexts.
    sessions: Vec<&'static str>,
}

/// Lists the languages that code may be in.
#[utoipa::path(
    get, path = "/sandboxes/{id}/repl/languages", tag = "code", operation_id = "language_list",
    responses((status = 200, description = "The languages.", body = Languages))
)]
pub(crate) async fn languages(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
) -> ApiResult<axum::Json<Languages>> {
    app.control.sandbox_get(&caller, id).await?;
    Ok(axum::Json(Languages {
        languages: LANGUAGES.iter().map(|(language, _)| *language).collect(),
        sessions: vec!["python"],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_has_several_names() {
        assert_eq!(language_of("Py").unwrap(), "python");
        assert_eq!(language_of("shell").unwrap(), "bash");
        assert_eq!(
            language_of("cobol").unwrap_err().body("r").field.as_deref(),
            Some("language")
        );
    }
}
