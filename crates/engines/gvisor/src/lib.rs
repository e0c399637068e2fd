//! Isolation by gVisor: each machine is one `runsc` sandbox, a kernel of its own in user space.
//!
//! What a machine has on the host is all in two places, so that it can be found and removed whatever was interrupted:
//!
//! ```text
//! STATE/machines/<id>/      config.json (OCI bundle), meminfo, in.fifo, out.fifo, runsc.log, r/ (runsc's own state),
//!                           disk.img and disk/ (what the guest writes), pid, machine.json (written last: it was ready)
//! cgroup atoll-<state>/<id> every process of it, from its first instruction on
//! ```
//!
//! Read next: `start.rs` (boot and restore), `sweep.rs` (stop and inventory).

mod bundle;
mod disks;
mod folder;
mod probe;
mod runsc;
mod short_path;
mod start;
mod sweep;
mod turns;

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use atoll_engine::{Capabilities, Engine, EngineError, Machine, MachinePlan, Usage};
use atoll_host::{Cgroups, CpuSet, disk, private};
use atoll_model::{Isolation, MachineId};

use crate::{
    disks::Disks,
    folder::{MachineFolder, host},
    runsc::Runsc,
    short_path::ShortPath,
    start::Origin,
    turns::Turns,
};

/// How this engine calls itself.
const NAME: &str = "gvisor";
/// How long `runsc checkpoint` may take: it writes all of the guest's memory to the disk.
const SNAPSHOT_DEADLINE: Duration = Duration::from_secs(300);

/// What the engine needs to know.
#[derive(Debug, Clone)]
pub struct GvisorConfig {
    /// Holds `machines/` and `disks/`; made when missing. One server owns it.
    pub state_dir: PathBuf,
    /// The `runsc` program; the first one on PATH when absent.
    pub runsc: Option<PathBuf>,
}

/// Makes machines with `runsc`.
#[derive(Debug)]
pub struct Gvisor {
    capabilities: Capabilities,
    shared: Arc<Shared>,
}

/// What jobs on blocking threads need, too.
#[derive(Debug)]
struct Shared {
    runsc: Runsc,
    machines: PathBuf,
    /// The same folder under a path that leaves room for the name of a socket.
    runsc_roots: ShortPath,
    cgroups: Cgroups,
    disks: Disks,
    turns: Turns,
    host_cpus: u32,
}

impl Gvisor {
    /// Finds `runsc` and what this build of it can do. No machine is started; see [`Engine::probe`].
    ///
    /// # Errors
    /// [`EngineError::Unusable`] when there is no `runsc`, it is too old, or the host has no control groups;
    /// [`EngineError::Host`] when the state folder cannot be made.
    pub async fn new(config: GvisorConfig) -> Result<Self, EngineError> {
        let runsc = Runsc::find(config.runsc).await?;
        private::folder(&config.state_dir.join("machines")).map_err(host("making the machines folder"))?;
        let state = config
            .state_dir
            .canonicalize()
            .map_err(host("resolving the state folder"))?;
        let machines = state.join("machines");
        let cgroups = Cgroups::open("atoll", &state).map_err(|error| unusable(format!("control groups: {error}")))?;
        let disks = Disks::open(state.join("disks"), runsc.bounds_overlay())?;
        let host_cpus = CpuSet::available().map_err(host("counting processors"))?;
        let mut warnings = runsc.warnings();
        warnings.extend(disks.warning());
        let capabilities = Capabilities {
            isolation: Isolation::Kernel,
            version: format!("runsc {}", runsc.version()),
            snapshot_running: true,
            memory_snapshot: true,
            pause: cgroups.can_freeze(),
            disk_limit: disks.are_bounded(),
            warnings,
        };
        let shared = Shared {
            runsc,
            runsc_roots: ShortPath::to(&machines).map_err(host("naming the machines folder shortly"))?,
            machines,
            cgroups,
            disks,
            turns: Turns::default(),
            host_cpus,
        };
        Ok(Self {
            capabilities,
            shared: Arc::new(shared),
        })
    }
}

impl Shared {
    fn folder(&self, id: &MachineId) -> MachineFolder {
        MachineFolder::new(
            self.machines.join(id.as_str()),
            &self.runsc_roots.path().join(id.as_str()),
        )
    }
}

impl Drop for Shared {
    /// What stands for this state folder outside of it goes, unless machines live on.
    fn drop(&mut self) {
        if let Err(error) = self.cgroups.close() {
            tracing::warn!(%error, "the control group could not be removed");
        }
    }
}

#[async_trait]
impl Engine for Gvisor {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn probe(&self) -> Result<Capabilities, EngineError> {
        probe::answer(&self.shared).await?;
        Ok(self.capabilities.clone())
    }

    async fn boot(&self, plan: MachinePlan) -> Result<Machine, EngineError> {
        start::machine(&self.shared, plan, Origin::Cold).await
    }

    async fn snapshot(&self, machine: &MachineId, to: PathBuf) -> Result<(), EngineError> {
        let folder = self.shared.folder(machine);
        folder
            .record()
            .await?
            .ok_or_else(|| EngineError::NoMachine(machine.clone()))?;
        let mut checkpoint = self.shared.runsc.command(&folder, None)?;
        checkpoint.args([
            "checkpoint",
            "-leave-running",
            "-compression",
            "none",
            "-exclude-committed-zero-pages",
        ]);
        checkpoint.arg("-image-path").arg(&to).arg(runsc::CONTAINER);
        let finished = checkpoint.run(SNAPSHOT_DEADLINE, |_| {}).await;
        self.shared.runsc.check(finished, "checkpoint", machine, &folder)
    }

    async fn restore(&self, plan: MachinePlan, snapshot: PathBuf) -> Result<Machine, EngineError> {
        start::machine(&self.shared, plan, Origin::Snapshot(snapshot)).await
    }

    async fn stop(&self, machine: &MachineId) -> Result<(), EngineError> {
        sweep::machine(&self.shared, machine).await
    }

    async fn adopt(&self, machine: &MachineId) -> Result<Option<Machine>, EngineError> {
        start::adopt(&self.shared, machine).await
    }

    async fn inventory(&self) -> Result<Vec<MachineId>, EngineError> {
        sweep::inventory(&self.shared)
    }

    /// Every process of it stands still, gVisor's kernel and file server included.
    async fn pause(&self, machine: &MachineId) -> Result<(), EngineError> {
        let frozen = self.shared.cgroups.group(machine.as_str()).freeze().await;
        frozen.map_err(of_group(machine, "freezing a machine's processes"))
    }

    async fn resume(&self, machine: &MachineId) -> Result<(), EngineError> {
        let thawed = self.shared.cgroups.group(machine.as_str()).thaw();
        thawed.map_err(of_group(machine, "letting a machine's processes go on"))
    }

    async fn usage(&self, machine: &MachineId) -> Result<Usage, EngineError> {
        let used = self.shared.cgroups.group(machine.as_str()).usage();
        let used = used.map_err(of_group(machine, "reading a machine's control group"))?;
        let space = disk::space(&self.shared.folder(machine).disk()).map_err(host("measuring a machine's disk"))?;
        Ok(Usage {
            cpu_micros: used.cpu_micros,
            memory_bytes: used.memory_bytes,
            memory_peak_bytes: used.memory_peak_bytes,
            disk_bytes: if self.shared.disks.are_images() {
                space.total - space.free
            } else {
                0
            },
            host_processes: used.processes,
        })
    }
}

/// No group, no machine.
fn of_group(machine: &MachineId, context: &'static str) -> impl FnOnce(std::io::Error) -> EngineError {
    let machine = machine.clone();
    move |error| match error.kind() {
        std::io::ErrorKind::NotFound => EngineError::NoMachine(machine),
        _ => host(context)(error),
    }
}

fn unusable(reason: String) -> EngineError {
    EngineError::Unusable { engine: NAME, reason }
}
