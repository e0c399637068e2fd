//! Limits and usage of a group of processes, on cgroup version 1 (controllers mounted one by one) and version 2.

mod v1;
mod v2;

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::ProcessId;

/// How long the processes of a group may take to die of SIGKILL before [`Cgroup::destroy`] gives up.
const DEATH: Duration = Duration::from_secs(10);
/// How long they may take to stand still before [`Cgroup::freeze`] gives up. Some milliseconds on a calm host; a process that
/// waits for the host's disk stands still only afterwards.
const STANDSTILL: Duration = Duration::from_secs(10);

/// Ceilings of a group. `None` means the host's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CgroupLimits {
    /// Memory in bytes, page cache included. Swap is never used.
    pub memory_bytes: Option<u64>,
    /// Processes and threads of the host.
    pub tasks: Option<u64>,
    /// Processor time in thousandths of one core.
    pub cpu_millis: Option<u64>,
}

/// What a group used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CgroupUsage {
    /// Processor time in microseconds.
    pub cpu_micros: u64,
    /// Memory now, in bytes, page cache that could be dropped included.
    pub memory_bytes: u64,
    /// The most memory ever, in bytes.
    pub memory_peak_bytes: u64,
    /// Processes now.
    pub processes: u32,
}

/// Our groups on this host: the children of one parent group.
#[derive(Debug, Clone)]
pub struct Cgroups {
    layout: Layout,
}

/// Where the parent group's directories are.
#[derive(Debug, Clone)]
enum Layout {
    V1(v1::Hierarchies),
    V2(PathBuf),
}

impl Cgroups {
    /// Finds out which version this host has, and makes the parent group directly below its root.
    ///
    /// The group's name is `prefix` and a digest of the path `owner`: two owners must not take each other's groups for their
    /// own, and each must find its own again later.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] naming the controllers that are missing; else whatever the kernel refused.
    pub fn open(prefix: &str, owner: &Path) -> io::Result<Self> {
        let name = &format!("{prefix}-{:08x}", digest(owner));
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let layout = match v2::usable_root(&mounts)? {
            Some(root) => Layout::V2(root.join(name)),
            None => Layout::V1(v1::Hierarchies::find(&mounts)?.child(name)),
        };
        let parent = Self { layout };
        parent.layout.make_as_parent()?;
        Ok(parent)
    }

    /// The group of that name, whether it exists or not.
    #[must_use]
    pub fn group(&self, name: &str) -> Cgroup {
        Cgroup {
            layout: match &self.layout {
                Layout::V1(hierarchies) => Layout::V1(hierarchies.child(name)),
                Layout::V2(folder) => Layout::V2(folder.join(name)),
            },
        }
    }

    /// Removes the parent group, unless there are groups in it: a later owner of the same name makes it anew.
    ///
    /// # Errors
    /// Whatever the kernel refused.
    pub fn close(&self) -> io::Result<()> {
        Cgroup {
            layout: self.layout.clone(),
        }
        .remove()
        .map(drop)
    }

    /// Whether [`Cgroup::freeze`] works here. Hosts with version 1 may lack the controller for it.
    #[must_use]
    pub fn can_freeze(&self) -> bool {
        match &self.layout {
            Layout::V1(hierarchies) => hierarchies.can_freeze(),
            Layout::V2(_) => true,
        }
    }

    /// The names of all groups that exist, even if only in part.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn names(&self) -> io::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for folder in self.layout.folders() {
            let entries = match fs::read_dir(folder) {
                Err(error) if is_gone(&error) => continue,
                other => other?,
            };
            for entry in entries {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    names.extend(entry.file_name().into_string().ok());
                }
            }
        }
        Ok(names)
    }
}

/// One group.
#[derive(Debug, Clone)]
pub struct Cgroup {
    layout: Layout,
}

impl Cgroup {
    /// Makes it with these limits.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] when any part of it exists; else whatever the kernel refused.
    pub fn create(&self, limits: &CgroupLimits) -> io::Result<()> {
        for folder in self.layout.folders() {
            match fs::create_dir(folder) {
                // Another owner of the parent has just removed it; see `Cgroups::close`.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.layout.parent().make_as_parent()?;
                    fs::create_dir(folder)?;
                }
                other => other?,
            }
        }
        self.limit(limits)
    }

    /// Sets limits; those that are `None` stay as they are.
    ///
    /// # Errors
    /// Whatever the kernel refused, as in a memory limit below what is in use.
    pub fn limit(&self, limits: &CgroupLimits) -> io::Result<()> {
        match &self.layout {
            Layout::V1(hierarchies) => hierarchies.limit(limits),
            Layout::V2(folder) => v2::limit(folder, limits),
        }
    }

    /// The files into which a process of one thread writes `0` to move itself into this group.
    pub(crate) fn entrances(&self) -> io::Result<Vec<File>> {
        let name = match self.layout {
            // One thread moving itself takes no lock over the whole host; `cgroup.procs` does, and waits some 10 ms for it.
            Layout::V1(_) => "tasks",
            // Here threads cannot be moved alone, but it is one write and not four.
            Layout::V2(_) => "cgroup.procs",
        };
        let open = |folder: &PathBuf| OpenOptions::new().write(true).open(folder.join(name));
        self.layout.folders().map(open).collect()
    }

    /// What it used so far.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is no such group.
    pub fn usage(&self) -> io::Result<CgroupUsage> {
        let mut usage = match &self.layout {
            Layout::V1(hierarchies) => hierarchies.usage()?,
            Layout::V2(folder) => v2::usage(folder)?,
        };
        usage.processes = u32::try_from(self.processes()?.len()).unwrap_or(u32::MAX);
        Ok(usage)
    }

    /// How many of its processes the memory limit has killed.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is no such group.
    pub fn oom_kills(&self) -> io::Result<u64> {
        match &self.layout {
            Layout::V1(hierarchies) => hierarchies.oom_kills(),
            Layout::V2(folder) => v2::oom_kills(folder),
        }
    }

    /// The processes in it now. A group of which parts are missing has those of the rest.
    ///
    /// # Errors
    /// When the list cannot be read.
    pub fn processes(&self) -> io::Result<BTreeSet<i32>> {
        let mut found = BTreeSet::new();
        for folder in self.layout.folders() {
            let list = match fs::read_to_string(folder.join("cgroup.procs")) {
                Ok(list) => list,
                Err(error) if is_gone(&error) => continue,
                Err(error) => return Err(error),
            };
            found.extend(list.lines().filter_map(|line| line.parse::<i32>().ok()));
        }
        Ok(found)
    }

    /// Stops every process in it, and those that they would start, until [`thaw`](Self::thaw). When it fails, or nobody awaits
    /// it to its end, the caller thaws.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is no such group; [`io::ErrorKind::TimedOut`] when a process does not stand
    /// still within ten seconds; [`io::ErrorKind::Unsupported`] where [`Cgroups::can_freeze`] is false.
    pub async fn freeze(&self) -> io::Result<()> {
        self.set_frozen(true)?;
        let patient = tokio::time::timeout(STANDSTILL, async {
            while !self.is_frozen()? {
                // Version 1 has no event for it, and looks again at its processes only when it is asked.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        });
        patient.await.unwrap_or_else(|_| {
            let waiting: Vec<String> = self.processes()?.into_iter().map(place_of).collect();
            let message = format!("its processes do not stand still ({})", waiting.join(", "));
            Err(io::Error::new(io::ErrorKind::TimedOut, message))
        })
    }

    /// Lets its processes go on. `Ok` when they do already.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is no such group; [`io::ErrorKind::Unsupported`] where [`Cgroups::can_freeze`]
    /// is false.
    pub fn thaw(&self) -> io::Result<()> {
        self.set_frozen(false)
    }

    /// Whether its processes stand still.
    fn is_frozen(&self) -> io::Result<bool> {
        match &self.layout {
            Layout::V1(hierarchies) => hierarchies.is_frozen(),
            Layout::V2(folder) => v2::is_frozen(folder),
        }
    }

    fn set_frozen(&self, frozen: bool) -> io::Result<()> {
        match &self.layout {
            Layout::V1(hierarchies) => hierarchies.set_frozen(frozen),
            Layout::V2(folder) => v2::set_frozen(folder, frozen),
        }
    }

    /// Kills everything in it and removes it. `Ok` when there is no such group.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when a process does not die of SIGKILL within ten seconds.
    pub async fn destroy(&self) -> io::Result<()> {
        let patient = tokio::time::timeout(DEATH, async {
            loop {
                // What is frozen does not die.
                match self.thaw() {
                    Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::Unsupported => {}
                    other => other?,
                }
                self.kill_all().await?;
                if self.remove()? {
                    return Ok(());
                }
                // Somebody came in after our look, or has died and is not yet off the kernel's books: it tells nobody when.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        patient.await.unwrap_or_else(|_| {
            let left = self.processes().unwrap_or_default();
            Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("processes {left:?} do not die"),
            ))
        })
    }

    /// Again and again until nobody is left, because a process may fork between our look and our signal.
    async fn kill_all(&self) -> io::Result<()> {
        loop {
            let members = self.processes()?;
            if members.is_empty() {
                return Ok(());
            }
            let mut dying = Vec::new();
            for pid in members {
                // Opened first, then asked whether it is still a member: a number that was reused meanwhile is not.
                let Some(watch) = ProcessId::of(pid)?.map(|id| id.watch()).transpose()?.flatten() else {
                    continue;
                };
                if self.processes()?.contains(&pid) {
                    watch.kill()?;
                    dying.push(watch);
                }
            }
            for watch in &dying {
                watch.ended().await?;
            }
            if dying.is_empty() {
                // Only zombies, or processes on their last steps: the kernel tells nobody when they leave the group.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    /// Whether nothing is left of it.
    fn remove(&self) -> io::Result<bool> {
        for folder in self.layout.folders() {
            match fs::remove_dir(folder) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Ok(false),
                Err(error) if !is_gone(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(true)
    }
}

impl Layout {
    /// Makes the group if it is not there, so that it can have children with limits.
    fn make_as_parent(&self) -> io::Result<()> {
        match self {
            Self::V1(hierarchies) => hierarchies.folders().try_for_each(fs::create_dir_all),
            Self::V2(folder) => v2::make_as_parent(folder),
        }
    }

    /// The group around this one.
    fn parent(&self) -> Self {
        let of = |folder: &Path| folder.parent().unwrap_or(folder).to_owned();
        match self {
            Self::V1(hierarchies) => Self::V1(hierarchies.map(of)),
            Self::V2(folder) => Self::V2(of(folder)),
        }
    }

    fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        match self {
            Self::V1(hierarchies) => hierarchies.folders(),
            Self::V2(folder) => std::slice::from_ref(folder).iter(),
        }
    }
}

/// FNV-1a, 32 bits: written here because it must stay the same over releases.
fn digest(path: &Path) -> u32 {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes().iter().fold(0x811c_9dc5, |hash, &byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// Where in the kernel a process waits, for whoever asks why it does not stand still; see proc(5), `wchan`.
fn place_of(pid: i32) -> String {
    let place = fs::read_to_string(format!("/proc/{pid}/wchan"));
    format!("{pid} in {}", place.unwrap_or_else(|error| error.to_string()))
}

/// ENODEV is what a read says when the group went away after its file was opened.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ENODEV)
}

fn write(folder: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    let path = folder.join(file);
    // Control files are written whole, by one call, and never created.
    let written = OpenOptions::new().write(true).open(&path).and_then(|mut target| {
        use std::io::Write;
        target.write_all(value.to_string().as_bytes())
    });
    written.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn read_number(folder: &Path, file: &str) -> io::Result<u64> {
    let text = fs::read_to_string(folder.join(file))?;
    text.trim().parse().map_err(|_| invalid(folder, file))
}

/// The number after `key` in a file of `key number` lines.
fn read_field(folder: &Path, file: &str, key: &str) -> io::Result<u64> {
    let text = fs::read_to_string(folder.join(file))?;
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    value
        .and_then(|value| value.trim().parse().ok())
        .ok_or_else(|| invalid(folder, file))
}

fn invalid(folder: &Path, file: &str) -> io::Error {
    let path = folder.join(file);
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{} has not the expected form", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_path_is_the_published_function() {
        assert_eq!(digest(Path::new("a")), 0xe40c_292c);
        assert_eq!(digest(Path::new("foobar")), 0xbf9c_f968);
    }
}
