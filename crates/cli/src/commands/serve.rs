//! `serve`: the server itself.

use std::{path::PathBuf, process::ExitCode};

use atoll_server::settings::{HostFacts, Overrides, Settings};
use clap::Args;
use nix::unistd::Uid;

use super::Context;
use crate::failure::Failure;

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
        Ok(ExitCode::SUCCESS)
    }

    fn settings_in_force(&self) -> Result<Settings, Failure> {
        let file = Overrides::from_file(self.config.as_deref());
        let settings = file.and_then(|file| {
            self.settings
                .clone()
                .over(file)
                .resolve(&HostFacts::gather(Uid::effective().is_root()))
        });
        settings.map_err(|error| Failure::local(error.to_string()).hint("`atoll serve --help` lists every setting"))
    }
}
