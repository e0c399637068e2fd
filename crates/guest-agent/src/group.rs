//! The control group of everything that the agent starts, where the machine's kernel has such groups: it bounds the number
//! of processes, the agent not counted, so that there is always room for the agent's own.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

/// Where an engine that cannot bound the number itself mounts its `pids` controller (version 1 of that interface).
const CONTROLLER: &str = "/sys/fs/cgroup/pids";
const NAME: &str = "work";
/// How many times the number of processes that a machine may have.
const LAST_RESORT: u32 = 8;

/// The group; nothing where the machine has no such controller.
#[derive(Debug)]
pub(crate) struct Group(Option<Inside>);

#[derive(Debug)]
struct Inside {
    limit: PathBuf,
    members: File,
}

impl Group {
    /// Makes the group. Not where the kernel, and so the controller, is a host's.
    pub(crate) fn make(kernel_is_ours: bool) -> Self {
        let controller = Path::new(CONTROLLER);
        if !kernel_is_ours || !controller.join("cgroup.procs").exists() {
            return Self(None);
        }
        let inside = make_inside(&controller.join(NAME));
        let inside = inside.inspect_err(|error| eprintln!("atoll-agent: {CONTROLLER}: {error}"));
        Self(inside.ok())
    }

    /// Whether the machine's kernel leaves it to the agent what programs see and may have.
    pub(crate) fn is_ours(&self) -> bool {
        self.0.is_some()
    }

    /// Bounds the number of processes in it, far above what the guard allows: the kernel that has these groups keeps the memory
    /// of each fork that it refuses until the parent ends, some 100 MiB a second when a program insists.
    pub(crate) fn set_limit(&self, pids: u32) -> io::Result<()> {
        match &self.0 {
            Some(inside) => fs::write(&inside.limit, pids.saturating_mul(LAST_RESORT).to_string()),
            None => Ok(()),
        }
    }

    /// The file to which a process writes its number to enter.
    pub(crate) fn members(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|inside| inside.members.as_fd())
    }
}

fn make_inside(folder: &Path) -> io::Result<Inside> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let limit = folder.join("pids.max");
    // A controller of another kind is found out here, before anything depends on it.
    fs::metadata(&limit)?;
    Ok(Inside {
        members: OpenOptions::new().write(true).open(folder.join("cgroup.procs"))?,
        limit,
    })
}
