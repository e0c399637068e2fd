//! What is left of a machine on this host, found without asking its engine: by its id, which is in all that it has.

use std::{
    fs,
    path::{Path, PathBuf},
};

use atoll_model::MachineId;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Every process, control group, mount and file below `state` that carries the machine's id.
///
/// # Panics
/// When this host's `/proc` cannot be read.
#[must_use]
pub fn traces(state: &Path, machine: &MachineId) -> Vec<String> {
    let id = machine.as_str();
    let mut found: Vec<String> = processes(machine).iter().map(|pid| format!("process {pid}")).collect();
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    found.extend(
        mounts
            .lines()
            .filter(|line| line.contains(id))
            .map(|line| format!("mount {line}")),
    );
    for top in [Path::new("/sys/fs/cgroup"), state] {
        found.extend(named(top, id).iter().map(|path| format!("file {}", path.display())));
    }
    found
}

/// Kills every process of the machine, at once and without its engine.
pub(crate) fn kill_all(machine: &MachineId) {
    for pid in processes(machine) {
        // It may have ended with another one.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Processes whose command line or control group names the machine; zombies have no command line and do not count.
fn processes(machine: &MachineId) -> Vec<i32> {
    let names_it = |pid: i32| {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let line = read("cmdline");
        let group = read("cgroup");
        let has = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(machine.as_str());
        !line.is_empty() && (has(&line) || has(&group))
    };
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| names_it(pid)).collect()
}

/// Files and folders below `top` whose name has `id` in it.
fn named(top: &Path, id: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(folder) = waiting.pop() {
        // Folders come and go while other tests run.
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for entry in entries.filter_map(Result::ok) {
            if entry.file_name().to_string_lossy().contains(id) {
                found.push(entry.path());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
        }
    }
    found
}
