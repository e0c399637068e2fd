//! A plain child process behind the engine trait; for tests only, never selectable in a release build.
//!
//! It keeps what runs from changing this host (mounts, process numbers and host name of its own, every write into memory that
//! goes with it), so that tests may let an agent do what it likes. It is no wall against anybody who wants through.
//!
//! Where it is honest about being a fake: a snapshot holds nothing, and [`restore`](Engine::restore) starts process 1 anew on
//! the plain rootfs ([`Capabilities::memory_snapshot`] is false). A guest sees the host's memory and processors.

mod world;

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use atoll_engine::{
    AGENT_PATH, Capabilities, Engine, EngineError, ExitWatch, Machine, MachineExit, MachinePlan, Usage,
};
use atoll_host::{
    Cgroup, CgroupLimits, Cgroups, FifoPort, ProcessId, ProcessWatch, Program, disk, make_fifos, private,
};
use atoll_model::{Isolation, MachineId};
use serde::{Deserialize, Serialize};

const NAME: &str = "fake";
/// In a snapshot's folder, so that only a snapshot of this engine is taken for one.
const SNAPSHOT_FILE: &str = "fake-snapshot.json";

/// Makes machines of plain child processes.
#[derive(Debug)]
pub struct Fake {
    capabilities: Capabilities,
    machines: PathBuf,
    cgroups: Cgroups,
}

/// What a later engine object must know to take a machine over.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Record {
    /// The parent of process 1: it lives exactly as long as that does.
    process: ProcessId,
}

impl Fake {
    /// Machines live below `state_dir/machines`, which is made when missing. Needs root.
    ///
    /// # Errors
    /// [`EngineError::Host`] when the folder or the control groups cannot be made.
    pub fn new(state_dir: &Path) -> Result<Self, EngineError> {
        let machines = state_dir.join("machines");
        private::folder(&machines).map_err(host("making the machines folder"))?;
        let owner = state_dir.canonicalize().map_err(host("resolving the state folder"))?;
        let cgroups = Cgroups::open("atoll-fake", &owner).map_err(host("opening control groups"))?;
        Ok(Self {
            capabilities: Capabilities {
                isolation: Isolation::None,
                version: "fake 1".to_owned(),
                snapshot_running: true,
                memory_snapshot: false,
                pause: cgroups.can_freeze(),
                disk_limit: true,
                warnings: vec!["the fake engine isolates nothing; it is for tests".to_owned()],
            },
            cgroups,
            machines,
        })
    }

    fn folder(&self, id: &MachineId) -> PathBuf {
        self.machines.join(id.as_str())
    }

    fn group(&self, id: &MachineId) -> Cgroup {
        self.cgroups.group(id.as_str())
    }

    fn record(&self, id: &MachineId) -> Result<Option<Record>, EngineError> {
        match fs::read(self.folder(id).join("machine.json")) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
        .map_err(host("reading a machine's record"))
    }

    /// Has no await: a caller that goes away finds it not begun or done.
    fn start(&self, plan: &MachinePlan) -> Result<Machine, EngineError> {
        let folder = self.folder(&plan.id);
        let group = self.group(&plan.id);
        let prepare = || {
            fs::create_dir(&folder)?;
            make_fifos(&folder)?;
            group.create(&CgroupLimits {
                memory_bytes: Some(plan.limits.memory_mb << 20),
                tasks: Some(u64::from(plan.limits.pids)),
                cpu_millis: Some(u64::from(plan.limits.cpu) * 1000),
            })?;
            world::around(plan, &folder)
        };
        let world = prepare().map_err(host(format!("preparing machine {}", plan.id)))?;
        let spawn = || {
            let mut agent = Program::new(AGENT_PATH).map_err(io::Error::other)?;
            let (input, output) = FifoPort::guest_end(&folder)?;
            agent.stdin(input).stdout(output).env("PATH", world::PATH);
            agent.cgroup(&group)?.enclosure(world).outlive_us();
            let process = ProcessId::of(agent.spawn().map_err(io::Error::other)?.pid())?;
            let process = process.ok_or_else(|| io::Error::other("it ended as soon as it had started"))?;
            private::write_whole(&folder.join("machine.json"), &serde_json::to_vec(&Record { process })?)?;
            Ok(process)
        };
        let process = spawn().map_err(host(format!("starting machine {}", plan.id)))?;
        self.machine(&plan.id, process)?.ok_or_else(|| EngineError::Failed {
            program: "agent",
            action: "start",
            machine: plan.id.clone(),
            detail: "it ended as soon as it had started".to_owned(),
        })
    }

    /// The machine whose outermost process is `process`; `None` when that has ended.
    fn machine(&self, id: &MachineId, process: ProcessId) -> Result<Option<Machine>, EngineError> {
        let watch = || process.watch().map_err(host("watching a machine's process"));
        let (Some(for_port), Some(for_exit)) = (watch()?, watch()?) else {
            return Ok(None);
        };
        let port = FifoPort::open(&self.folder(id)).map_err(host("opening the link"))?;
        Ok(Some(Machine {
            id: id.clone(),
            port: Box::new(port.until(for_port)),
            exited: exit_watch(for_exit),
        }))
    }
}

fn exit_watch(watch: ProcessWatch) -> ExitWatch {
    Box::pin(async move {
        let detail = match watch.ended().await {
            Ok(()) => "its process ended".to_owned(),
            Err(error) => format!("its process can no longer be watched: {error}"),
        };
        // The memory limit kills one process of the guest here, not the machine.
        MachineExit { oom: false, detail }
    })
}

fn host(context: impl Into<String>) -> impl FnOnce(io::Error) -> EngineError {
    let context = context.into();
    move |source| EngineError::Host { context, source }
}

/// No group, no machine.
fn of_group(machine: &MachineId, context: &'static str) -> impl FnOnce(io::Error) -> EngineError {
    let machine = machine.clone();
    move |error| match error.kind() {
        io::ErrorKind::NotFound => EngineError::NoMachine(machine),
        _ => host(context)(error),
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // A group that is left is empty or has machines in it, and is found again by the next one.
        drop(self.cgroups.close());
    }
}

#[async_trait]
impl Engine for Fake {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Nothing to find out: what it needs was made in [`Fake::new`].
    async fn probe(&self) -> Result<Capabilities, EngineError> {
        Ok(self.capabilities.clone())
    }

    async fn boot(&self, plan: MachinePlan) -> Result<Machine, EngineError> {
        self.start(&plan)
    }

    async fn snapshot(&self, machine: &MachineId, to: PathBuf) -> Result<(), EngineError> {
        let record = self
            .record(machine)?
            .ok_or_else(|| EngineError::NoMachine(machine.clone()))?;
        let text = serde_json::to_vec(&record).map_err(io::Error::from);
        let written = text.and_then(|text| fs::write(to.join(SNAPSHOT_FILE), text));
        written.map_err(host("writing a snapshot"))
    }

    async fn restore(&self, plan: MachinePlan, snapshot: PathBuf) -> Result<Machine, EngineError> {
        fs::metadata(snapshot.join(SNAPSHOT_FILE)).map_err(host("reading a snapshot"))?;
        self.start(&plan)
    }

    async fn stop(&self, machine: &MachineId) -> Result<(), EngineError> {
        self.group(machine)
            .destroy()
            .await
            .map_err(host("ending a machine's processes"))?;
        // Its mounts were its processes' own and went with them.
        match fs::remove_dir_all(self.folder(machine)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(host("removing a machine's folder")(error)),
            _ => Ok(()),
        }
    }

    async fn adopt(&self, machine: &MachineId) -> Result<Option<Machine>, EngineError> {
        let Some(record) = self.record(machine)? else {
            return Ok(None);
        };
        self.machine(machine, record.process)
    }

    async fn inventory(&self) -> Result<Vec<MachineId>, EngineError> {
        let list = || -> io::Result<BTreeSet<String>> {
            let mut names = self.cgroups.names()?;
            for entry in fs::read_dir(&self.machines)? {
                names.extend(entry?.file_name().into_string());
            }
            Ok(names)
        };
        let names = list().map_err(host("listing machines"))?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    async fn pause(&self, machine: &MachineId) -> Result<(), EngineError> {
        let frozen = self.group(machine).freeze().await;
        frozen.map_err(of_group(machine, "freezing a machine's processes"))
    }

    async fn resume(&self, machine: &MachineId) -> Result<(), EngineError> {
        let thawed = self.group(machine).thaw();
        thawed.map_err(of_group(machine, "letting a machine's processes go on"))
    }

    async fn usage(&self, machine: &MachineId) -> Result<Usage, EngineError> {
        let record = self
            .record(machine)?
            .ok_or_else(|| EngineError::NoMachine(machine.clone()))?;
        let used = self
            .group(machine)
            .usage()
            .map_err(host("reading a machine's control group"))?;
        let disk = world::disk_seen_by(record.process.pid, &self.folder(machine));
        let space = disk::space(&disk).map_err(host("measuring a machine's disk"))?;
        Ok(Usage {
            cpu_micros: used.cpu_micros,
            memory_bytes: used.memory_bytes,
            memory_peak_bytes: used.memory_peak_bytes,
            disk_bytes: space.total - space.free,
            host_processes: used.processes,
        })
    }
}
