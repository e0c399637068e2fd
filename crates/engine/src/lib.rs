//! The trait that isolates, and the suite that every engine passes.
//!
//! An engine makes machines out of a rootfs or a snapshot and hands back one duplex byte stream for each. It knows nothing
//! of what is said on that stream. All differences between engines are data in [`Capabilities`].

#[cfg(feature = "conformance")]
pub mod conformance;

use std::{fmt, path::PathBuf, pin::Pin};

use async_trait::async_trait;
use atoll_model::{Isolation, Limits, MachineId};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

/// What an engine can do on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// The wall it builds.
    pub isolation: Isolation,
    /// Name and version of what isolates, as in `runsc 0.0~20240729.0`; snapshots are bound to it.
    pub version: String,
    /// Whether [`Engine::snapshot`] works on a machine that then goes on.
    pub snapshot_running: bool,
    /// Whether a snapshot carries memory and disk. Where it does not, [`Engine::restore`] starts process 1 anew on the
    /// plain rootfs, and whatever was warmed before the snapshot has to be warmed again.
    pub memory_snapshot: bool,
    /// Whether machines can be frozen in memory.
    pub pause: bool,
    /// Whether the disk ceiling is enforced.
    pub disk_limit: bool,
    /// What an operator should know, one sentence each.
    pub warnings: Vec<String>,
}

/// Both ends of a byte stream in one.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The host's end of the byte stream to a machine's process 1.
pub type GuestPort = Box<dyn Duplex>;

/// Resolves when the machine has ended, however that came.
pub type ExitWatch = Pin<Box<dyn Future<Output = MachineExit> + Send>>;

/// How a machine ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineExit {
    /// Whether the host's memory limit ended it.
    pub oom: bool,
    /// For the log.
    pub detail: String,
}

/// A live machine.
pub struct Machine {
    /// Which.
    pub id: MachineId,
    /// The stream to its process 1.
    pub port: GuestPort,
    /// Its end.
    pub exited: ExitWatch,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What both ways to start a machine need.
#[derive(Debug, Clone)]
pub struct MachinePlan {
    /// Its id; no live machine has it.
    pub id: MachineId,
    /// A directory that the guest sees as its root, copy-on-write. Never written by the engine, so the folders at which the
    /// guest sees something else are there: [`GUEST_DIR`], `/dev`, `/proc` and `/sys`.
    pub rootfs: PathBuf,
    /// A directory that the guest sees read-only at [`GUEST_DIR`]; it holds process 1.
    pub guest_dir: PathBuf,
    /// Ceilings. The engine adds what it needs for itself on top of `memory_mb`.
    pub limits: Limits,
    /// The first host name (the agent sets the final one).
    pub hostname: String,
}

/// Where the guest sees [`MachinePlan::guest_dir`].
pub const GUEST_DIR: &str = "/opt/atoll";
/// Process 1, inside the guest.
pub const AGENT_PATH: &str = "/opt/atoll/agent";

/// Where the guest may find a `pids` control group (version 1 of that interface). An engine that cannot bound the number of
/// processes from outside without ending the whole machine has it here; process 1 then puts what it starts into a group below
/// it, limited to what [`Limits::pids`] says. An engine without it bounds the number itself.
pub const GUEST_PIDS_GROUP: &str = "/sys/fs/cgroup/pids";

/// What a machine used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time, in microseconds, the engine's own included.
    pub cpu_micros: u64,
    /// Memory held now, in bytes, the engine's own included.
    pub memory_bytes: u64,
    /// The most memory ever held, in bytes.
    pub memory_peak_bytes: u64,
    /// What the guest wrote to its disk and the host holds, in bytes.
    pub disk_bytes: u64,
    /// Processes of the host that serve it.
    pub host_processes: u32,
}

/// Why an engine could not.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The engine does not work on this host.
    #[error("{engine} is not usable here: {reason}")]
    Unusable {
        /// Which engine.
        engine: &'static str,
        /// What was tried and what came of it, and what to do about it.
        reason: String,
    },
    /// The engine's program failed.
    #[error("{program} {action} failed for {machine}: {detail}")]
    Failed {
        /// As in `runsc`.
        program: &'static str,
        /// As in `restore`.
        action: &'static str,
        /// Which machine.
        machine: MachineId,
        /// Exit status and the last lines of its output.
        detail: String,
    },
    /// The host refused.
    #[error("{context}")]
    Host {
        /// What was being done.
        context: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The host has no room (disk, memory, processes).
    #[error("the host has no room: {0}")]
    NoRoom(String),
    /// No such machine.
    #[error("no machine {0}")]
    NoMachine(MachineId),
    /// This engine cannot do that; see [`Capabilities`].
    #[error("{engine} cannot {what}")]
    Unsupported {
        /// Which engine.
        engine: &'static str,
        /// As in "pause".
        what: &'static str,
    },
}

/// What isolates.
///
/// Every method may be cancelled (its future dropped) at any await; the caller then calls [`stop`](Engine::stop), which
/// removes whatever exists under that id. All methods on one machine are called one after the other, by its only owner;
/// methods on different machines run at the same time.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// As in `gvisor`; part of a snapshot's identity.
    fn name(&self) -> &'static str;

    /// What this engine can do here, found out by [`probe`](Engine::probe).
    fn capabilities(&self) -> &Capabilities;

    /// Tries the engine for real: starts a machine and checks its answer.
    async fn probe(&self) -> Result<Capabilities, EngineError>;

    /// Starts a machine cold; [`AGENT_PATH`] is its process 1. For bakes.
    async fn boot(&self, plan: MachinePlan) -> Result<Machine, EngineError>;

    /// Stores memory and disk of a running machine into the empty directory `to`. The machine goes on.
    /// The caller has made process 1 quiet: no call is open on its port.
    async fn snapshot(&self, machine: &MachineId, to: PathBuf) -> Result<(), EngineError>;

    /// Starts a machine from what [`snapshot`](Engine::snapshot) stored. The rootfs is the one that the snapshot was taken on.
    /// Process 1 then runs on from where it was; the caller must thaw it before anything else.
    async fn restore(&self, plan: MachinePlan, snapshot: PathBuf) -> Result<Machine, EngineError>;

    /// Ends a machine and removes everything it held on the host. Idempotent; `Ok` when there is no such machine, and
    /// finishes what a crash left half done.
    async fn stop(&self, machine: &MachineId) -> Result<(), EngineError>;

    /// Takes over a machine that an earlier process of this server started. `None` when it no longer lives (the caller
    /// calls [`stop`](Engine::stop) to sweep up).
    async fn adopt(&self, machine: &MachineId) -> Result<Option<Machine>, EngineError>;

    /// Every machine of which anything is left on this host: process, cgroup, mount or file.
    async fn inventory(&self) -> Result<Vec<MachineId>, EngineError>;

    /// What a machine used so far.
    async fn usage(&self, machine: &MachineId) -> Result<Usage, EngineError>;

    /// Freezes a machine in memory: it uses no processor time until [`resume`](Engine::resume), and nothing it held is lost.
    /// `Ok` when it is frozen already. After an error, or when dropped before its end, the machine may be frozen or not: the
    /// caller resumes it. It can be adopted and stopped as it is.
    async fn pause(&self, _machine: &MachineId) -> Result<(), EngineError> {
        Err(EngineError::Unsupported {
            engine: self.name(),
            what: "pause",
        })
    }

    /// Lets a frozen machine go on. `Ok` when it does already.
    async fn resume(&self, _machine: &MachineId) -> Result<(), EngineError> {
        Err(EngineError::Unsupported {
            engine: self.name(),
            what: "resume",
        })
    }
}
