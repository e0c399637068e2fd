//! A test's engine, plans and clean end.

use std::path::{Path, PathBuf};

use atoll_model::{MachineId, SandboxId};

use super::{Bench, LIMITS, Lab, MachinePlan, Talk, guest_program, traces};
use crate::Engine;

impl<L: Lab> Bench<L> {
    /// An engine on a folder of its own, and an empty rootfs.
    pub(crate) async fn new() -> Self {
        let state = tempfile::Builder::new()
            .prefix("atoll-lab")
            .tempdir()
            .expect("a temporary folder");
        let rootfs = state.path().join("rootfs");
        for folder in ["proc", "dev", "sys", "tmp", "opt/atoll"] {
            std::fs::create_dir_all(rootfs.join(folder)).expect("the rootfs is made");
        }
        Self {
            engine: L::engine(state.path()).await,
            state,
            rootfs,
            guest_dir: guest_program::folder(),
        }
    }

    /// A plan for a new machine.
    pub(crate) fn plan(&self) -> MachinePlan {
        MachinePlan {
            id: MachineId::from(SandboxId::random()),
            rootfs: self.rootfs.clone(),
            guest_dir: self.guest_dir.clone(),
            limits: LIMITS,
            hostname: "lab".to_owned(),
        }
    }

    /// A booted machine.
    pub(crate) async fn boot(&self) -> Talk {
        Talk::with(self.engine.boot(self.plan()).await.expect("a machine boots"))
    }

    /// A snapshot of a machine with `word` in its memory and in a file; the machine is stopped.
    pub(crate) async fn snapshot_with(&self, word: &str) -> PathBuf {
        let mut parent = self.boot().await;
        assert_eq!(parent.ask(&format!("set word {word}")).await, "ok");
        assert_eq!(parent.ask(&format!("write /word {word}")).await, "ok");
        let snapshot = self.snapshot(&parent.id).await;
        self.stop(&parent.id).await;
        snapshot
    }

    /// A snapshot of a machine, which goes on.
    pub(crate) async fn snapshot(&self, machine: &MachineId) -> PathBuf {
        let folder = self.state.path().join(format!("snapshot-{}", SandboxId::random()));
        std::fs::create_dir(&folder).expect("the snapshot's folder is made");
        self.engine
            .snapshot(machine, folder.clone())
            .await
            .expect("a snapshot is taken");
        folder
    }

    /// A machine restored from `snapshot`.
    pub(crate) async fn restore(&self, snapshot: &Path) -> Talk {
        let restored = self.engine.restore(self.plan(), snapshot.to_owned()).await;
        Talk::with(restored.expect("a snapshot is restored"))
    }

    /// Stops a machine and looks for what is left of it.
    pub(crate) async fn stop(&self, machine: &MachineId) {
        self.engine.stop(machine).await.expect("a machine stops");
        let left = self.traces(machine);
        assert!(left.is_empty(), "left after stop: {left:#?}");
    }

    /// The engine's folder; the rootfs is in it.
    pub(crate) fn state(&self) -> &Path {
        self.state.path()
    }

    /// What is left of a machine.
    pub(crate) fn traces(&self, machine: &MachineId) -> Vec<String> {
        traces(self.state.path(), machine)
    }

    /// Another engine object on the same folder, as after a restart of the server.
    pub(crate) async fn engine_after_restart(&self) -> L::Engine {
        L::engine(self.state.path()).await
    }

    /// Stops everything; the last line of every case.
    pub(crate) async fn finish(self) {
        for machine in self.engine.inventory().await.expect("machines are listed") {
            self.stop(&machine).await;
        }
    }
}

impl<L: Lab> Drop for Bench<L> {
    /// A failed case has not come to `finish`: at least no process of it stays.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let names = std::fs::read_dir(self.state.path().join("machines"))
            .into_iter()
            .flatten()
            .filter_map(Result::ok);
        for machine in names.filter_map(|entry| entry.file_name().to_str()?.parse::<MachineId>().ok()) {
            super::traces::kill_all(&machine);
        }
    }
}
