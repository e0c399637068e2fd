//! The program `runsc`: which one, what it can do, how it is called, what it says when it fails.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use atoll_engine::EngineError;
use atoll_host::{Finished, Program, ProgramError, find_program};
use atoll_model::MachineId;

use crate::{folder::MachineFolder, unusable};

/// What `runsc` calls every machine: each has a state folder of its own, and a short name keeps socket paths short.
pub(crate) const CONTAINER: &str = "m";
/// The first build whose checkpoints can go on running and be written without compression, as YYYYMMDD.
const OLDEST: u32 = 20_240_101;
/// Builds older than this are worth a warning.
const AGED: u32 = 20_240_701;
/// How long it may take to print its version.
const QUESTION_DEADLINE: Duration = Duration::from_secs(10);
/// The most that is read of what `runsc` wrote about a failure.
const LOG_BYTES: u64 = 16 << 10;

/// A `runsc` of this host.
#[derive(Debug, Clone)]
pub(crate) struct Runsc {
    path: PathBuf,
    version: String,
    date: Option<u32>,
    bounds_overlay: bool,
    set_user_id: bool,
}

impl Runsc {
    /// Takes `given`, or the first on PATH, and asks it what it is.
    pub(crate) async fn find(given: Option<PathBuf>) -> Result<Self, EngineError> {
        let search = std::env::var_os("PATH").unwrap_or_default();
        let path = given.or_else(|| find_program("runsc", &search)).ok_or_else(|| {
            unusable(
                "there is no runsc on PATH; install gVisor (Debian: package runsc, from bookworm-backports or newer)"
                    .to_owned(),
            )
        })?;
        let answer = ask(&path, "--version").await?;
        let version = parse_version(&answer)
            .ok_or_else(|| unusable(format!("{} is no runsc: it says {answer:?}", path.display())))?;
        let date = build_date(&version);
        if date.is_some_and(|date| date < OLDEST) {
            return Err(unusable(format!(
                "runsc {version} is too old to checkpoint a running machine; install one of 2024 or newer (Debian: bookworm-backports)"
            )));
        }
        let flags = ask(&path, "flags").await?;
        Ok(Self {
            path,
            version,
            date,
            bounds_overlay: overlay_takes_size(&flags),
            set_user_id: flags.lines().any(|line| line.trim_start().starts_with("-allow-suid")),
        })
    }

    /// As in `0.0~20240729.0`.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Whether it can bound the root overlay by itself.
    pub(crate) fn bounds_overlay(&self) -> bool {
        self.bounds_overlay
    }

    /// What an operator should know.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        match self.date {
            Some(date) if date < AGED => {
                warnings.push(format!("runsc {} is old; a newer one isolates better", self.version))
            }
            None => warnings.push(format!(
                "runsc {} does not tell its date; it should be of 2024 or newer",
                self.version
            )),
            Some(_) => {}
        }
        if !self.set_user_id {
            warnings.push(format!(
                "runsc {} ignores set-user-id bits: programs such as the real sudo cannot become root inside a sandbox",
                self.version
            ));
        }
        warnings
    }

    /// `runsc` with the settings that all of a machine's commands share; the subcommand is still to be added. Those that make a
    /// machine also say what bounds its disk, in MiB, if `runsc` is to do that.
    pub(crate) fn command(&self, folder: &MachineFolder, disk_mb: Option<u64>) -> Result<Program, EngineError> {
        let mut program = Program::new(&self.path).map_err(|error| unusable(error.to_string()))?;
        let mut overlay = std::ffi::OsString::from("root:dir=");
        overlay.push(folder.disk());
        if let Some(mib) = disk_mb {
            overlay.push(format!(",size={mib}m"));
        }
        program.arg("-root").arg(folder.runsc_root());
        program.arg("-log").arg(folder.log()).args(["-log-format", "json"]);
        program.args(["-network", "none", "-platform", "systrap", "-ignore-cgroups"]);
        program.arg("-overlay2").arg(overlay);
        if self.set_user_id {
            program.arg("-allow-suid");
        }
        Ok(program)
    }

    /// Turns the end of a command into an answer. What went wrong is in its log, not on its streams, which are the guest's.
    pub(crate) fn check(
        &self,
        finished: Result<Finished, ProgramError>,
        action: &'static str,
        machine: &MachineId,
        folder: &MachineFolder,
    ) -> Result<(), EngineError> {
        let ended = match finished {
            Ok(finished) if finished.status.success() => return Ok(()),
            Ok(finished) => format!("{}; {}", finished.status, finished.tail),
            Err(error) => error_chain(&error),
        };
        let said = last_messages(&folder.log());
        if said.contains("no space left on device") {
            return Err(EngineError::NoRoom(format!("the disk is full ({said})")));
        }
        Err(EngineError::Failed {
            program: "runsc",
            action,
            machine: machine.clone(),
            detail: format!("{ended}; {said}"),
        })
    }
}

async fn ask(path: &Path, question: &str) -> Result<String, EngineError> {
    let mut answer = String::new();
    let mut program = Program::new(path).map_err(|error| unusable(error_chain(&error)))?;
    program.arg(question);
    let finished = program
        .run(QUESTION_DEADLINE, |line| {
            answer.push_str(&line.text);
            answer.push('\n');
        })
        .await;
    finished
        .and_then(Finished::success)
        .map_err(|error| unusable(error_chain(&error)))?;
    Ok(answer)
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// The text after `runsc version` in the answer.
fn parse_version(answer: &str) -> Option<String> {
    let version = answer.lines().find_map(|line| line.strip_prefix("runsc version "))?;
    Some(version.trim().to_owned())
}

/// The date in a version, as in `release-20240729.0` and `0.0~20240729.0`: the first run of eight digits.
fn build_date(version: &str) -> Option<u32> {
    let runs = version.split(|c: char| !c.is_ascii_digit());
    runs.filter(|run| run.len() == 8).find_map(|run| run.parse().ok())
}

/// Whether the description of `-overlay2` in the list of flags knows `size=`.
fn overlay_takes_size(flags: &str) -> bool {
    let lines = flags
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("-overlay2"));
    let mut description = lines.skip(1).take_while(|line| !line.trim_start().starts_with('-'));
    description.any(|line| line.contains("size="))
}

/// The messages at the end of a log of JSON lines.
fn last_messages(log: &Path) -> String {
    #[derive(serde::Deserialize)]
    struct Entry {
        msg: String,
    }
    let text = match read_end(log) {
        Ok(text) => text,
        Err(error) => return format!("no log ({error})"),
    };
    let messages: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str(line).map_or_else(|_| line.to_owned(), |entry: Entry| entry.msg))
        .collect();
    let skip = messages.len().saturating_sub(5);
    messages[skip..].join("; ")
}

fn read_end(path: &Path) -> io::Result<String> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_debian_and_of_upstream_tell_their_date() {
        assert_eq!(
            parse_version("runsc version 0.0~20240729.0\nspec: 1.0.2-dev\n").as_deref(),
            Some("0.0~20240729.0")
        );
        assert_eq!(parse_version("something else\n"), None);
        assert_eq!(build_date("0.0~20240729.0"), Some(20_240_729));
        assert_eq!(build_date("release-20250512.0-3-g1234567"), Some(20_250_512));
        assert_eq!(build_date("VERSION_MISSING"), None);
    }

    #[test]
    fn the_size_of_another_flag_is_not_the_overlays() {
        let older =
            "  -overlay2 value\n    \twrap mounts. Format is {mount}:{medium}\n  -panic-log string\n    \tsize=\n";
        let newer = "  -overlay2 value\n    \twrap mounts. Format is\n    \t* {mount}:{medium}[,size={size}]\n  -panic-log string\n";
        assert!(!overlay_takes_size(older));
        assert!(overlay_takes_size(newer));
    }
}
