//! Commands in a sandbox.

use std::time::Duration;

use atoll_guest_link::GuestError;
use atoll_model::{ExecId, OutputLimit, Refusal, SandboxId, Scope};
use atoll_protocol::types::{ExecInfo, ExecStart, GuestCode, TerminalSize};
use bytes::Bytes;

use crate::{
    Caller, Control, ExecCollect, ExecRequest, ExecResult, ExecSession, Held, Share,
    check::{self, check_env, check_no_nul, check_timeout},
    exec_session::{ExecEvent, ExecInput, ExecOutput},
    guest::Counts,
    refusal,
    text::TextCapture,
};

/// What a shell says for a program that is not there, and for one that can't be run.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

impl Control {
    /// Runs a command to its end and collects its output. A deadline that passed is an `Ok` with [`Timeout`](atoll_model::Outcome::Timeout) and the
    /// output so far; a program that is not there is an `Ok` with exit code 127 (126 when it can't be run), as in a shell.
    ///
    /// # Errors
    /// `SandboxGone` at once when the sandbox ends meanwhile, `AgentLost` when the agent falls silent, `InvalidRequest`,
    /// `NotFound`, `NotRunning`, `TooMany`, `Forbidden`; `NoCapacity` when the answers of other calls fill the memory for them.
    pub async fn exec_run(
        &self,
        caller: &Caller,
        id: SandboxId,
        request: ExecRequest,
        collect: ExecCollect,
    ) -> Result<Held<ExecResult>, Refusal> {
        let ExecCollect { stdin, keep } = collect;
        let share = self.inner.answers.begin().await?;
        let session = self.exec_open(caller, id, request, stdin.is_some(), Some(keep)).await?;
        let ExecSession {
            exec_id,
            input,
            mut output,
            ..
        } = session;
        let feeding = feed(input, stdin);
        let mut feeding = std::pin::pin!(feeding);
        let mut fed = false;
        let mut collecting = std::pin::pin!(collect_output(exec_id, &mut output, keep, share));
        loop {
            tokio::select! {
                biased;
                result = &mut collecting => return result,
                () = &mut feeding, if !fed => fed = true,
            }
        }
    }

    /// Starts a command and streams what it does. With `stdin`, [`ExecSession::input`] feeds it (a terminal always has input).
    ///
    /// # Errors
    /// As for [`exec_run`](Self::exec_run); once the session is there, its `End` says everything.
    pub async fn exec_start(
        &self,
        caller: &Caller,
        id: SandboxId,
        request: ExecRequest,
        stdin: bool,
    ) -> Result<ExecSession, Refusal> {
        self.exec_open(caller, id, request, stdin, None).await
    }

    async fn exec_open(
        &self,
        caller: &Caller,
        id: SandboxId,
        request: ExecRequest,
        stdin: bool,
        keep: Option<OutputLimit>,
    ) -> Result<ExecSession, Refusal> {
        let deadline = request.timeout;
        let start = checked_start(request, stdin, keep)?;
        let lent = self.lend(caller, id, Scope::Full, Counts::AsUse).await?;
        // The error itself is wanted inside: a program that is not there is an ordinary end of a command.
        let opened = lent.race(async { Ok(lent.link.exec(&start).await) }).await?;
        match opened {
            Ok(session) => Ok(ExecSession::guest(session, lent, deadline)),
            Err(GuestError::Refused(refusal)) if refusal.code == GuestCode::CommandNotFound => {
                Ok(ExecSession::not_started(NOT_FOUND, &refusal.message))
            }
            Err(GuestError::Refused(refusal)) if refusal.code == GuestCode::NotExecutable => {
                Ok(ExecSession::not_started(NOT_EXECUTABLE, &refusal.message))
            }
            Err(error) => Err(lent.explain(error).await),
        }
    }

    /// Follows a detached command: first what is retained of its output, then what comes.
    ///
    /// # Errors
    /// `NotFound` when there is no such command (any more); as for [`exec_run`](Self::exec_run).
    pub async fn exec_attach(&self, caller: &Caller, id: SandboxId, exec: ExecId) -> Result<ExecSession, Refusal> {
        let lent = self.lend(caller, id, Scope::Full, Counts::AsUse).await?;
        let session = lent.race(lent.link.exec_attach(exec)).await?;
        Ok(ExecSession::guest(session, lent, None))
    }

    /// The commands that run, and those that ended in the last ten minutes.
    ///
    /// # Errors
    /// `NotFound`, `NotRunning`, `SandboxGone`, `AgentLost`.
    pub async fn exec_list(&self, caller: &Caller, id: SandboxId) -> Result<Vec<ExecInfo>, Refusal> {
        let lent = self.lend(caller, id, Scope::ReadOnly, Counts::AsLook).await?;
        lent.prompt(lent.link.exec_list()).await
    }

    /// Sends a signal, 1 to 64, to a command's process group.
    ///
    /// # Errors
    /// `InvalidRequest` for another number, `NotFound` when there is no such command.
    pub async fn exec_signal(&self, caller: &Caller, id: SandboxId, exec: ExecId, signal: i32) -> Result<(), Refusal> {
        if !(1..=64).contains(&signal) {
            return Err(Refusal::field(
                "signal",
                format!("signal must be 1 to 64, not {signal}"),
            ));
        }
        let lent = self.lend(caller, id, Scope::Full, Counts::AsUse).await?;
        lent.prompt(lent.link.exec_signal(exec, signal)).await
    }

    /// Resizes a command's terminal; rows and columns are 1 to 1000.
    ///
    /// # Errors
    /// `InvalidRequest` for another size or a command without a terminal, `NotFound` when there is no such command.
    pub async fn exec_resize(
        &self,
        caller: &Caller,
        id: SandboxId,
        exec: ExecId,
        size: TerminalSize,
    ) -> Result<(), Refusal> {
        check::check_terminal(size)?;
        let lent = self.lend(caller, id, Scope::Full, Counts::AsUse).await?;
        lent.prompt(lent.link.exec_resize(exec, size)).await
    }
}

fn checked_start(request: ExecRequest, stdin: bool, keep: Option<OutputLimit>) -> Result<ExecStart, Refusal> {
    check::check_program(&request.program)?;
    check_env(&request.env)?;
    for (field, value) in [("cwd", &request.cwd), ("user", &request.user)] {
        check_no_nul(field, value.as_deref().unwrap_or_default())?;
    }
    request.terminal.map_or(Ok(()), check::check_terminal)?;
    Ok(ExecStart {
        program: request.program,
        cwd: request.cwd,
        user: request.user,
        env: request.env,
        stdin,
        terminal: request.terminal,
        timeout_ms: request.timeout.map(check_timeout).transpose()?,
        keep,
        detach: request.detach,
    })
}

/// Writes all of standard input and ends it. What can't be written is told by the command's own end.
async fn feed(mut input: ExecInput, stdin: Option<Bytes>) {
    if let Some(bytes) = stdin
        && let Err(refusal) = input.write(bytes).await
    {
        tracing::debug!(%refusal, "standard input was cut short");
    }
    input.end();
}

async fn collect_output(
    exec_id: ExecId,
    output: &mut ExecOutput,
    keep: OutputLimit,
    mut share: Share,
) -> Result<Held<ExecResult>, Refusal> {
    let (mut stdout, mut stderr) = (TextCapture::new(keep.0), TextCapture::new(keep.0));
    while let Some(event) = output.next().await {
        let end = match event {
            ExecEvent::Stdout(bytes) => {
                stdout.push(&bytes);
                share.cover(stdout.held() + stderr.held()).await?;
                continue;
            }
            ExecEvent::Stderr(bytes) => {
                stderr.push(&bytes);
                share.cover(stdout.held() + stderr.held()).await?;
                continue;
            }
            ExecEvent::End(end) => end,
        };
        refusal::unknown_end(&end.outcome)?;
        let result = ExecResult {
            exec_id,
            outcome: end.outcome,
            exit_code: end.exit_code,
            signal: end.signal,
            stdout: stdout.finish(Some(end.stdout)),
            stderr: stderr.finish(Some(end.stderr)),
            duration: Duration::from_millis(end.duration_ms),
        };
        return Ok(Held::new(result, share));
    }
    Err(refusal::lost())
}
