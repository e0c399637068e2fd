//! `cp`: files and directories into a sandbox and out of it.

use std::path::{Path, PathBuf};

use clap::Args;

use super::Context;
use crate::{
    failure::Failure,
    screen::human_bytes,
    transfer::{Moved, Place, Transfer},
};

#[derive(Debug, Args)]
pub(crate) struct CpArgs {
    /// What to copy: a local path, or SANDBOX:/path
    #[arg(value_name = "FROM")]
    from: Place,
    /// Where to: a local path, or SANDBOX:/path; a directory takes it under its own name
    #[arg(value_name = "TO")]
    to: Place,
}

impl CpArgs {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let bars = context.screen.progress();
        let moved = match (&self.from, &self.to) {
            (Place::Here(from), Place::There { sandbox, path }) => {
                let transfer = Transfer::new(&client, sandbox, bars);
                let to = target_there(&transfer, from, path).await?;
                transfer.upload(from, &to).await?
            }
            (Place::There { sandbox, path }, Place::Here(to)) => {
                let transfer = Transfer::new(&client, sandbox, bars);
                transfer.download(path, &target_here(path, to)).await?
            }
            _ => {
                return Err(Failure::local("exactly one side of a copy is in a sandbox")
                    .hint("atoll cp FILE SANDBOX:/path, or atoll cp SANDBOX:/path FILE"));
            }
        };
        report(context, moved)
    }
}

fn report(context: &Context, moved: Moved) -> Result<(), Failure> {
    if context.screen.json {
        return context.screen.json(&moved);
    }
    let plural = if moved.files == 1 { "" } else { "s" };
    context
        .screen
        .remark(&format!("{} file{plural}, {}", moved.files, human_bytes(moved.bytes)));
    Ok(())
}

/// As `cp` does it: into a directory that is there, or that a slash at the end promises.
async fn target_there(transfer: &Transfer<'_>, from: &Path, path: &str) -> Result<String, Failure> {
    let is_directory = path.ends_with('/') || transfer.stat(path).await?.is_some_and(|entry| entry.is_dir);
    if !is_directory {
        return Ok(path.to_owned());
    }
    let absolute = std::path::absolute(from)?;
    match absolute.file_name().and_then(|name| name.to_str()) {
        Some(name) => Ok(format!("{}/{name}", path.trim_end_matches('/'))),
        None => Err(Failure::local(format!("{} has no name to take over", from.display()))),
    }
}

fn target_here(path: &str, to: &Path) -> PathBuf {
    match path.trim_end_matches('/').rsplit('/').next() {
        Some(name) if !name.is_empty() && to.is_dir() => to.join(name),
        _ => to.to_owned(),
    }
}
