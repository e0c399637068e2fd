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
    distinct: Vec<PathBuf>,
}

impl Hierarchies {
    /// The roots, out of the text of `/proc/self/mounts`.
    pub(super) fn find(mounts: &str) -> io::Result<Self> {
        let root_of = |controller: &str| {
            let found = mounts.lines().find_map(|line| {
                let mut fields = line.split(' ').skip(1);
                let (folder, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
                let has_it = kind == "cgroup" && options.split(',').any(|option| option == controller);
                has_it.then(|| PathBuf::from(folder))
            });
            found.ok_or_else(|| {
                let message = format!("the cgroup controller {controller} is not mounted (version 1 or 2)");
                io::Error::new(io::ErrorKind::Unsupported, message)
            })
        };
        Ok(Self::new(
            root_of("cpu")?,
            root_of("cpuacct")?,
            root_of("memory")?,
            root_of("pids")?,
        ))
    }

    fn new(cpu: PathBuf, cpuacct: PathBuf, memory: PathBuf, pids: PathBuf) -> Self {
        let mut distinct = vec![cpu.clone(), cpuacct.clone(), memory.clone(), pids.clone()];
        distinct.sort();
        distinct.dedup();
        Self {
            cpu,
            cpuacct,
            memory,
            pids,
            distinct,
        }
    }

    pub(super) fn child(&self, name: &str) -> Self {
        let join = |folder: &Path| folder.join(name);
        Self::new(
            join(&self.cpu),
            join(&self.cpuacct),
            join(&self.memory),
            join(&self.pids),
        )
    }

    /// The same with another folder in place of each.
    pub(super) fn try_map(&self, folder: impl Fn(&Path) -> io::Result<PathBuf>) -> io::Result<Self> {
        Ok(Self::new(
            folder(&self.cpu)?,
            folder(&self.cpuacct)?,
            folder(&self.memory)?,
            folder(&self.pids)?,
        ))
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
        assert_eq!(found.cpuacct, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
    }

    #[test]
    fn a_missing_controller_is_named() {
        let error = Hierarchies::find("cgroup /c cgroup rw,cpu,cpuacct,memory 0 0\n").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("pids"), "{error}");
    }
}
