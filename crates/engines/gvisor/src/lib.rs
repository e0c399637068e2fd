//! Isolation by gVisor: each machine is one `runsc` sandbox, a kernel of its own in user space.

use std::path::PathBuf;

use async_trait::async_trait;
use atoll_engine::{Capabilities, Engine, EngineError, Machine, MachinePlan, Usage};
use atoll_model::MachineId;

/// What the engine needs to know.
#[derive(Debug, Clone)]
pub struct GvisorConfig {
    /// Holds `machines/` and `runsc/`; made when missing. One server owns it.
    pub state_dir: PathBuf,
    /// The `runsc` program; the first one on PATH when absent.
    pub runsc: Option<PathBuf>,
}

/// Makes machines with `runsc`.
#[derive(Debug)]
pub struct Gvisor {
    capabilities: Capabilities,
}

impl Gvisor {
    /// Finds `runsc` and its version. Nothing is started; see [`Engine::probe`].
    ///
    /// # Errors
    /// [`EngineError::Unusable`] when there is no `runsc`, [`EngineError::Host`] when the state folder cannot be made.
    pub async fn new(_config: GvisorConfig) -> Result<Self, EngineError> {
        Err(unfinished())
    }
}

fn unfinished() -> EngineError {
    EngineError::Unusable {
        engine: "gvisor",
        reason: "this build has no gVisor support yet".to_owned(),
    }
}

#[async_trait]
impl Engine for Gvisor {
    fn name(&self) -> &'static str {
        "gvisor"
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
