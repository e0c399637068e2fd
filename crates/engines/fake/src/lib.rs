//! A plain child process behind the engine trait; for tests only, never selectable in a release build.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use atoll_engine::{Capabilities, Engine, EngineError, Machine, MachinePlan, Usage};
use atoll_model::MachineId;

/// Makes machines of plain child processes.
#[derive(Debug)]
pub struct Fake {
    capabilities: Capabilities,
}

impl Fake {
    /// Machines live below `state_dir/machines`, which is made when missing.
    ///
    /// # Errors
    /// [`EngineError::Host`] when the folder cannot be made.
    pub fn new(_state_dir: &Path) -> Result<Self, EngineError> {
        Err(unfinished())
    }
}

fn unfinished() -> EngineError {
    EngineError::Unusable {
        engine: "fake",
        reason: "this build has no fake engine yet".to_owned(),
    }
}

#[async_trait]
impl Engine for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn probe(&self) -> Result<Capabilities, EngineError> {
        Err(unfinished())
    }

    async fn boot(&self, _plan: MachinePlan) -> Result<Machine, EngineError> {
        Err(unfinished())
    }

    async fn snapshot(&self, _machine: &MachineId, _to: PathBuf) -> Result<(), EngineError> {
        Err(unfinished())
    }

    async fn restore(&self, _plan: MachinePlan, _snapshot: PathBuf) -> Result<Machine, EngineError> {
        Err(unfinished())
    }

    async fn stop(&self, _machine: &MachineId) -> Result<(), EngineError> {
        Err(unfinished())
    }

    async fn adopt(&self, _machine: &MachineId) -> Result<Option<Machine>, EngineError> {
        Err(unfinished())
    }

    async fn inventory(&self) -> Result<Vec<MachineId>, EngineError> {
        Err(unfinished())
    }

    async fn usage(&self, _machine: &MachineId) -> Result<Usage, EngineError> {
        Err(unfinished())
    }
}
