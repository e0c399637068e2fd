//! Version 1: one directory for each controller.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{CgroupLimits, CgroupUsage, read_field, read_number, write};

/// The period over which processor time is shared out, in microseconds.
const PERIOD: u64 = 100_000;

/// The directories of one group, one for each controller that we use. Controllers mounted together share one.
#[derive(Debug, Clone)]
pub(super) struct Hierarchies {
    cpu: PathBuf,
    cpuacct: PathBuf,
    memory: PathBuf,
    pids: PathBuf,
    /// Hosts may lack it; then nothing can be frozen.
    freezer: Option<PathBuf>,
    distinct: Vec<PathBuf>,
}

impl Hierarchies {
    /// The roots, out of the text of `/proc/self/mounts`.
    pub(super) fn find(mounts: &str) -> io::Result<Self> {
        let mounted = |controller: &str| {
            mounts.lines().find_map(|line| {
                let mut fields = line.split(' ').skip(1);
                let (folder, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
                let has_it = kind == "cgroup" && options.split(',').any(|option| option == controller);
                has_it.then(|| PathBuf::from(folder))
            })
        };
        let root_of = |controller: &str| {
            mounted(controller).ok_or_else(|| {
                let message = format!("the cgroup controller {controller} is not mounted (version 1 or 2)");
                io::Error::new(io::ErrorKind::Unsupported, message)
            })
        };
        Ok(Self {
            cpu: root_of("cpu")?,
            cpuacct: root_of("cpuacct")?,
            memory: root_of("memory")?,
            pids: root_of("pids")?,
            freezer: mounted("freezer"),
            distinct: Vec::new(),
        }
        .with_distinct())
    }

    fn with_distinct(mut self) -> Self {
        let needed = [&self.cpu, &self.cpuacct, &self.memory, &self.pids];
        self.distinct = needed.into_iter().chain(&self.freezer).cloned().collect();
        self.distinct.sort();
        self.distinct.dedup();
        self
    }

    pub(super) fn child(&self, name: &str) -> Self {
        self.map(|folder| folder.join(name))
    }

    /// The same with another folder in place of each.
    pub(super) fn map(&self, folder: impl Fn(&Path) -> PathBuf) -> Self {
        Self {
            cpu: folder(&self.cpu),
            cpuacct: folder(&self.cpuacct),
            memory: folder(&self.memory),
            pids: folder(&self.pids),
            freezer: self.freezer.as_deref().map(folder),
            distinct: Vec::new(),
        }
        .with_distinct()
    }

    /// Whether groups can be frozen here.
    pub(super) fn can_freeze(&self) -> bool {
        self.freezer.is_some()
    }

    fn freezer(&self) -> io::Result<&Path> {
        self.freezer.as_deref().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "the cgroup controller freezer is not mounted",
            )
        })
    }

    /// Tells the kernel to freeze or to thaw.
    pub(super) fn set_frozen(&self, frozen: bool) -> io::Result<()> {
        write(
            self.freezer()?,
            "freezer.state",
            if frozen { "FROZEN" } else { "THAWED" },
        )
    }

    /// Whether every process stands still. To ask makes the kernel look again at those that did not.
    pub(super) fn is_frozen(&self) -> io::Result<bool> {
        let state = std::fs::read_to_string(self.freezer()?.join("freezer.state"))?;
        Ok(state.trim() == "FROZEN")
    }

    pub(super) fn folders(&self) -> std::slice::Iter<'_, PathBuf> {
        self.distinct.iter()
    }

    pub(super) fn limit(&self, limits: &CgroupLimits) -> io::Result<()> {
        if let Some(bytes) = limits.memory_bytes {
            write(&self.memory, "memory.limit_in_bytes", bytes)?;
            write(&self.memory, "memory.swappiness", 0)?;
        }
        if let Some(tasks) = limits.tasks {
            write(&self.pids, "pids.max", tasks)?;
        }
        if let Some(millis) = limits.cpu_millis {
            write(&self.cpu, "cpu.cfs_period_us", PERIOD)?;
            write(&self.cpu, "cpu.cfs_quota_us", millis * PERIOD / 1000)?;
        }
        Ok(())
    }

    pub(super) fn usage(&self) -> io::Result<CgroupUsage> {
        Ok(CgroupUsage {
            cpu_micros: read_number(&self.cpuacct, "cpuacct.usage")? / 1000,
            memory_bytes: read_number(&self.memory, "memory.usage_in_bytes")?,
            memory_peak_bytes: read_number(&self.memory, "memory.max_usage_in_bytes")?,
            processes: 0,
        })
    }

    pub(super) fn oom_kills(&self) -> io::Result<u64> {
        read_field(&self.memory, "memory.oom_control", "oom_kill")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_found_mounted_alone_or_together() {
        let mounts = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
                      cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                      cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n";
        let found = Hierarchies::find(mounts).unwrap();
        assert_eq!(found.distinct.len(), 3);
        assert!(!found.can_freeze());
        assert_eq!(found.cpuacct, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        let more = format!("{mounts}cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0\n");
        let found = Hierarchies::find(&more).unwrap().child("own");
        assert!(found.can_freeze());
        assert_eq!(found.distinct.len(), 4);
    }

    #[test]
    fn a_missing_controller_is_named() {
        let error = Hierarchies::find("cgroup /c cgroup rw,cpu,cpuacct,memory 0 0\n").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("pids"), "{error}");
    }
}
