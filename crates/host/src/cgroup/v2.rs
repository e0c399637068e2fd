//! Version 2: one directory for everything.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{CgroupLimits, CgroupUsage, read_field, read_number, write};

/// What we need; version 2 has no separate controller for counting processor time.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// The period over which processor time is shared out, in microseconds.
const PERIOD: u64 = 100_000;

/// The root of the version 2 tree, if that is where this host has its controllers. Hosts with version 1 may have a tree of
/// version 2 beside it that has none.
pub(super) fn usable_root(mounts: &str) -> io::Result<Option<PathBuf>> {
    let root = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let folder = fields.next()?;
        (fields.next()? == "cgroup2").then(|| PathBuf::from(folder))
    });
    let Some(root) = root else { return Ok(None) };
    let available = fs::read_to_string(root.join("cgroup.controllers"))?;
    let has = |wanted: &&str| available.split_ascii_whitespace().any(|name| name == *wanted);
    Ok(CONTROLLERS.iter().all(has).then_some(root))
}

/// Makes a group below the root, with the controllers switched on for its children.
pub(super) fn make_as_parent(parent: &Path) -> io::Result<()> {
    let root = parent.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let switch_on = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
    write(root, "cgroup.subtree_control", &switch_on)?;
    fs::create_dir_all(parent)?;
    write(parent, "cgroup.subtree_control", &switch_on)
}

pub(super) fn limit(folder: &Path, limits: &CgroupLimits) -> io::Result<()> {
    if let Some(bytes) = limits.memory_bytes {
        write(folder, "memory.max", bytes)?;
        match write(folder, "memory.swap.max", 0) {
            // Kernels without swap accounting have no such file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    if let Some(tasks) = limits.tasks {
        write(folder, "pids.max", tasks)?;
    }
    if let Some(millis) = limits.cpu_millis {
        write(folder, "cpu.max", format!("{} {PERIOD}", millis * PERIOD / 1000))?;
    }
    Ok(())
}

pub(super) fn usage(folder: &Path) -> io::Result<CgroupUsage> {
    let memory_bytes = read_number(folder, "memory.current")?;
    Ok(CgroupUsage {
        cpu_micros: read_field(folder, "cpu.stat", "usage_usec")?,
        memory_bytes,
        memory_peak_bytes: match read_number(folder, "memory.peak") {
            // Linux 5.19 brought it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => memory_bytes,
            other => other?,
        },
        processes: 0,
    })
}

/// Tells the kernel to freeze or to thaw.
pub(super) fn set_frozen(folder: &Path, frozen: bool) -> io::Result<()> {
    write(folder, "cgroup.freeze", u8::from(frozen))
}

/// Whether every process stands still.
pub(super) fn is_frozen(folder: &Path) -> io::Result<bool> {
    Ok(read_field(folder, "cgroup.events", "frozen")? == 1)
}

pub(super) fn oom_kills(folder: &Path) -> io::Result<u64> {
    read_field(folder, "memory.events", "oom_kill")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with the files that the kernel would show, because the test's host may have version 1.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn limits_are_written_in_the_units_of_the_kernel() {
        let group = tree(&[("memory.max", ""), ("pids.max", ""), ("cpu.max", "")]);
        let limits = CgroupLimits {
            memory_bytes: Some(64 << 20),
            tasks: Some(7),
            cpu_millis: Some(1500),
        };
        limit(group.path(), &limits).unwrap();
        let read = |name: &str| fs::read_to_string(group.path().join(name)).unwrap();
        assert_eq!(
            (read("memory.max"), read("pids.max")),
            ("67108864".to_owned(), "7".to_owned())
        );
        assert_eq!(read("cpu.max"), "150000 100000");
    }

    #[test]
    fn it_is_frozen_when_the_kernel_says_so_and_not_when_it_was_told_to() {
        let group = tree(&[("cgroup.freeze", "0"), ("cgroup.events", "populated 1\nfrozen 0\n")]);
        set_frozen(group.path(), true).unwrap();
        assert_eq!(fs::read_to_string(group.path().join("cgroup.freeze")).unwrap(), "1");
        assert!(!is_frozen(group.path()).unwrap());
        fs::write(group.path().join("cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
        assert!(is_frozen(group.path()).unwrap());
    }

    #[test]
    fn usage_is_read_from_a_kernel_with_and_without_a_peak() {
        let stat = "usage_usec 1234\nuser_usec 1000\nsystem_usec 234\n";
        let mut files = vec![("cpu.stat", stat), ("memory.current", "500\n")];
        assert_eq!(usage(tree(&files).path()).unwrap().memory_peak_bytes, 500);
        files.push(("memory.peak", "900\n"));
        let read = usage(tree(&files).path()).unwrap();
        assert_eq!((read.cpu_micros, read.memory_peak_bytes), (1234, 900));
    }

    #[test]
    fn a_tree_without_controllers_is_not_usable() {
        let bare = tree(&[("cgroup.controllers", "\n")]);
        let mounts = format!("cgroup2 {} cgroup2 rw 0 0\n", bare.path().display());
        assert_eq!(usable_root(&mounts).unwrap(), None);
        let full = tree(&[("cgroup.controllers", "cpuset cpu io memory pids\n")]);
        let mounts = format!("cgroup2 {} cgroup2 rw 0 0\n", full.path().display());
        assert_eq!(usable_root(&mounts).unwrap().as_deref(), Some(full.path()));
    }

    #[test]
    fn oom_kills_are_counted_from_the_events_and_not_from_their_neighbours() {
        let group = tree(&[(
            "memory.events",
            "low 0\nhigh 0\nmax 9\noom 8\noom_kill 2\noom_group_kill 1\n",
        )]);
        assert_eq!(oom_kills(group.path()).unwrap(), 2);
    }
}
