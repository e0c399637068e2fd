//! Processes that may outlive us, so known by more than a number.

use std::{fs, io, os::fd::OwnedFd};

use serde::{Deserialize, Serialize};
use tokio::io::{Interest, unix::AsyncFd};

use crate::sys;

/// A process: its number and when it started, because numbers come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: i32,
    /// When it started, in clock ticks since boot (field 22 of proc_pid_stat(5)).
    pub start_ticks: u64,
}

impl ProcessId {
    /// Which process has this number now; `None` when there is none, or only what is left of one (a zombie).
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(text) => text,
            // ESRCH: it ended between open and read.
            Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ESRCH) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        Ok(parse_stat(&stat)
            .filter(|(state, _)| !matches!(state, 'Z' | 'X'))
            .map(|(_, start_ticks)| Self { pid, start_ticks }))
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn is_alive(&self) -> io::Result<bool> {
        Ok(Self::of(self.pid)? == Some(*self))
    }

    /// Takes hold of it; `None` when it has ended.
    ///
    /// # Errors
    /// When the kernel has no pidfds (before 5.3), or no descriptor is left.
    pub fn watch(&self) -> io::Result<Option<ProcessWatch>> {
        let pidfd = match sys::pidfd_open(self.pid) {
            Ok(pidfd) => pidfd,
            Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => return Ok(None),
            Err(error) => return Err(error),
        };
        // Asked after the descriptor was opened: if it is this process now, it is the one that the descriptor holds.
        if !self.is_alive()? {
            return Ok(None);
        }
        Ok(Some(ProcessWatch {
            pidfd: sys::register(pidfd, Interest::READABLE)?,
        }))
    }
}

/// State letter and start time out of `/proc/PID/stat`. The second field is the name in parentheses, which may itself
/// hold spaces and parentheses, so the rest is counted from the last one.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let rest = &stat[stat.rfind(')')? + 1..];
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

/// A hold on one process: signals reach it or nobody, and its end can be awaited, whoever its parent is.
#[derive(Debug)]
pub struct ProcessWatch {
    pidfd: AsyncFd<OwnedFd>,
}

impl ProcessWatch {
    /// Resolves when it has ended. May be called again.
    ///
    /// # Errors
    /// When the runtime that drives descriptors is gone.
    pub async fn ended(&self) -> io::Result<()> {
        // A pidfd stays readable from the end on, so readiness is left as it is.
        self.pidfd.readable().await?.retain_ready();
        Ok(())
    }

    /// The same for hand-written futures; remembers one waker only.
    pub(crate) fn poll_ended(&self, context: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        self.pidfd.poll_read_ready(context).map(|_| ())
    }

    /// Kills it. Nothing happens when it has ended already.
    ///
    /// # Errors
    /// When we may not.
    pub fn kill(&self) -> io::Result<()> {
        match sys::pidfd_send_signal(self.pidfd.get_ref(), nix::libc::SIGKILL) {
            Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::id;

    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let line = "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        assert_eq!(parse_stat(line), Some(('R', 4242)));
    }

    #[test]
    fn a_reused_number_is_another_process() {
        let me = ProcessId::of(id() as i32).unwrap().unwrap();
        assert!(me.is_alive().unwrap());
        let other = ProcessId {
            start_ticks: me.start_ticks + 1,
            ..me
        };
        assert!(!other.is_alive().unwrap());
    }
}
