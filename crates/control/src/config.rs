//! What an operator may set about this crate's work.

use std::{path::PathBuf, time::Duration};

/// Settings of [`Control`](crate::Control). `Default` is what `atoll serve` uses when nothing is configured.
#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// A folder on the file system that holds machines' disks; creates are refused when it is nearly full.
    pub state_dir: PathBuf,
    /// Sandboxes that may live at once on this host.
    pub max_live_sandboxes: usize,
    /// Memory of the host that creates leave free, in MiB.
    pub memory_reserve_mb: u64,
    /// What a new sandbox is expected to hold at first, in MiB. Memory is not set aside for a sandbox's whole ceiling:
    /// an idle one holds a few dozen MiB, and what is really free is read at each create.
    pub memory_per_create_mb: u64,
    /// Disk space that creates leave free, in MiB.
    pub disk_reserve_mb: u64,
    /// How many times the disk space that is free above the reserve may be promised to sandboxes as their `disk_mb`. Disks are
    /// sparse and most stay nearly empty; 1 promises no more than there is.
    pub disk_overcommit: u32,
    /// Creates that may be at work at once; others wait for their turn. More than the host has cores makes each slower.
    pub max_booting: usize,
    /// How long a create may take until the agent's acknowledgement, waiting for its turn included. It is answered two seconds
    /// later at the latest, and clients give up after 30 seconds (pandastack-v1 §1.6).
    pub create_timeout: Duration,
    /// How long the agent may stay silent on a call that it answers at once. While calls are open, an agent that is silent
    /// for three times as long counts as lost.
    pub agent_timeout: Duration,
    /// How long the server tries to reach a sandbox's agent again, after its link broke or after a start of the server, before
    /// it ends the sandbox.
    pub reach_timeout: Duration,
    /// Calls that may be open at once on one sandbox.
    pub max_calls_per_sandbox: usize,
    /// What all collected answers may hold in the server's memory together, in bytes of output and results as they came.
    pub answers_bytes: usize,
    /// For how long ended sandboxes, their events, builds and idempotency keys are kept.
    pub retention: Duration,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            state_dir: PathBuf::from("."),
            max_live_sandboxes: 500,
            memory_reserve_mb: 1024,
            memory_per_create_mb: 192,
            disk_reserve_mb: 1024,
            disk_overcommit: 20,
            max_booting: 4,
            create_timeout: Duration::from_secs(25),
            agent_timeout: Duration::from_secs(10),
            reach_timeout: Duration::from_secs(60),
            max_calls_per_sandbox: 512,
            answers_bytes: 128 << 20,
            retention: Duration::from_secs(7 * 86_400),
        }
    }
}
