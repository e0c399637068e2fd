//! `serve`: the server itself.

use std::{error::Error, path::PathBuf, process::ExitCode};

use atoll_server::{
    logging,
    run::{Claimed, Parts, ServeError},
    settings::{HostFacts, Overrides, Settings},
    signals::Stop,
};
use clap::Args;
use nix::unistd::Uid;

use super::Context;
use crate::failure::Failure;

/// The exit code after a second Ctrl-C, as a shell shows it for SIGINT.
const INTERRUPTED: u8 = 130;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    settings: Overrides,
    /// Config file, TOML; its keys are the names of these flags with underscores [default: /etc/atoll/atoll.toml]
    #[arg(long, env = "ATOLL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the settings in force as JSON and end
    #[arg(long)]
    show_settings: bool,
}

impl ServeArgs {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let settings = self.settings_in_force()?;
        if self.show_settings {
            context.screen.json(&settings)?;
            return Ok(ExitCode::SUCCESS);
        }
        logging::install(&settings.log, settings.log_format).map_err(|error| Failure::local(error.to_string()))?;
        let (stop, _listener) = Stop::on_signals()?;
        match serve(settings, stop).await {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(ServeError::EndedAtOnce) => Ok(ExitCode::from(INTERRUPTED)),
            Err(error) => Err(explained(&error)),
        }
    }

    fn settings_in_force(&self) -> Result<Settings, Failure> {
        let host = HostFacts::gather(Uid::effective().is_root());
        let settings = Overrides::from_file(self.config.as_deref())
            .and_then(|file| self.settings.clone().over(file).resolve(&host));
        settings.map_err(|error| Failure::local(with_causes(&error)).hint("`atoll serve --help` lists every setting"))
    }
}

async fn serve(settings: Settings, stop: Stop) -> Result<(), ServeError> {
    Claimed::new(settings).await?.run(Parts::of_release, stop).await
}

fn explained(error: &ServeError) -> Failure {
    let failure = Failure::local(with_causes(error));
    match error {
        ServeError::Bind { .. } => failure.hint("choose another address with --listen"),
        ServeError::Locked(_) => failure.hint("stop that server, or choose another folder with --state-dir"),
        ServeError::StateDir { .. } => {
            failure.hint("choose a folder that you may write to with --state-dir, or run as root")
        }
        ServeError::Engine(_) => failure.hint("`atoll doctor` says what to do about it"),
        _ => failure,
    }
}

/// An error and its causes in one sentence.
fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
