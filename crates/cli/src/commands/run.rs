//! `run`: a sandbox for one command.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use serde_json::{Value, json};

use super::{Context, SandboxArgs, exec::CommandArgs, sandbox};
use crate::{client::Client, failure::Failure, remote::Exit, signals::Signals, transfer::Transfer, wire::Sandbox};

/// How long the removal of the sandbox may take before the user is told that it may be left.
const REMOVAL: Duration = Duration::from_secs(20);
/// Idle seconds after which the server removes a sandbox whose `atoll run` died without removing it.
const ABANDONED_TTL: u64 = 300;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    sandbox: SandboxArgs,
    /// Copy a file or directory into the sandbox first (repeatable)
    #[arg(short, long = "file", value_name = "LOCAL:/PATH", value_parser = upload)]
    files: Vec<(PathBuf, String)>,
    /// Keep the sandbox afterwards and print its id on standard error
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    command: CommandArgs,
}

fn upload(text: &str) -> Result<(PathBuf, String), String> {
    match text.rsplit_once(':') {
        Some((local, path)) if !local.is_empty() && path.starts_with('/') => Ok((local.into(), path.to_owned())),
        _ => Err("it has the form LOCAL:/PATH, with an absolute path in the sandbox".to_owned()),
    }
}

impl RunArgs {
    /// The command's exit code; the sandbox is removed whatever happens.
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let client = context.client()?;
        // From here on a signal no longer ends the process, so that what was created is removed.
        let mut signals = Signals::listen()?;
        let mut body = self.sandbox.body();
        if !self.keep {
            body.insert("ttl_seconds".to_owned(), json!(ABANDONED_TTL));
        }
        let creating = sandbox::create(&client, context, Value::Object(body));
        tokio::pin!(creating);
        let (created, stopped) = tokio::select! {
            created = &mut creating => (created?, None),
            // What is being created has no id yet, so it is waited for and then removed; a second signal ends the wait.
            code = signals.next() => tokio::select! {
                created = &mut creating => (created?, Some(code)),
                code = signals.next() => return Ok(ExitCode::from(code)),
            },
        };
        let id = sandbox::parse::<Sandbox>(created)?.id;
        if context.screen.json {
            context.screen.json(&json!({ "event": "sandbox", "id": id }))?;
        }
        let job = Job {
            client: &client,
            context,
            id: &id,
        };
        let ended = match stopped {
            Some(code) => Ok(code),
            None => tokio::select! {
                ended = job.work(&self.files, self.command) => ended.map(|exit| exit.code()),
                code = signals.next() => Ok(code),
            },
        };
        if self.keep {
            context.screen.remark(&format!("kept sandbox {id}"));
        } else {
            tokio::select! {
                () = job.remove() => {}
                code = signals.next() => return Ok(ExitCode::from(code)),
            }
        }
        ended.map(ExitCode::from)
    }
}

/// One command in one sandbox of its own.
struct Job<'a> {
    client: &'a Client,
    context: &'a Context,
    id: &'a str,
}

impl Job<'_> {
    async fn work(&self, files: &[(PathBuf, String)], command: CommandArgs) -> Result<Exit, Failure> {
        let transfer = Transfer::new(self.client, self.id, self.context.screen.progress());
        for (local, path) in files {
            transfer.upload(local, path).await?;
        }
        command.follow(self.client, self.context, self.id).await
    }

    /// Removes the sandbox; what cannot be removed is told, and does not hide how the command ended.
    async fn remove(&self) {
        let removed = tokio::time::timeout(REMOVAL, sandbox::remove(self.client, self.id)).await;
        let told = match removed {
            Ok(Err(failure)) if !failure.is_not_found() => failure,
            Err(_) => Failure::local("the server did not answer in time"),
            _ => return,
        };
        told.hint(format!(
            "the sandbox {} may be left; remove it with `atoll rm {}`",
            self.id, self.id
        ))
        .report(self.context.screen.json);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_names_an_absolute_path_in_the_sandbox() {
        assert_eq!(
            upload("a.csv:/work/a.csv"),
            Ok(("a.csv".into(), "/work/a.csv".to_owned()))
        );
        assert_eq!(upload("a:b:/c"), Ok(("a:b".into(), "/c".to_owned())));
        for text in ["a.csv", "a.csv:work", ":/work"] {
            assert!(upload(text).is_err(), "{text}");
        }
    }
}
