//! `doctor`: what works on this host, found out by trying.

use std::{path::PathBuf, process::ExitCode};

use atoll_server::{
    checkup::{self, Check, Verdict},
    settings::{HostFacts, Overrides},
};
use clap::Args;
use nix::unistd::Uid;
use serde_json::json;

use super::Context;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// State folder that a server would use [default: as for `atoll serve`]
    #[arg(long, env = "ATOLL_STATE_DIR", value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

impl DoctorArgs {
    /// Success when a server would work here.
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let root = Uid::effective().is_root();
        let wanted = Overrides {
            state_dir: self.state_dir,
            ..Overrides::default()
        };
        let settings = wanted.resolve(&HostFacts::gather(root));
        let state_dir = settings.map_err(|error| Failure::local(error.to_string()))?.state_dir;
        let checks = checkup::examine(&state_dir, root).await;
        let worst = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok);
        if context.screen.json {
            context
                .screen
                .json(&json!({ "usable": worst < Verdict::Failure, "checks": checks }))?;
        } else {
            show(context, &checks, worst)?;
        }
        Ok(if worst == Verdict::Failure {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

fn show(context: &Context, checks: &[Check], worst: Verdict) -> Result<(), Failure> {
    for check in checks {
        let word = match check.verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Failure => "FAILED",
        };
        context
            .screen
            .line(&format!("{word:<8} {}: {}", check.name, check.found))?;
        if let Some(advice) = &check.advice {
            context.screen.line(&format!("         -> {advice}"))?;
        }
    }
    context.screen.line(match worst {
        Verdict::Failure => "\nA server would not work here; see what FAILED.",
        _ => "\nA server works here: `atoll serve` starts one.",
    })
}
