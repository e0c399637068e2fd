//! Process trees: who belongs to which command or context, whatever they did to hide.
//!
//! Parent links, process groups and sessions are lost when a process forks twice or calls setsid; the environment can be
//! emptied. A resource limit is inherited by every descendant and survives all of that, and one of them has no effect on
//! any kernel of the last twenty years: RLIMIT_RSS. Its soft value is the mark. No helper process per command is needed.

use std::{
    cell::Cell,
    fs,
    io::Read,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use nix::{
    sys::{
        signal::{Signal, kill, killpg},
        sysinfo::sysinfo,
    },
    unistd::Pid,
};

use crate::sys;

/// A tree of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Mark(u64);

/// Far above any real limit; the low bits stay zero, so that tools that show kilobytes show a whole number.
const BASE: u64 = 1 << 60;
const SHIFT: u32 = 12;

impl Mark {
    /// As the limit's value.
    pub(crate) fn value(self) -> u64 {
        self.0
    }

    fn of(pid: Pid) -> Option<Self> {
        sys::mark_of(pid)
            .filter(|value| *value & BASE != 0 && *value >> 61 == 0)
            .map(Self)
    }
}

/// Gives each tree a mark of its own.
#[derive(Debug, Default)]
pub(crate) struct Marks(Cell<u64>);

impl Marks {
    pub(crate) fn next(&self) -> Mark {
        self.0.set(self.0.get() + 1);
        Mark(BASE | self.0.get() << SHIFT)
    }
}

/// A process that exists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    /// `None`: not started by the agent.
    pub(crate) mark: Option<Mark>,
}

/// Ids of all processes, threads not counted.
pub(crate) fn all_pids() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok().map(Pid::from_raw)).collect()
}

/// How many threads there are, counted process by process.
pub(crate) fn count() -> usize {
    all_pids().into_iter().map(threads).sum()
}

/// All processes but the agent itself.
pub(crate) fn all_processes() -> Vec<Process> {
    let own = Pid::this();
    let others = all_pids().into_iter().filter(|pid| *pid != own);
    others
        .map(|pid| Process {
            pid,
            mark: Mark::of(pid),
        })
        .collect()
}

/// A file of the kernel's about a process or the machine, at most a page of it: one read, whatever the number of processes.
/// Nothing when it is not there.
pub(crate) fn kernel_file(path: &str) -> String {
    let mut page = [0; 4096];
    let length = fs::File::open(path)
        .and_then(|mut file| file.read(&mut page))
        .unwrap_or(0);
    String::from_utf8_lossy(&page[..length]).into_owned()
}

/// Whether it has ended and waits to be reaped; also when it is gone.
pub(crate) fn has_ended(pid: Pid) -> bool {
    matches!(stat_field(pid, STATE).as_deref(), Some("Z" | "X") | None)
}

/// Whether a process may have been forked by one of that tree just now: it has the tree's mark, or has ended already.
pub(crate) fn may_be_child(pid: Pid, mark: Mark) -> bool {
    let is_gone = || kill(pid, None) == Err(nix::Error::ESRCH);
    pid.as_raw() > 1 && pid != Pid::this() && (Mark::of(pid) == Some(mark) || is_gone())
}

/// Threads of a process; 0 when it is gone.
pub(crate) fn threads(pid: Pid) -> usize {
    let field = stat_field(pid, THREADS);
    field.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Of `/proc/PID/stat` (proc_pid_stat(5)), counted from the field that follows the command's name.
const STATE: usize = 0;
const THREADS: usize = 17;

fn stat_field(pid: Pid, index: usize) -> Option<String> {
    let stat = kernel_file(&format!("/proc/{pid}/stat"));
    // The command's name, in parentheses, may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(index).map(str::to_owned)
}

/// Sends SIGKILL to every process of the tree; gives those that were there.
fn kill_members(mark: Mark) -> Vec<Pid> {
    let members = all_processes().into_iter().filter(|process| process.mark == Some(mark));
    // That one ended meanwhile is fine.
    members
        .map(|process| process.pid)
        .filter(|pid| kill(*pid, Signal::SIGKILL).is_ok())
        .collect()
}

/// How many threads the kernel knows, in one call; in a machine of our own these are all that there are.
pub(crate) fn tasks() -> Option<usize> {
    sysinfo().ok().map(|info| info.process_count().into())
}

/// No host has so few processes, and no machine that has just booted has more.
const PROCESSES_AT_BOOT: usize = 4;

/// Whether this machine's kernel is its own, and not that of a host that we share. To be asked before anything was started.
pub(crate) fn kernel_is_ours() -> bool {
    std::process::id() == 1 && tasks().is_some_and(|count| count <= PROCESSES_AT_BOOT)
}

/// Everything in the machine but the agent stands still while this lives. One call of the kernel does it, so that it works
/// against a tree that grows faster than it could be listed.
///
/// Only process 1 may do that: elsewhere the machine is not ours, and nothing is stopped.
pub(crate) struct Standstill(bool);

/// How many of them there are. Two may overlap, and everybody goes on with the end of the last.
static STANDSTILLS: AtomicUsize = AtomicUsize::new(0);

impl Standstill {
    /// A fork that is under way when its parent is stopped gives a child that runs, so everybody is told again until no more
    /// come.
    pub(crate) async fn begin() -> Self {
        let standstill = Self(std::process::id() == 1);
        if standstill.0 {
            STANDSTILLS.fetch_add(1, Ordering::Relaxed);
            let mut before = None;
            for _ in 0..STOPS {
                // An error says that there is no other process.
                let _ = kill(EVERYONE, Signal::SIGSTOP);
                let now = tasks();
                if before == now {
                    break;
                }
                before = now;
                // The kernel tells nobody when the last fork is through.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        standstill
    }
}

impl Drop for Standstill {
    fn drop(&mut self) {
        if self.0 && STANDSTILLS.fetch_sub(1, Ordering::Relaxed) == 1 {
            let _ = kill(EVERYONE, Signal::SIGCONT);
        }
    }
}

/// How often everybody is told to stop.
const STOPS: u32 = 100;
const EVERYONE: Pid = Pid::from_raw(-1);
/// How often a tree is killed as it is found, before the whole machine is stopped for it; and how often after that.
const GENTLE_ROUNDS: u64 = 4;
const ROUNDS: u64 = 200;

/// Ends a tree. `leader` is the process that it began with: most of the tree is in its group, which one call ends whatever
/// its size. What left the group is found by its mark.
pub(crate) async fn kill_tree(mark: Mark, leader: Pid) {
    if Mark::of(leader) == Some(mark) {
        // That the whole group has ended is fine.
        let _ = killpg(leader, Signal::SIGKILL);
    }
    for round in 0..GENTLE_ROUNDS {
        if is_over(&kill_members(mark)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1 + round)).await;
    }
    kill_tree_at_standstill(mark).await;
}

/// Ends a tree that grows as fast as it is killed, with everything else stopped meanwhile.
pub(crate) async fn kill_tree_at_standstill(mark: Mark) {
    for round in 0..ROUNDS {
        // Anew in each round: a fork that was under way may have missed the last one.
        let _standstill = Standstill::begin().await;
        if is_over(&kill_members(mark)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1 + round.min(19))).await;
    }
    eprintln!("atoll-agent: a process tree cannot be ended");
}

/// Whether of these, all of which were just killed, none can run on.
fn is_over(killed: &[Pid]) -> bool {
    killed.iter().all(|pid| has_ended(*pid))
}
