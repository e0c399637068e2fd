//! What every engine must do, as tests that each engine's crate runs against itself.
//!
//! An engine's crate implements [`Lab`] and calls [`conformance_tests!`](crate::conformance_tests). Machines run a small static
//! program ("guest.rs" beside this file) that answers a line to each line. Needs the rights that the engine needs, and `rustc`.
//!
//! What an engine says it cannot do (see [`Capabilities`](crate::Capabilities)) is not tested; everything else is.

mod bench;
mod guest_program;
mod traces;
mod victim;

pub mod cases;

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use atoll_model::{Limits, MachineId};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

pub use self::{guest_program::folder as guest_dir, traces::traces, victim::victim};
use crate::{Engine, ExitWatch, GuestPort, Machine, MachinePlan};

/// How an engine is made.
#[async_trait]
pub trait Lab: Send + Sync + 'static {
    /// The engine.
    type Engine: Engine;

    /// A new engine object on `state_dir`, as a server that starts there makes it.
    async fn engine(state_dir: &Path) -> Self::Engine;
}

/// One test's engine and its folders. Ends what the test left.
pub struct Bench<L: Lab> {
    /// The engine.
    pub engine: L::Engine,
    state: tempfile::TempDir,
    rootfs: PathBuf,
    guest_dir: PathBuf,
}

/// A machine with its guest at the other end of the line.
pub struct Talk {
    /// Its id.
    pub id: MachineId,
    port: BufReader<GuestPort>,
    /// Its end.
    pub exited: ExitWatch,
}

impl Talk {
    /// Wraps a machine whose process 1 is the suite's guest.
    #[must_use]
    pub fn with(machine: Machine) -> Self {
        Self {
            id: machine.id,
            port: BufReader::new(machine.port),
            exited: machine.exited,
        }
    }

    /// Says a line and hears the answer.
    ///
    /// # Panics
    /// When the link ends first.
    pub async fn ask(&mut self, line: &str) -> String {
        self.say(line).await;
        let mut answer = String::new();
        let count = self.port.read_line(&mut answer).await.expect("the link can be read");
        assert!(count > 0, "the link ended instead of an answer to {line:?}");
        answer.trim_end().to_owned()
    }

    /// Says a line that has no answer.
    ///
    /// # Panics
    /// When the link cannot be written.
    pub async fn say(&mut self, line: &str) {
        let port = self.port.get_mut();
        port.write_all(format!("{line}\n").as_bytes())
            .await
            .expect("the link takes a line");
        port.flush().await.expect("the link takes a line");
    }

    /// Whether the link ends without another byte.
    pub async fn is_ended(&mut self) -> bool {
        let mut rest = String::new();
        matches!(self.port.read_line(&mut rest).await, Ok(0))
    }
}

/// Ceilings of the suite's machines: small, and no default.
pub(crate) const LIMITS: Limits = Limits {
    cpu: 1,
    memory_mb: 256,
    disk_mb: 64,
    pids: 64,
};

/// Makes a test of each case for the [`Lab`] given.
#[macro_export]
macro_rules! conformance_tests {
    ($lab:ty) => {
        $crate::conformance_tests!(@each $lab:
            a_probe_succeeds_and_leaves_nothing
            a_booted_machine_answers_and_has_no_network
            a_snapshot_and_its_restore_carry_memory_and_disk
            two_restores_and_their_parent_are_independent
            what_machines_share_cannot_be_changed_from_inside
            a_restore_takes_its_own_memory_limit
            the_guest_sees_its_limits
            a_full_disk_is_told_and_the_machine_goes_on
            processes_without_end_leave_the_machine_answering
            memory_without_end_ends_the_machine_only
            stop_leaves_nothing_and_may_be_repeated
            stop_after_a_start_that_was_cut_short_leaves_nothing
            a_failed_start_leaves_nothing_after_stop
            a_new_engine_adopts_what_the_old_one_left
            what_has_ended_is_not_adopted
            a_killed_machine_is_noticed
            an_exit_of_process_one_is_noticed
            the_inventory_is_complete
            twenty_restores_at_once_all_answer
            usage_grows_with_work
            a_paused_machine_stands_still_and_goes_on
            a_paused_machine_is_adopted_and_stopped
            a_machine_that_is_not_there_is_named
            a_server_killed_while_it_starts_machines_loses_none
        );

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = "the server that another test kills"]
        async fn victim() {
            $crate::conformance::victim::<$lab>().await;
        }
    };
    (@each $lab:ty: $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::conformance::cases::$case::<$lab>().await;
            }
        )*
    };
}
