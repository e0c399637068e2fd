//! What a sandbox may use of the machine.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::Refusal;

/// Processors that a caller may ask for.
pub const CPU_RANGE: RangeInclusive<u32> = 1..=64;
/// Memory that a caller may ask for, in MiB.
pub const MEMORY_MB_RANGE: RangeInclusive<u64> = 128..=65_536;
/// Disk that a caller may ask for, in MiB.
pub const DISK_MB_RANGE: RangeInclusive<u64> = 64..=1_048_576;

/// Ceilings of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processors, in whole cores; 1 to 64.
    pub cpu: u32,
    /// Memory in MiB; 128 to 65536. What the guest sees as its total.
    pub memory_mb: u64,
    /// What the guest may write to its disk, in MiB; 64 to 1048576.
    pub disk_mb: u64,
    /// Processes and threads; the template's number, or fewer where the memory is small: see [`Limits::processes_in`].
    pub pids: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu: 2,
            memory_mb: 2048,
            disk_mb: 8192,
            pids: 1024,
        }
    }
}

impl Limits {
    /// How many processes and threads fit into so much memory: one for every 8 MiB, but 128 in any case.
    ///
    /// A child of an interpreter holds some 3 MiB and its engine's bookkeeping comes on top; above all, the agent must come to
    /// its turn among as many as all want to run at once.
    #[must_use]
    pub fn processes_in(memory_mb: u64) -> u32 {
        u32::try_from(memory_mb / 8).unwrap_or(u32::MAX).max(128)
    }

    /// Checks that every ceiling is in its range.
    ///
    /// # Errors
    /// `InvalidRequest` naming the field and its range.
    pub fn check(&self) -> Result<(), Refusal> {
        fn within<T: PartialOrd + std::fmt::Display>(
            field: &str,
            value: T,
            range: &RangeInclusive<T>,
            unit: &str,
        ) -> Result<(), Refusal> {
            if range.contains(&value) {
                return Ok(());
            }
            let (low, high) = (range.start(), range.end());
            Err(Refusal::field(
                field,
                format!("{field} must be {low} to {high}{unit}, not {value}"),
            ))
        }
        within("cpu", self.cpu, &CPU_RANGE, " cores")?;
        within("memory_mb", self.memory_mb, &MEMORY_MB_RANGE, " MiB")?;
        within("disk_mb", self.disk_mb, &DISK_MB_RANGE, " MiB")
    }
}

/// The largest request body of a JSON route, in bytes (1 MiB).
pub const MAX_JSON_BODY: usize = 1 << 20;
/// The largest file that one write may carry, in bytes. The contract of old clients says 32 MiB at least
/// (pandastack-v1 §2.9); ours streams, so the ceiling is the sandbox's disk.
pub const MAX_FILE_BODY: u64 = 4 << 30;
/// Contexts that one sandbox may hold (pandastack-v1 §4.5 says 8; ours are cheap).
pub const MAX_CONTEXTS: usize = 32;
/// Commands that may run at once in one sandbox.
pub const MAX_EXECS: usize = 256;
/// The longest deadline that a caller may set on a cell or a command, in seconds (24 h).
pub const MAX_TIMEOUT_SECONDS: u64 = 86_400;
/// Deadline of a cell when the caller names none, in seconds (pandastack-v1 §2.10).
pub const DEFAULT_CELL_TIMEOUT_SECONDS: u64 = 30;
/// Idle limit of a sandbox when the caller names none, in seconds (pandastack-v1 §4.1).
pub const DEFAULT_TTL_SECONDS: u64 = 3600;
/// The longest idle limit that a caller may set, in seconds (365 days).
pub const MAX_TTL_SECONDS: u64 = 365 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ceiling_outside_its_range_is_refused_by_its_name() {
        assert!(Limits::default().check().is_ok());
        let none = Limits {
            memory_mb: 0,
            ..Limits::default()
        };
        assert_eq!(none.check().unwrap_err().field.as_deref(), Some("memory_mb"));
        let huge = Limits {
            disk_mb: u64::MAX,
            ..Limits::default()
        };
        assert_eq!(huge.check().unwrap_err().field.as_deref(), Some("disk_mb"));
    }
}
