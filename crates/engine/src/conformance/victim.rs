//! A server to be killed: the test program itself, started again to do nothing but restore machines.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use atoll_model::{MachineId, SandboxId};
use futures_util::future::join_all;

use super::{LIMITS, Lab};
use crate::{Engine, MachinePlan};

const STATE: &str = "ATOLL_CONFORMANCE_STATE";
const SNAPSHOT: &str = "ATOLL_CONFORMANCE_SNAPSHOT";
const GUEST: &str = "ATOLL_CONFORMANCE_GUEST";
/// More than it lives to make.
const MACHINES: usize = 40;
/// How many it makes at the same time.
const AT_ONCE: usize = 4;

/// Starts it. `snapshot` and `guest_dir` as in [`Engine::restore`], the rootfs is `state/rootfs`.
pub(crate) fn start(state: &Path, snapshot: &Path, guest_dir: &Path) -> Child {
    let program = std::env::current_exe().expect("the test program has a path");
    #[expect(clippy::disallowed_methods, reason = "the test program starts itself")]
    let mut command = Command::new(program);
    command
        .args(["--ignored", "--exact", "victim"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.env(STATE, state).env(SNAPSHOT, snapshot).env(GUEST, guest_dir);
    command.spawn().expect("the test program starts again")
}

/// What it does, as an ignored test that only [`start`] runs.
pub async fn victim<L: Lab>() {
    let from_environment = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .expect("only the suite starts this")
    };
    let (state, snapshot) = (from_environment(STATE), from_environment(SNAPSHOT));
    let guest_dir = from_environment(GUEST);
    let engine = L::engine(&state).await;
    let mut kept = Vec::new();
    while kept.len() < MACHINES {
        let restores = (0..AT_ONCE).map(|_| {
            let plan = MachinePlan {
                id: MachineId::from(SandboxId::random()),
                rootfs: state.join("rootfs"),
                guest_dir: guest_dir.clone(),
                limits: LIMITS,
                hostname: "lab".to_owned(),
            };
            engine.restore(plan, snapshot.clone())
        });
        kept.extend(join_all(restores).await);
    }
    std::future::pending().await
}
