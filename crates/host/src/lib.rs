//! What we do to the machine: children, cgroups, mounts, FIFOs, disks.
//!
//! The only crate that starts processes on the host, and with the guest agent's system call module the only one that holds
//! `unsafe` (all of it in `sys` and in [`Program`]'s one hook before `exec`). It knows nothing of sandboxes, templates or engines.
//!
//! - [`Program`]: start one, with nothing inherited that was not listed; run it to its end, line by line.
//! - [`Enclosure`]: namespaces, mounts and root of a program, made in the child before it starts.
//! - [`ProcessId`]: a process that outlives us, told apart from a later one that got the same number.
//! - [`Cgroups`]: limits and usage, on version 1 and 2.
//! - [`FifoPort`]: two FIFOs as one duplex stream that survives us.
//! - [`mounts`], [`disk`], [`image`], [`lock`], [`private`]: the small rest.

mod affinity;
mod cgroup;
pub mod disk;
mod enclosure;
mod fifo;
pub mod image;
pub mod lock;
pub mod mounts;
pub mod private;
mod process;
mod program;
mod sys;

pub use affinity::CpuSet;
pub use cgroup::{Cgroup, CgroupLimits, CgroupUsage, Cgroups};
pub use enclosure::{Enclosure, MountAction, Right};
pub use fifo::{FifoPort, make_fifos};
pub use process::{ProcessId, ProcessWatch};
pub use program::{Child, Finished, Line, LineSource, Program, ProgramError, find_program};
