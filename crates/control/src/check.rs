//! Checks of what callers send, each naming its field. Types hold what they can; this is the rest.

use std::{collections::BTreeMap, time::Duration};

use atoll_model::{
    Refusal,
    limits::{MAX_TIMEOUT_SECONDS, MAX_TTL_SECONDS},
};
use atoll_protocol::types::{Program, TerminalSize};

/// Entries of one map of strings.
const MAX_ENTRIES: usize = 1024;
/// The longest key of metadata and labels, in bytes.
const MAX_NAME: usize = 256;
/// What keys and values of one map may hold together, in bytes.
const MAX_MAP: usize = 256 * 1024;
/// The longest idempotency key and key name, in bytes.
const MAX_SHORT: usize = 128;

/// A command must name something to run. An empty shell script is one that does nothing.
pub(crate) fn check_program(program: &Program) -> Result<(), Refusal> {
    match program {
        Program::Shell(script) => check_no_nul("cmd", script),
        Program::Argv(argv) if argv.first().is_none_or(String::is_empty) => {
            Err(Refusal::field("cmd", "cmd must name a program"))
        }
        Program::Argv(argv) => argv.iter().try_for_each(|part| check_no_nul("cmd", part)),
    }
}

/// No argument, path or name of the kernel can hold a NUL.
pub(crate) fn check_no_nul(field: &str, value: &str) -> Result<(), Refusal> {
    if value.contains('\0') {
        return Err(Refusal::field(field, format!("{field} must not hold a NUL character")));
    }
    Ok(())
}

/// Names and values that an environment can hold.
pub(crate) fn check_env(env: &BTreeMap<String, String>) -> Result<(), Refusal> {
    check_size("env", env)?;
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(Refusal::field(
                "env",
                "a name in env must not be empty or hold \"=\" or NUL",
            ));
        }
        check_no_nul("env", value)?;
    }
    Ok(())
}

/// Metadata and labels: short keys without control characters, any values.
pub(crate) fn check_strings(field: &str, strings: &BTreeMap<String, String>) -> Result<(), Refusal> {
    check_size(field, strings)?;
    let bad = |name: &&String| name.is_empty() || name.len() > MAX_NAME || name.contains(char::is_control);
    match strings.keys().find(bad) {
        None => Ok(()),
        Some(_) => Err(Refusal::field(
            field,
            format!("a key in {field} must be 1 to {MAX_NAME} bytes without control characters"),
        )),
    }
}

fn check_size(field: &str, strings: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let bytes: usize = strings.iter().map(|(name, value)| name.len() + value.len()).sum();
    if strings.len() > MAX_ENTRIES || bytes > MAX_MAP {
        return Err(Refusal::field(
            field,
            format!("{field} must hold at most {MAX_ENTRIES} entries and {MAX_MAP} bytes"),
        ));
    }
    Ok(())
}

/// A short name that a person or program gives.
pub(crate) fn check_short(field: &str, value: &str) -> Result<(), Refusal> {
    if value.is_empty() || value.len() > MAX_SHORT || value.contains(char::is_control) {
        return Err(Refusal::field(
            field,
            format!("{field} must be 1 to {MAX_SHORT} bytes without control characters"),
        ));
    }
    Ok(())
}

/// A deadline in whole milliseconds, at least one.
pub(crate) fn check_timeout(timeout: Duration) -> Result<u64, Refusal> {
    let longest = Duration::from_secs(MAX_TIMEOUT_SECONDS);
    if timeout.is_zero() || timeout > longest {
        return Err(Refusal::field(
            "timeout",
            format!("a timeout must be more than 0 and at most {MAX_TIMEOUT_SECONDS} seconds"),
        ));
    }
    Ok(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1))
}

/// An idle limit.
pub(crate) fn check_ttl(ttl_seconds: u64) -> Result<(), Refusal> {
    if ttl_seconds > MAX_TTL_SECONDS {
        return Err(Refusal::field(
            "ttl_seconds",
            format!("ttl_seconds must be at most {MAX_TTL_SECONDS}, or 0 for never"),
        ));
    }
    Ok(())
}

/// A terminal's size.
pub(crate) fn check_terminal(size: TerminalSize) -> Result<(), Refusal> {
    for (field, value) in [("rows", size.rows), ("cols", size.cols)] {
        if !(1..=1000).contains(&value) {
            return Err(Refusal::field(field, format!("{field} must be 1 to 1000, not {value}")));
        }
    }
    Ok(())
}

/// A path in the sandbox. It is handed to the agent, which resolves it inside the guest; no path of the host is made of it.
pub(crate) fn check_path(path: &str) -> Result<(), Refusal> {
    if !path.starts_with('/') {
        return Err(Refusal::field("path", "path must be absolute"));
    }
    if path.len() > 4096 {
        return Err(Refusal::field("path", "path must be at most 4096 bytes"));
    }
    check_no_nul("path", path)
}

/// The driver of a language that a caller names.
pub(crate) fn check_language(language: &str) -> Result<&'static str, Refusal> {
    match language.to_ascii_lowercase().as_str() {
        "python" | "python3" | "py" => Ok("python"),
        _ => Err(Refusal::field("language", "language must be python")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn an_environment_takes_what_the_kernel_takes() {
        assert!(check_env(&one("K", "$(touch /tmp/pwn)'\"; %s\n日本")).is_ok());
        for bad in [
            one("", "x"),
            one("A=B", "x"),
            one("A\0", "x"),
            one("A", "\0"),
            one("A", &"x".repeat(MAX_MAP)),
        ] {
            assert_eq!(check_env(&bad).unwrap_err().field.as_deref(), Some("env"));
        }
    }

    #[test]
    fn a_key_with_a_newline_or_of_300_characters_is_refused_by_its_field() {
        assert!(check_strings("metadata", &one("fork_tree_id", "a\nb")).is_ok());
        for bad in ["a\nb", "", &"k".repeat(300)] {
            let refusal = check_strings("metadata", &one(bad, "v")).unwrap_err();
            assert_eq!(refusal.field.as_deref(), Some("metadata"));
        }
    }

    #[test]
    fn a_timeout_is_more_than_nothing_and_at_most_a_day() {
        assert_eq!(check_timeout(Duration::from_micros(1)), Ok(1));
        assert_eq!(check_timeout(Duration::from_millis(500)), Ok(500));
        assert!(check_timeout(Duration::ZERO).is_err());
        assert!(check_timeout(Duration::MAX).is_err());
    }

    #[test]
    fn a_command_names_a_program() {
        assert!(check_program(&Program::Argv(vec![])).is_err());
        assert!(check_program(&Program::Argv(vec![String::new()])).is_err());
        assert!(check_program(&Program::Shell(String::new())).is_ok());
        assert!(check_program(&Program::Shell("a\0".into())).is_err());
    }
}
