//! The memory guard: before the machine's limit is reached, the greediest process ends, never the agent.
//!
//! The engine's limit would take the whole machine. So while commands or cells run, or strays of theirs, the guard looks at
//! the memory in use as often as it could be used up, and at the number of threads. With nothing running it sleeps.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    time::Duration,
};

use atoll_model::{Limits, Outcome};
use atoll_protocol::types::{GuestCode, GuestRefusal};
use nix::{
    sys::{
        signal::{Signal, kill},
        sysinfo::sysinfo,
    },
    unistd::Pid,
};
use tokio::{sync::Notify, time::sleep};

use crate::{
    memory::{MIB, ceiling_of, has_room, resident_bytes, used_memory, wait_for_release},
    refusal::refuse,
    tree::{self, Mark},
};

/// How fast programs can fill memory, in bytes a second; a generous guess.
const FILL_RATE: u64 = 4 << 30;
/// Most commands have ended before it; they cost no look.
const FIRST_LOOK: Duration = Duration::from_millis(15);
const SHORTEST_PERIOD: Duration = Duration::from_millis(5);
const LONGEST_PERIOD: Duration = Duration::from_millis(100);
/// With only strays left that start no others.
const STRAY_PERIOD: Duration = Duration::from_secs(1);
/// Which part of the zygote's own memory a context copies in its first cells: one that has shown a table has copied a tenth,
/// one that has drawn a chart a quarter.
const SHARE_OF_FORK: u64 = 4;
/// Fewer processes than these leave the agent its turn, however fast they come.
const CROWD: usize = 32;
/// More new ones than these between two looks are an explosion.
const GROWTH: usize = 8;
/// How long everything stands still, and how long it runs, while it explodes.
const STILL: Duration = Duration::from_millis(20);
const SLICE: Duration = Duration::from_millis(5);
/// Processes that the agent and its callers keep for themselves.
const SPARE_PROCESSES: usize = 32;

/// Why the guard ended something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was the greediest when memory ran out.
    Memory { limit_mb: u64, peak_mb: u64 },
    /// It had the most processes when there were too many.
    Processes { limit: u32 },
}

impl Verdict {
    /// The outcome to report; `None` when the way it ended says enough beside [`note`](Self::note).
    pub(crate) fn outcome(self, context_restarted: bool) -> Option<Outcome> {
        match self {
            Self::Memory { limit_mb, peak_mb } => Some(Outcome::Oom {
                limit_mb,
                peak_mb,
                context_restarted,
            }),
            Self::Processes { .. } => None,
        }
    }

    /// A line for standard error.
    pub(crate) fn note(self) -> String {
        match self {
            Self::Memory { limit_mb, peak_mb } => {
                format!("\n[killed: {peak_mb} MiB in use, and the sandbox has {limit_mb} MiB]\n")
            }
            Self::Processes { limit } => format!("\n[killed: the sandbox may have {limit} processes]\n"),
        }
    }
}

/// Something runs, as long as this lives.
#[derive(Debug)]
pub(crate) struct Busy(Rc<Guard>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
    }
}

/// The guard.
#[derive(Debug)]
pub(crate) struct Guard {
    limit_mb: Cell<u64>,
    pids: Cell<u32>,
    running: Cell<usize>,
    begun: Notify,
    verdicts: RefCell<HashMap<Mark, Verdict>>,
    /// Processes that wait for work between cells: zygote and kernels, and their marks.
    residents: RefCell<HashMap<Pid, Mark>>,
    zygote: Cell<Option<Pid>>,
    /// How many processes the last look saw.
    seen: Cell<usize>,
    /// Whether the kernel counts this machine's processes alone, and not those of a host that it shares.
    is_ours: bool,
}

impl Guard {
    pub(crate) fn new(is_ours: bool) -> Self {
        let limits = Limits::default();
        Self {
            limit_mb: Cell::new(limits.memory_mb),
            pids: Cell::new(limits.pids),
            running: Cell::new(0),
            begun: Notify::new(),
            verdicts: RefCell::default(),
            residents: RefCell::default(),
            zygote: Cell::new(None),
            seen: Cell::default(),
            is_ours,
        }
    }

    pub(crate) fn set_limits(&self, memory_mb: u64, pids: u32) {
        self.limit_mb.set(memory_mb);
        self.pids.set(pids);
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_mb.get() * MIB
    }

    /// Says that something begins to run.
    pub(crate) fn busy(self: &Rc<Self>) -> Busy {
        self.running.set(self.running.get() + 1);
        self.begun.notify_one();
        Busy(Rc::clone(self))
    }

    /// A process that lives while nothing runs and is no stray. The zygote is the last one to be ended.
    pub(crate) fn add_resident(&self, pid: Pid, mark: Mark, is_zygote: bool) {
        self.residents.borrow_mut().insert(pid, mark);
        if is_zygote {
            self.zygote.set(Some(pid));
        }
    }

    pub(crate) fn remove_resident(&self, pid: Pid) {
        self.residents.borrow_mut().remove(&pid);
        if self.zygote.get() == Some(pid) {
            self.zygote.set(None);
        }
    }

    /// Whether there is room for another fork of the zygote. Refused is one that would leave less than a tenth of the memory:
    /// a moment later something would have to be ended for it.
    pub(crate) fn check_room(&self) -> Result<(), GuestRefusal> {
        let zygote = self.zygote.get().map_or(0, resident_bytes);
        let limit = self.limit_bytes();
        let used = used_memory(limit);
        if has_room(limit, used, zygote / SHARE_OF_FORK) {
            return Ok(());
        }
        let (used, limit) = (used / MIB, self.limit_mb.get());
        Err(refuse(
            GuestCode::TooMany,
            format!(
                "a new context would leave less than a tenth of the sandbox's memory: {used} of {limit} MiB are in use; close \
                 a context, or give the sandbox more memory"
            ),
        ))
    }

    /// Whether, and why, the guard ended something of this tree since it was last asked.
    pub(crate) fn take_verdict(&self, mark: Mark) -> Option<Verdict> {
        self.verdicts.borrow_mut().remove(&mark)
    }

    /// Guards until the agent ends.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            self.begun.notified().await;
            sleep(FIRST_LOOK).await;
            while self.running.get() > 0 || self.has_strays() {
                let period = self.look().await;
                sleep(period).await;
            }
        }
    }

    fn has_strays(&self) -> bool {
        let residents = self.residents.borrow();
        let mut processes = tree::all_processes().into_iter();
        processes.any(|process| process.mark.is_some() && !residents.contains_key(&process.pid))
    }

    /// Looks once, acts if need be, and says when to look again.
    ///
    /// On a starved machine every system call of ours waits for its turn, so the common case is one call, and too many
    /// processes are stopped before they are looked at.
    async fn look(&self) -> Duration {
        let limit = self.limit_bytes();
        let ceiling = ceiling_of(limit);
        let glance = Glance::take();
        if self.is_ours && self.are_too_many(glance.processes) || !self.is_ours && self.are_too_many(tree::count()) {
            self.end_most_numerous().await;
            return SHORTEST_PERIOD;
        }
        // Caches make memory look used that is not; only what looks too much is looked at closely.
        let used = match glance.used {
            Some(used) if self.is_ours && used < ceiling => used,
            _ => used_memory(limit),
        };
        if used >= ceiling {
            self.end_greediest(used, ceiling).await;
            return SHORTEST_PERIOD;
        }
        let before = self.seen.replace(glance.processes);
        if self.is_ours && is_exploding(before, glance.processes) {
            self.slow_down().await;
            return SHORTEST_PERIOD;
        }
        if self.running.get() == 0 && glance.processes <= before {
            return STRAY_PERIOD;
        }
        let headroom = Duration::from_micros((ceiling - used) / (FILL_RATE / 1_000_000));
        headroom.clamp(SHORTEST_PERIOD, LONGEST_PERIOD)
    }

    /// Lets everything run for short slices only, until it grows no more or is too many. Among as many as fork at once the agent
    /// would come to its turn too late; while they stand still it is the only one.
    async fn slow_down(&self) {
        loop {
            {
                let _standstill = tree::Standstill::begin().await;
                let crowd = Glance::take().processes;
                if self.are_too_many(crowd) || crowd <= self.seen.replace(crowd) {
                    break;
                }
                sleep(STILL).await;
            }
            sleep(SLICE).await;
        }
        if self.are_too_many(self.seen.get()) {
            self.end_most_numerous().await;
        }
    }

    fn are_too_many(&self, processes: usize) -> bool {
        processes + SPARE_PROCESSES > self.pids.get() as usize
    }

    /// Memory is nearly full: the process with the most goes. Everybody else stands still until its memory is free, so that
    /// the next look judges what they hold and not what is just being given back.
    async fn end_greediest(&self, used: u64, ceiling: u64) {
        let processes = tree::all_processes();
        let spared = self.zygote.get();
        let candidates = processes.iter().filter(|process| Some(process.pid) != spared);
        let greediest = candidates.max_by_key(|process| resident_bytes(process.pid)).copied();
        let zygote = || processes.iter().find(|process| Some(process.pid) == spared).copied();
        let Some(victim) = greediest.or_else(zygote) else {
            return;
        };
        if let Some(mark) = victim.mark {
            let verdict = Verdict::Memory {
                limit_mb: self.limit_mb.get(),
                peak_mb: used / MIB,
            };
            self.verdicts.borrow_mut().insert(mark, verdict);
        }
        eprintln!(
            "atoll-agent: out of memory: ending process {} at {} MiB in use",
            victim.pid,
            used / MIB
        );
        // That it has ended by itself meanwhile is fine.
        let _ = kill(victim.pid, Signal::SIGKILL);
        let _standstill = tree::Standstill::begin().await;
        let limit = self.limit_bytes();
        wait_for_release(ceiling, || tree::has_ended(victim.pid).then(|| used_memory(limit))).await;
    }

    /// Too many processes: the tree with the most threads goes, all at once, before it can grow again. Threads, because gVisor's
    /// group does not refuse them, and its kernel ends the whole machine at 4095 of one process.
    async fn end_most_numerous(&self) {
        let _standstill = tree::Standstill::begin().await;
        let mut counts: HashMap<Option<Mark>, usize> = HashMap::new();
        for process in tree::all_processes() {
            *counts.entry(process.mark).or_default() += tree::threads(process.pid);
        }
        if !self.are_too_many(counts.values().sum()) {
            return;
        }
        let counts = counts.into_iter().filter_map(|(mark, count)| Some((mark?, count)));
        if let Some((mark, count)) = counts.max_by_key(|(_, count)| *count) {
            eprintln!("atoll-agent: too many processes: ending a tree of {count} threads");
            let limit = self.pids.get();
            self.verdicts.borrow_mut().insert(mark, Verdict::Processes { limit });
            tree::kill_tree_at_standstill(mark).await;
        }
    }
}

/// Whether so many processes came between two looks that the next look may come too late.
fn is_exploding(before: usize, now: usize) -> bool {
    now >= CROWD && now >= before + GROWTH
}

/// What one call of the kernel tells of the machine.
struct Glance {
    /// With their threads.
    processes: usize,
    /// Memory that is not free, in bytes.
    used: Option<u64>,
}

impl Glance {
    fn take() -> Self {
        match sysinfo() {
            Ok(info) => Self {
                processes: info.process_count().into(),
                used: info.ram_total().checked_sub(info.ram_unused()),
            },
            Err(_) => Self {
                processes: 0,
                used: None,
            },
        }
    }
}
