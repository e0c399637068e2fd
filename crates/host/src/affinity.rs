//! Which processors a program may see.

use std::io;

use nix::{sched, unistd::Pid};

/// A set of processors of this host.
#[derive(Debug, Clone, Copy)]
pub struct CpuSet(sched::CpuSet);

impl CpuSet {
    /// The first `count` processors that we may use ourselves, from the one at `start` on, wrapping around; all of them when
    /// there are not that many. A different `start` for each program spreads them.
    ///
    /// # Errors
    /// Whatever the kernel says to the question.
    pub fn choose(count: u32, start: usize) -> io::Result<Self> {
        let ours = sched::sched_getaffinity(Pid::from_raw(0))?;
        let usable: Vec<usize> = (0..sched::CpuSet::count())
            .filter(|&cpu| ours.is_set(cpu).unwrap_or(false))
            .collect();
        let mut chosen = sched::CpuSet::new();
        for offset in 0..usable.len().min(count as usize) {
            chosen.set(usable[(start + offset) % usable.len()])?;
        }
        Ok(Self(chosen))
    }

    /// How many processors we may use ourselves.
    ///
    /// # Errors
    /// Whatever the kernel says to the question.
    pub fn available() -> io::Result<u32> {
        let ours = sched::sched_getaffinity(Pid::from_raw(0))?;
        let count = (0..sched::CpuSet::count())
            .filter(|&cpu| ours.is_set(cpu).unwrap_or(false))
            .count();
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Binds the calling process. Safe between `fork` and `exec`.
    pub(crate) fn bind_self(&self) -> io::Result<()> {
        Ok(sched::sched_setaffinity(Pid::from_raw(0), &self.0)?)
    }

    /// Binds every thread that `process` has now, and by inheritance those that they start.
    ///
    /// # Errors
    /// When `process` is gone.
    pub fn bind_threads_of(&self, process: i32) -> io::Result<()> {
        for entry in std::fs::read_dir(format!("/proc/{process}/task"))? {
            let Some(thread) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            match sched::sched_setaffinity(Pid::from_raw(thread), &self.0) {
                // It ended between the listing and the call.
                Err(nix::errno::Errno::ESRCH) => {}
                other => other?,
            }
        }
        Ok(())
    }
}
