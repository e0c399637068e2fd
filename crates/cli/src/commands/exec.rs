//! `exec` and `shell`: a command in a sandbox that is there.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use serde_json::json;

use super::Context;
use crate::{
    client::Client,
    failure::Failure,
    numbers,
    pairs::{self, Pair},
    remote::{self, Exit, Input, Output, RemoteCommand},
    screen::Screen,
    signals::Signals,
    terminal::{self, RawMode},
};

/// What to run and how; shared by `run` and `exec`.
#[derive(Debug, Args)]
pub(crate) struct CommandArgs {
    /// Deadline in seconds, fractions allowed; the whole process tree is ended at it
    #[arg(long, value_name = "SECONDS", value_parser = numbers::deadline)]
    timeout: Option<f64>,
    /// Working directory [default: the user's home]
    #[arg(short = 'w', long, value_name = "PATH")]
    cwd: Option<String>,
    /// User name in the sandbox [default: root]
    #[arg(short, long, value_name = "NAME")]
    user: Option<String>,
    /// The command and its arguments, which come last; no shell is involved. `--` before it is needed only where it begins
    /// with a dash itself
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    argv: Vec<String>,
}

impl CommandArgs {
    fn command(self) -> RemoteCommand {
        RemoteCommand {
            argv: self.argv,
            cwd: self.cwd,
            user: self.user,
            timeout_seconds: self.timeout,
            ..RemoteCommand::default()
        }
    }

    /// Runs it, showing its output as it comes; standard input is passed on when it is no terminal.
    pub(super) async fn follow(self, client: &Client, context: &Context, sandbox: &str) -> Result<Exit, Failure> {
        let input = if io::stdin().is_terminal() {
            Input::None
        } else {
            Input::Stdin
        };
        self.command()
            .start(client, sandbox, input)
            .await?
            .follow(show(context.screen))
            .await
    }
}

/// Output to its stream, or one JSON object a line.
fn show(screen: Screen) -> impl AsyncFnMut(Output) -> Result<(), Failure> {
    async move |output| {
        if !screen.json {
            return remote::print(output).await;
        }
        screen.json(&match output {
            Output::Start(exec_id) => json!({ "event": "start", "exec_id": exec_id }),
            Output::Stdout(bytes) => chunk("stdout", &bytes),
            Output::Stderr(bytes) => chunk("stderr", &bytes),
            Output::Exit(exit) => {
                json!({ "event": "exit", "exit_code": exit.exit_code, "duration_ms": exit.duration_ms })
            }
        })
    }
}

/// Bytes that are no text, or cut inside a character, come in base64 beside their best reading.
fn chunk(event: &str, bytes: &[u8]) -> serde_json::Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "event": event, "chunk": text }),
        Err(_) => json!({
            "event": event,
            "chunk": String::from_utf8_lossy(bytes),
            "chunk_base64": BASE64_STANDARD.encode(bytes),
        }),
    }
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// The sandbox
    #[arg(value_name = "SANDBOX")]
    id: String,
    /// Pass standard input on even when it is a terminal
    #[arg(short, long)]
    interactive: bool,
    /// Run it on a terminal of this one's size
    #[arg(short, long)]
    tty: bool,
    /// Set a variable for this command; KEY alone takes the value from here (repeatable)
    #[arg(short, long = "env", value_name = "KEY[=VALUE]", value_parser = pairs::environment_pair)]
    env: Vec<Pair>,
    #[command(flatten)]
    command: CommandArgs,
}

impl ExecArgs {
    /// The command's exit code.
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let client = context.client()?;
        let command = RemoteCommand {
            env: pairs::collect(self.env),
            ..self.command.command()
        };
        if self.tty {
            return on_terminal(&client, &self.id, command, self.interactive).await;
        }
        let input = if self.interactive || !io::stdin().is_terminal() {
            Input::Stdin
        } else {
            Input::None
        };
        let mut signals = Signals::listen()?;
        let ending = async {
            let running = command.start(&client, &self.id, input).await?;
            running.follow(show(context.screen)).await
        };
        tokio::select! {
            exit = ending => Ok(ExitCode::from(exit?.code())),
            // Dropping the socket ends the command in the sandbox.
            code = signals.next() => Ok(ExitCode::from(code)),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// The sandbox
    #[arg(value_name = "SANDBOX")]
    id: String,
    /// User name in the sandbox [default: root]
    #[arg(short, long, value_name = "NAME")]
    user: Option<String>,
}

impl ShellArgs {
    /// The shell's exit code.
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let client = context.client()?;
        let shell = "if command -v bash >/dev/null; then exec bash -l; else exec sh -l; fi";
        let command = RemoteCommand {
            argv: ["/bin/sh", "-c", shell].map(str::to_owned).to_vec(),
            user: self.user,
            ..RemoteCommand::default()
        };
        on_terminal(&client, &self.id, command, true).await
    }
}

/// Runs a command on a terminal in the sandbox, with this terminal at the other end of it.
async fn on_terminal(
    client: &Client,
    sandbox: &str,
    command: RemoteCommand,
    interactive: bool,
) -> Result<ExitCode, Failure> {
    let term = std::env::var("TERM").unwrap_or_else(|_| "xterm-256color".to_owned());
    let mut command = RemoteCommand {
        terminal: Some(terminal::size()),
        ..command
    };
    command.env.entry("TERM".to_owned()).or_insert(term);
    let input = if interactive { Input::Stdin } else { Input::None };
    let running = command.start(client, sandbox, input).await?;
    let mut signals = Signals::listen()?;
    let raw = (interactive && io::stdin().is_terminal())
        .then(RawMode::enter)
        .transpose()?;
    let ended = tokio::select! {
        exit = running.follow(remote::print) => exit.map(|exit| exit.code()),
        code = signals.next() => Ok(code),
    };
    drop(raw);
    ended.map(ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_arrive_exactly() {
        assert_eq!(chunk("stdout", b"a"), json!({ "event": "stdout", "chunk": "a" }));
        assert_eq!(chunk("stdout", b"\xff")["chunk_base64"], "/w==");
    }
}
