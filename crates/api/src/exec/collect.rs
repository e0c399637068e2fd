//! A command whose output is collected, and the list of those that run.

use atoll_control::{ExecResult, Held};
use atoll_model::{ExecId, Outcome, Refusal, SandboxId};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;

use super::wire::{CommandInfo, ExecBody, ExecReply, SignalBody};
use crate::{
    app::{App, Authenticated},
    error::{ApiError, ApiResult, ErrorBody, code_word},
    extract::{Id, Json},
    output::{NO_EXIT, OutcomeFields, OutputFields, ending_in_words},
    slow::{self, SlowAnswer},
};

/// Runs a command and answers with all of its output.
///
/// A non-zero exit code is a 200. After 20 seconds without a result a 200 is begun and spaces are sent ahead of
/// the JSON; a deadline that passes later is told in it (`exit_code` 124, `outcome` "timeout").
#[utoipa::path(
    post, path = "/sandboxes/{id}/exec", tag = "commands", operation_id = "exec_run", request_body = ExecBody,
    responses(
        (status = 200, description = "It ended.", body = ExecReply),
        (status = 504, description = "Its deadline passed, within 20 seconds. `result` has the output so far.", body = ErrorBody),
    )
)]
pub(crate) async fn run(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Json(body): Json<ExecBody>,
) -> ApiResult<Response> {
    let command = body.into_command()?;
    if command.request.detach {
        return Err(ApiError::field(
            "detach",
            "detach goes with exec/stream, whose header X-Exec-Id names the command",
        ));
    }
    let deadline = command.request.timeout;
    let work = async move {
        let ran = app
            .control
            .exec_run(&caller, id, command.request, command.collect)
            .await;
        let (ran, share) = Held::split(ran);
        (Collected(ran), share)
    };
    Ok(slow::answer(deadline, work).await)
}

/// What a collected command came to.
pub(crate) struct Collected(pub(crate) Result<ExecResult, Refusal>);

impl Collected {
    /// The reply, or the refusal: a deadline is one while the status can still say so.
    pub(crate) fn into_reply(self) -> ApiResult<ExecReply> {
        let result = self.0?;
        let timed_out = matches!(result.outcome, Outcome::Timeout { .. });
        let message = timed_out.then(|| ending_in_words("command", &result.outcome)).flatten();
        let reply = ExecReply::from(result);
        match message {
            Some(message) => Err(ApiError::timeout(message, &reply)),
            None => Ok(reply),
        }
    }
}

impl SlowAnswer for Collected {
    type Body = ExecReply;

    fn in_time(self) -> Response {
        match self.into_reply() {
            Ok(reply) => axum::Json(reply).into_response(),
            Err(error) => error.into_response(),
        }
    }

    fn late(self) -> ExecReply {
        match self.0 {
            Ok(result) => {
                let note = ending_in_words("command", &result.outcome);
                let mut reply = ExecReply::from(result);
                if let Some(note) = note {
                    append_line(&mut reply.stderr, &note);
                    reply.error = Some(note);
                    reply.code = Some(reply.outcome.outcome.to_owned());
                }
                reply
            }
            Err(refusal) => ExecReply {
                stdout: String::new(),
                stderr: format!("{}\n", refusal.message),
                exit_code: NO_EXIT,
                duration_ms: 0,
                exec_id: None,
                code: Some(code_word(refusal.code)),
                outcome: OutcomeFields::refused(refusal.code),
                error: Some(refusal.message),
                output: OutputFields::default(),
            },
        }
    }
}

/// Adds a line of ours after a program's output.
pub(crate) fn append_line(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
    text.push('\n');
}

/// Lists the commands that run, and those that ended in the last ten minutes.
#[utoipa::path(
    get, path = "/sandboxes/{id}/exec", tag = "commands", operation_id = "exec_list",
    responses((status = 200, description = "The commands.", body = Vec<CommandInfo>))
)]
pub(crate) async fn list(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
) -> ApiResult<axum::Json<Vec<CommandInfo>>> {
    let commands = app.control.exec_list(&caller, id).await?;
    Ok(axum::Json(commands.into_iter().map(CommandInfo::from).collect()))
}

/// Sends a signal to a command's process group.
#[utoipa::path(
    post, path = "/sandboxes/{id}/exec/{exec_id}/signal", tag = "commands", operation_id = "exec_signal",
    request_body = SignalBody,
    responses((status = 204, description = "It was sent."))
)]
pub(crate) async fn signal(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Id(exec): Id<ExecId>,
    Json(body): Json<SignalBody>,
) -> ApiResult<StatusCode> {
    app.control.exec_signal(&caller, id, exec, body.signal).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use atoll_control::OutputText;
    use atoll_model::ErrorCode;

    use super::*;

    fn timed_out() -> Collected {
        let text = |text: &str| OutputText {
            text: text.to_owned(),
            ..OutputText::default()
        };
        Collected(Ok(ExecResult {
            exec_id: ExecId::random(),
            outcome: Outcome::Timeout {
                timeout_ms: 2000,
                context_restarted: false,
            },
            exit_code: None,
            signal: None,
            stdout: text("so far"),
            stderr: text("x"),
            duration: Duration::from_secs(2),
        }))
    }

    #[test]
    fn a_timeout_in_time_is_a_504_with_the_output_so_far() {
        let response = timed_out().in_time();
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        let error = response.extensions().get::<ApiError>().unwrap().clone().body("r");
        assert_eq!(error.error, "command timeout after 2s");
        assert_eq!(error.result.unwrap()["stdout"], "so far");
    }

    #[test]
    fn a_late_timeout_is_told_in_the_body() {
        let reply = timed_out().late();
        assert_eq!(reply.exit_code, 124);
        assert_eq!(reply.stderr, "x\ncommand timeout after 2s\n");
        assert_eq!(reply.code.as_deref(), Some("timeout"));
    }

    #[test]
    fn a_late_refusal_is_no_success() {
        let gone = Refusal::new(ErrorCode::SandboxGone, "the sandbox is gone: it was deleted");
        let reply = Collected(Err(gone)).late();
        assert_ne!(reply.exit_code, 0);
        assert_eq!(reply.outcome.outcome, "sandbox_gone");
        assert!(reply.stderr.contains("deleted"));
    }
}
