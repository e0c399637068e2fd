//! What works on this host, found out by trying, and what to do about what does not. `atoll doctor` shows it.

use std::path::Path;

use atoll_engine::{Capabilities, EngineError};
use atoll_host::{disk, find_program};
use atoll_model::Isolation;
use serde::Serialize;

use crate::engines::{self, Examination};

/// Memory below which creates are refused or slow, in MiB.
const WANTED_MEMORY_MB: u64 = 2048;
/// Room that the templates and a few sandboxes take, in GiB.
const WANTED_DISK_GIB: u64 = 12;

/// How one check came out, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Works.
    Ok,
    /// Works, and something is worth knowing.
    Warning,
    /// Does not work.
    Failure,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What.
    pub name: String,
    /// How it came out.
    pub verdict: Verdict,
    /// What was found, one clause.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Check {
    fn ok(name: &str, found: impl Into<String>) -> Self {
        Self::of(name, Verdict::Ok, found, None)
    }

    fn of(name: &str, verdict: Verdict, found: impl Into<String>, advice: Option<&str>) -> Self {
        Self {
            name: name.to_owned(),
            verdict,
            found: found.into(),
            advice: advice.map(str::to_owned),
        }
    }
}

/// Looks at everything that a server with this state folder needs. Takes about a second; leaves nothing behind.
pub async fn examine(state_dir: &Path, root: bool) -> Vec<Check> {
    let mut checks = vec![privilege(root), control_groups(), memory(), room(state_dir), builder()];
    checks.extend(isolation().await);
    checks
}

fn privilege(root: bool) -> Check {
    if root {
        return Check::ok("privilege", "root");
    }
    let advice = "run `atoll serve` as root: it makes namespaces, mounts and control groups";
    Check::of("privilege", Verdict::Failure, "not root", Some(advice))
}

/// The controllers that limits need, of whichever version is mounted.
fn control_groups() -> Check {
    const NAME: &str = "control groups";
    let root = Path::new("/sys/fs/cgroup");
    if let Ok(controllers) = std::fs::read_to_string(root.join("cgroup.controllers")) {
        let lacking = lacking(|wanted| controllers.split_whitespace().any(|found| found == wanted));
        return controllers_found(NAME, "version 2", &lacking);
    }
    let lacking = lacking(|wanted| root.join(wanted).is_dir());
    controllers_found(NAME, "version 1", &lacking)
}

fn lacking(is_there: impl Fn(&str) -> bool) -> Vec<&'static str> {
    ["cpu", "memory", "pids"]
        .into_iter()
        .filter(|wanted| !is_there(wanted))
        .collect()
}

fn controllers_found(name: &str, version: &str, lacking: &[&str]) -> Check {
    if lacking.is_empty() {
        return Check::ok(name, format!("{version} with cpu, memory and pids"));
    }
    let advice = "mount the missing controllers, or delegate them to this process's group";
    Check::of(
        name,
        Verdict::Failure,
        format!("{version} without {}", lacking.join(", ")),
        Some(advice),
    )
}

fn memory() -> Check {
    const NAME: &str = "memory";
    let Some(available) = available_memory_mb() else {
        return Check::of(NAME, Verdict::Warning, "unknown: /proc/meminfo does not say", None);
    };
    let found = format!("{available} MiB available");
    if available >= WANTED_MEMORY_MB {
        return Check::ok(NAME, found);
    }
    let advice = "creates are refused when less than memory_reserve_mb (1024) is left; free some memory";
    Check::of(NAME, Verdict::Warning, found, Some(advice))
}

/// MemAvailable of /proc/meminfo, in MiB.
fn available_memory_mb() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}

fn room(state_dir: &Path) -> Check {
    const NAME: &str = "disk";
    // The folder need not exist yet; the file system is that of the nearest one that does.
    let existing = state_dir
        .ancestors()
        .find(|folder| folder.is_dir())
        .unwrap_or(Path::new("/"));
    let free = match disk::space(existing) {
        Ok(space) => space.free >> 30,
        Err(error) => {
            return Check::of(NAME, Verdict::Failure, format!("{}: {error}", existing.display()), None);
        }
    };
    let found = format!("{free} GiB free for {}", state_dir.display());
    if free >= WANTED_DISK_GIB {
        return Check::ok(NAME, found);
    }
    let advice = "the templates take some 5 GiB while they are built: free some, or choose another --state-dir";
    Check::of(NAME, Verdict::Warning, found, Some(advice))
}

/// What makes root directories. Only needed where templates are built.
fn builder() -> Check {
    const NAME: &str = "mmdebstrap";
    match find_program(NAME, &std::env::var_os("PATH").unwrap_or_default()) {
        Some(path) => Check::ok(NAME, path.display().to_string()),
        None => Check::of(
            NAME,
            Verdict::Failure,
            "not on PATH",
            Some("apt-get install mmdebstrap"),
        ),
    }
}

/// Every engine, by starting a machine with it.
async fn isolation() -> Vec<Check> {
    // Directly below /tmp: engines need short paths, for sockets.
    let scratch = match tempfile::Builder::new().prefix("atoll-doctor").tempdir_in("/tmp") {
        Ok(scratch) => scratch,
        Err(error) => return vec![Check::of("engines", Verdict::Failure, format!("/tmp: {error}"), None)],
    };
    let examined = engines::examine(scratch.path()).await;
    let any = examined.iter().any(|engine| engine.result.is_ok());
    let mut checks: Vec<Check> = examined
        .into_iter()
        .flat_map(|engine| engine_checks(engine, any))
        .collect();
    if let Err(error) = scratch.close() {
        checks.push(Check::of(
            "engines",
            Verdict::Warning,
            format!("the folder of the trial could not be removed: {error}"),
            None,
        ));
    }
    checks
}

/// One engine that works is enough; the others are only worth knowing of.
fn engine_checks(engine: Examination, any_works: bool) -> Vec<Check> {
    let name = format!("engine {}", engine.name);
    let millis = engine.took.as_millis();
    match engine.result {
        Ok(capabilities) => works(&name, &capabilities, millis),
        Err(error) => {
            let verdict = if any_works { Verdict::Warning } else { Verdict::Failure };
            let reason = match error {
                EngineError::Unusable { reason, .. } => reason,
                other => other.to_string(),
            };
            vec![Check::of(&name, verdict, reason, None)]
        }
    }
}

fn works(name: &str, capabilities: &Capabilities, millis: u128) -> Vec<Check> {
    let wall = match capabilities.isolation {
        Isolation::None => "no isolation",
        Isolation::Kernel => "a kernel of its own in user space",
        Isolation::Vm => "a hardware virtual machine",
    };
    let found = format!("{}, {wall}; a machine answered after {millis} ms", capabilities.version);
    let mut checks = vec![Check::ok(name, found)];
    checks.extend(
        capabilities
            .warnings
            .iter()
            .map(|warning| Check::of(name, Verdict::Warning, warning, None)),
    );
    checks
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn unusable() -> Examination {
        Examination {
            name: "x",
            result: Err(EngineError::Unusable {
                engine: "x",
                reason: "there is no x; install it".to_owned(),
            }),
            took: Duration::ZERO,
        }
    }

    #[test]
    fn an_engine_that_fails_matters_only_when_no_other_works() {
        assert_eq!(engine_checks(unusable(), true)[0].verdict, Verdict::Warning);
        let alone = &engine_checks(unusable(), false)[0];
        assert_eq!(
            (alone.verdict, alone.found.as_str()),
            (Verdict::Failure, "there is no x; install it")
        );
    }

    #[test]
    fn a_state_folder_that_is_not_there_yet_is_measured_by_its_parent() {
        assert!(room(Path::new("/nonexistent/deep/state")).found.contains("GiB free"));
    }

    #[test]
    fn missing_controllers_are_named() {
        let check = controllers_found("c", "version 2", &["pids"]);
        assert!(check.verdict == Verdict::Failure && check.found.contains("pids"));
    }
}
