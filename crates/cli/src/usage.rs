//! Reading the command line, and what is said when it cannot be read: for people as clap words it, with `--json` as JSON.

use std::ffi::OsString;

use clap::{
    Command, CommandFactory, FromArgMatches,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{Cli, failure::Failure};

/// Exit code of a command line that cannot be read.
pub(crate) const WRONG_ARGUMENTS: u8 = 2;

/// The command, with what holds for the options of all its subcommands.
pub(crate) fn command() -> Command {
    negative_numbers_are_values(Cli::command())
}

/// `--ttl -5` is then refused with the range of `--ttl`, and not taken for an option `-5` that does not exist.
fn negative_numbers_are_values(command: Command) -> Command {
    command
        .mut_args(|argument| {
            let takes_value = argument.get_action().takes_values() && !argument.is_positional();
            argument.allow_negative_numbers(takes_value)
        })
        .mut_subcommands(negative_numbers_are_values)
}

/// What was asked for; a help or version text, which is no failure, is printed by clap.
///
/// # Errors
/// The exit code, after what is wrong was said on standard error.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Cli, u8> {
    let json = wants_json(&arguments);
    let parsed = command()
        .try_get_matches_from(arguments)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|error| {
        if !error.use_stderr() {
            // Whoever asked for a help text and left is owed no word.
            drop(error.print());
            return 0;
        }
        if json {
            failure(&error).report(true);
        } else {
            drop(error.print());
            if let Some(hint) = hint(&error) {
                eprintln!("\nhint: {hint}");
            }
        }
        WRONG_ARGUMENTS
    })
}

/// Whether `--json` stands among our own arguments: it cannot be asked of a command line that could not be read.
fn wants_json(arguments: &[OsString]) -> bool {
    let own = arguments.iter().take_while(|argument| *argument != "--");
    own.into_iter().any(|argument| argument == "--json")
}

fn failure(error: &clap::Error) -> Failure {
    let said = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "no command is given".to_owned(),
        _ => sentence(&error.render().to_string()),
    };
    let failure = Failure::usage(said);
    match hint(error) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// The first paragraph of clap's text, on one line.
fn sentence(rendered: &str) -> String {
    let paragraph = rendered.lines().take_while(|line| !line.trim().is_empty());
    let joined = paragraph.map(str::trim).collect::<Vec<_>>().join(" ");
    joined.strip_prefix("error: ").unwrap_or(&joined).to_owned()
}

/// What to write instead, where clap's own text leaves that open.
fn hint(error: &clap::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            Some("`atoll --help` lists the commands")
        }
        ErrorKind::MissingRequiredArgument if misses(error, "<COMMAND>...") => Some(
            "write the command to run and its arguments last, as in `atoll run -- python3 -c 'print(6*7)'` or `atoll exec SANDBOX -- ls -l`",
        ),
        _ => None,
    }
}

fn misses(error: &clap::Error, argument: &str) -> bool {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing.iter().any(|name| name == argument),
        Some(ContextValue::String(missing)) => missing == argument,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> clap::Error {
        command().try_get_matches_from(line.split(' ')).unwrap_err()
    }

    fn json(line: &str) -> serde_json::Value {
        serde_json::to_value(failure(&refused(line))).unwrap()
    }

    #[test]
    fn the_definition_holds_together() {
        command().debug_assert();
    }

    #[test]
    fn the_help_of_every_command_has_an_example() {
        for subcommand in command().get_subcommands() {
            let help = subcommand.clone().render_long_help().to_string();
            assert!(help.contains("Example"), "{}", subcommand.get_name());
        }
    }

    #[test]
    fn a_number_outside_its_range_is_refused_with_option_and_range() {
        for (line, option, range) in [
            ("atoll create --ttl -5", "--ttl", "from 0 to 31536000"),
            ("atoll create --ttl 99999999999999999999", "--ttl", "from 0 to 31536000"),
            ("atoll create --cpu 0", "--cpu", "from 1 to 64"),
            ("atoll create -m -1", "--memory", "from 128 to 65536"),
            ("atoll create --disk 1", "--disk", "from 64 to 1048576"),
            (
                "atoll run --timeout -1 -- true",
                "--timeout",
                "more than 0 and at most 86400",
            ),
            ("atoll exec x --timeout 1e9 -- true", "--timeout", "at most 86400"),
            (
                "atoll key create a --expires-in-days -1",
                "--expires-in-days",
                "from 1 to 3650",
            ),
            ("atoll bench -n 0", "--rounds", "from 1 to 10000"),
            ("atoll serve --max-sandboxes -1", "--max-sandboxes", "0..="),
        ] {
            let said = json(line)["error"].as_str().unwrap().to_owned();
            assert!(said.contains(option) && said.contains(range), "{line}: {said}");
            assert!(!said.contains('\n') && !said.starts_with("error"), "{said}");
        }
    }

    #[test]
    fn without_a_command_to_run_the_hint_says_what_to_write() {
        for line in ["atoll run", "atoll run --timeout 5", "atoll run --", "atoll exec x"] {
            assert!(json(line)["hint"].as_str().unwrap().contains("atoll run -- "), "{line}");
        }
        assert_eq!(json("atoll rm")["hint"], serde_json::Value::Null);
        assert_eq!(json("atoll --json")["code"], "usage");
    }

    #[test]
    fn a_command_needs_no_dashes_before_it_and_keeps_all_of_its_arguments() {
        let argv = |line: &str| {
            let matches = command().try_get_matches_from(line.split(' ')).unwrap();
            let (_, of_command) = matches.subcommand().unwrap();
            let argv = of_command.get_many::<String>("argv").unwrap();
            argv.cloned().collect::<Vec<_>>().join(" ")
        };
        for (line, wanted) in [
            ("atoll run echo hi", "echo hi"),
            ("atoll run -- echo hi", "echo hi"),
            (
                "atoll run --timeout 5 python3 -c x --json --timeout 3",
                "python3 -c x --json --timeout 3",
            ),
            ("atoll run -- -odd --json", "-odd --json"),
            ("atoll run sh -- -x", "sh -- -x"),
            ("atoll exec id ls -l /work", "ls -l /work"),
            ("atoll exec id -- ls -l", "ls -l"),
            ("atoll exec -it id python3 -i", "python3 -i"),
            ("atoll exec id -w /work ls --json", "ls --json"),
        ] {
            assert_eq!(argv(line), wanted, "{line}");
        }
        assert_eq!(refused("atoll run --timeot 5 true").kind(), ErrorKind::UnknownArgument);
    }

    #[test]
    fn json_is_asked_for_by_our_own_arguments_only() {
        let wants = |line: &str| wants_json(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(wants("atoll create --ttl -5 --json") && wants("atoll --json ls"));
        assert!(!wants("atoll run --bogus -- x --json"));
    }
}
