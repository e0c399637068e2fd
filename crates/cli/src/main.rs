//! The binary `atoll`: the server, and everything a person does with it from a shell.
//!
//! Every command but `serve` and `doctor` talks to a server over its HTTP API. Start with [`commands`].

mod client;
mod commands;
mod connection;
mod events;
mod failure;
mod numbers;
mod pairs;
mod remote;
mod screen;
mod signals;
mod terminal;
mod transfer;
mod transport;
mod usage;
mod wire;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use commands::{
    Context,
    bench::BenchArgs,
    completions::CompletionsArgs,
    config,
    cp::CpArgs,
    doctor::DoctorArgs,
    exec::{ExecArgs, ShellArgs},
    key::KeyCommand,
    run::RunArgs,
    sandbox::{CreateArgs, GetArgs, LsArgs, RmArgs},
    serve::ServeArgs,
    template::TemplateCommand,
    version,
};
use failure::{Failure, OWN_FAILURE};
use screen::Screen;

const AFTER_HELP: &str = "\
Start here:
  atoll doctor                              what works on this machine
  atoll serve                               the server; it keeps its first key where the other commands find it
  atoll run -- python3 -c 'print(6*7)'      a sandbox for one command

Which server: --url, then ATOLL_URL, then `url` in the config file, then http://127.0.0.1:8080.
Which key: ATOLL_API_KEY, then `api_key` in the config file.
The config file is atoll/config.json in XDG_CONFIG_HOME or ~/.config.

Exit codes: 0 done, 1 failed, 2 wrong arguments. `run`, `exec` and `shell` end with the command's own exit \
code, 124 when its deadline passed, 125 when Atoll failed, 128 and a signal's number when that ended them.";

/// Runs code that models write in sandboxes on your own machine.
#[derive(Debug, Parser)]
#[command(name = "atoll", version, after_help = AFTER_HELP, max_term_width = 110)]
pub(crate) struct Cli {
    /// The server's URL
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// JSON on standard output, and errors as JSON on standard error
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    #[command(after_help = "\
Examples:
  atoll serve
  atoll serve --state-dir /srv/atoll --listen 127.0.0.1:9000 --templates base
  atoll serve --show-settings

The first start on a state folder makes a key, prints it once and keeps it in the config file of the user who started it.")]
    Serve(ServeArgs),
    /// Run a command in a new sandbox, and remove the sandbox
    #[command(after_help = "\
Examples:
  atoll run -- python3 -c 'print(6*7)'
  atoll run --file sales.csv:/work/sales.csv -- head -3 /work/sales.csv
  cat script.py | atoll run --timeout 60 -- python3 -

The command comes last; write -- before it when it begins with a dash, or to be sure. No shell looks at it: \
use sh -c for pipes and variables. Standard input is passed on when it is not a terminal. Ctrl-C ends the \
command and removes the sandbox.")]
    Run(RunArgs),
    /// List sandboxes
    #[command(after_help = "\
Examples:
  atoll ls
  atoll rm $(atoll ls --quiet --label team=data)")]
    Ls(LsArgs),
    /// Create a sandbox and print its id
    #[command(after_help = "\
Examples:
  id=$(atoll create)
  id=$(atoll create --ttl 600 --memory 4096 --env MODE=test --label team=data)")]
    Create(CreateArgs),
    /// Show a sandbox as JSON
    #[command(after_help = "Example: atoll get $id")]
    Get(GetArgs),
    /// Run a command in a sandbox
    #[command(after_help = "\
Examples:
  atoll exec $id -- ls -l /work
  atoll exec -it $id -- python3
  tar c data | atoll exec $id -- tar x -C /work")]
    Exec(ExecArgs),
    /// Open a shell in a sandbox
    #[command(after_help = "Example: atoll shell $id")]
    Shell(ShellArgs),
    /// Copy files and directories into a sandbox or out of it
    #[command(after_help = "\
Examples:
  atoll cp sales.csv $id:/work/
  atoll cp $id:/work/charts ./charts")]
    Cp(CpArgs),
    /// Delete sandboxes and wait until nothing of them is left
    #[command(after_help = "\
Examples:
  atoll rm $id
  atoll rm --all")]
    Rm(RmArgs),
    /// Templates
    #[command(
        subcommand,
        after_help = "\
Examples:
  atoll template ls
  atoll template build code-interpreter"
    )]
    Template(TemplateCommand),
    /// API keys
    #[command(
        subcommand,
        after_help = "\
Examples:
  atoll key create reporting --scope full --expires-in-days 90
  export ATOLL_API_KEY=$(atoll key create ci --quiet)
  atoll key revoke atl_1a2b3c4d

All of these need a key with the scope admin."
    )]
    Key(KeyCommand),
    /// Say what works on this host, by trying it, and what to do about the rest
    #[command(after_help = "\
Example: atoll doctor --state-dir /srv/atoll

Run it on the server's machine and as the user who starts the server. It ends with 1 when a server would not work.")]
    Doctor(DoctorArgs),
    /// Measure creates, commands, cells and files on the server
    #[command(after_help = "Example: atoll bench --rounds 20")]
    Bench(BenchArgs),
    /// Show which server and key are used, and where they come from
    #[command(after_help = "Example: ATOLL_URL=http://127.0.0.1:9000 atoll config")]
    Config,
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  bash   eval \"$(atoll completions bash)\"     in ~/.bashrc
  zsh    eval \"$(atoll completions zsh)\"      in ~/.zshrc, after compinit
  fish   atoll completions fish > ~/.config/fish/completions/atoll.fish")]
    Completions(CompletionsArgs),
    /// Print the versions of this program and of the server
    #[command(after_help = "Example: atoll version --json")]
    Version,
}

impl Command {
    /// Whether the exit code is otherwise that of a command in a sandbox.
    fn passes_exit_code_on(&self) -> bool {
        matches!(self, Self::Run(_) | Self::Exec(_) | Self::Shell(_))
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let done = |()| ExitCode::SUCCESS;
        match self {
            Self::Serve(args) => args.run(context).await,
            Self::Run(args) => args.run(context).await,
            Self::Exec(args) => args.run(context).await,
            Self::Shell(args) => args.run(context).await,
            Self::Ls(args) => args.run(context).await.map(done),
            Self::Create(args) => args.run(context).await.map(done),
            Self::Get(args) => args.run(context).await.map(done),
            Self::Cp(args) => args.run(context).await.map(done),
            Self::Rm(args) => args.run(context).await.map(done),
            Self::Template(command) => command.run(context).await.map(done),
            Self::Key(command) => command.run(context).await.map(done),
            Self::Doctor(args) => args.run(context).await,
            Self::Bench(args) => args.run(context).await.map(done),
            Self::Config => config::run(context).map(done),
            Self::Completions(args) => args.run().map(done),
            Self::Version => version::run(context).await.map(done),
        }
    }
}

fn main() -> ExitCode {
    let cli = match usage::parse(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(code) => return ExitCode::from(code),
    };
    let runtime = match runtime(&cli.command) {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::from(OWN_FAILURE);
        }
    };
    let context = Context {
        screen: Screen { json: cli.json },
        url: cli.url,
    };
    let own = if cli.command.passes_exit_code_on() {
        OWN_FAILURE
    } else {
        1
    };
    let ended = runtime.block_on(cli.command.run(&context));
    // A read of standard input may still be waiting on its thread; nobody needs it any more.
    runtime.shutdown_background();
    ended.unwrap_or_else(|failure| {
        failure.report(context.screen.json);
        ExitCode::from(failure.exit_code(own))
    })
}

/// Clients need one thread; the server uses every core.
fn runtime(command: &Command) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = match command {
        Command::Serve(_) => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    builder.enable_all().build()
}
