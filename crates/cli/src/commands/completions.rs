//! `completions`: what a shell loads to complete Atoll's commands.

use clap::Args;
use clap_complete::Shell;

use crate::{failure::Failure, usage};

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

impl CompletionsArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut usage::command(), "atoll", &mut script);
        std::io::Write::write_all(&mut std::io::stdout().lock(), &script)?;
        Ok(())
    }
}
