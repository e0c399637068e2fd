//! Boot, restore and adopt.
//!
//! A machine is made in three steps, each a value that the next one takes: the folder and group ([`lay_out`]), the `runsc`
//! that makes it ([`launch`]), the machine that runs ([`take_over`]). Whatever is dropped on the way is left for `stop`.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use atoll_engine::{AGENT_PATH, EngineError, ExitWatch, Machine, MachineExit, MachinePlan};
use atoll_host::{
    Cgroup, CgroupLimits, Child, CpuSet, Enclosure, FifoPort, MountAction, ProcessId, ProcessWatch, make_fifos,
};
use atoll_model::MachineId;

use crate::{
    Shared, bundle,
    disks::Disks,
    folder::{MachineFolder, Record, host},
    runsc::CONTAINER,
};

/// What gVisor itself may need beside the guest's memory, in bytes: its kernel's heap and file server (30 MiB when idle, more
/// with many open files).
const OWN_MEMORY: u64 = 128 << 20;
/// What it and the host may need in addition for each process of the guest, in bytes. Measured: 0.29 MiB for each of 512 that
/// sleep, but a machine of 128 Python processes that all fork at once was ended with 0.375 MiB for each.
const MEMORY_PER_TASK: u64 = 1536 << 10;
/// Threads of the host that gVisor uses for itself.
const OWN_TASKS: u64 = 256;
/// Threads of the host for each process of the guest, beside those that run on its processors at the same time: measured 2.05
/// for sleeping ones. Running out ends the machine, so this is not the guest's bound (that is `GUEST_PIDS_GROUP`) but the host's.
const TASKS_PER_TASK: u64 = 3;

/// Where a machine's first state comes from.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// Nowhere: process 1 starts anew.
    Cold,
    /// The files of a snapshot.
    Snapshot(PathBuf),
}

impl Origin {
    fn action(&self) -> &'static str {
        match self {
            Self::Cold => "run",
            Self::Snapshot(_) => "restore",
        }
    }
}

/// Makes a machine whose process 1 is the agent.
pub(crate) async fn machine(shared: &Arc<Shared>, plan: MachinePlan, origin: Origin) -> Result<Machine, EngineError> {
    machine_running(shared, plan, origin, vec![AGENT_PATH.to_owned()]).await
}

/// Makes a machine whose process 1 is `argv`.
pub(crate) async fn machine_running(
    shared: &Arc<Shared>,
    plan: MachinePlan,
    origin: Origin,
    argv: Vec<String>,
) -> Result<Machine, EngineError> {
    let blank = shared.disks.prepare(plan.limits.disk_mb).await?;
    let turn = shared.turns.take(&plan.id).await;
    let (id, cpu, action) = (plan.id.clone(), plan.limits.cpu, origin.action());
    let on_thread = shared.clone();
    let launching = tokio::task::spawn_blocking(move || {
        let folder = lay_out(&on_thread, &plan, &argv, blank.as_deref())?;
        let child = launch(&on_thread, &plan, &origin, &folder)?;
        // The child comes first: if nobody takes this, it is killed before others have their turn.
        Ok::<_, EngineError>((child, folder, turn))
    });
    let (child, folder, _turn) = launching
        .await
        .map_err(|error| host("starting runsc")(io::Error::other(error)))??;
    // Declared last and so dropped first: whoever has the next turn finds it killed.
    let mut child = child;
    let finished = child.finish().await;
    shared.runsc.check(finished, action, &id, &folder)?;
    take_over(shared, id, &folder, cpu)
}

/// Makes the folder and the control group, with everything in them that `runsc` needs.
fn lay_out(
    shared: &Shared,
    plan: &MachinePlan,
    argv: &[String],
    blank: Option<&Path>,
) -> Result<MachineFolder, EngineError> {
    let folder = shared.folder(&plan.id);
    std::fs::create_dir(folder.path()).map_err(host(format!("making the folder of machine {}", plan.id)))?;
    let make = || {
        make_fifos(folder.path())?;
        let kib = plan.limits.memory_mb << 10;
        std::fs::write(
            folder.meminfo(),
            format!("MemTotal: {kib} kB\nMemFree: {kib} kB\nMemAvailable: {kib} kB\n"),
        )?;
        let spec = bundle::spec(plan, argv).map_err(io::Error::other)?;
        std::fs::write(folder.config(), serde_json::to_vec(&spec)?)?;
        Disks::attach(blank, &folder)
    };
    make().map_err(host(format!("filling the folder of machine {}", plan.id)))?;
    let guest_tasks = u64::from(plan.limits.pids);
    let limits = CgroupLimits {
        memory_bytes: Some((plan.limits.memory_mb << 20) + OWN_MEMORY + guest_tasks * MEMORY_PER_TASK),
        tasks: Some(OWN_TASKS + guest_tasks * (TASKS_PER_TASK + u64::from(plan.limits.cpu))),
        // Only once it runs: loading a snapshot is our work, and its share would be used up before the guest's first cell.
        cpu_millis: None,
    };
    let group = shared.cgroups.group(plan.id.as_str());
    group
        .create(&limits)
        .map_err(host(format!("making the control group of machine {}", plan.id)))?;
    Ok(folder)
}

/// Starts the `runsc` that makes the machine and then ends.
fn launch(shared: &Shared, plan: &MachinePlan, origin: &Origin, folder: &MachineFolder) -> Result<Child, EngineError> {
    let mut runsc = shared
        .runsc
        .command(folder, shared.disks.told_to_runsc(plan.limits.disk_mb))?;
    runsc
        .arg(origin.action())
        .arg("-detach")
        .arg("-pid-file")
        .arg(folder.pid());
    runsc.arg("-bundle").arg(folder.path());
    if let Origin::Snapshot(snapshot) = origin {
        runsc.arg("-image-path").arg(snapshot);
    }
    runsc.arg(CONTAINER);
    let mut prepare = || {
        let (input, output) = FifoPort::guest_end(folder.path())?;
        runsc.stdin(input).stdout(output);
        runsc.cgroup(&shared.cgroups.group(plan.id.as_str()))?;
        runsc.enclosure(host_view(plan, folder)?);
        if plan.limits.cpu < shared.host_cpus {
            runsc.cpus(CpuSet::choose(plan.limits.cpu, next_cpu())?);
        }
        Ok(())
    };
    prepare().map_err(host(format!("preparing runsc for machine {}", plan.id)))?;
    runsc
        .spawn()
        .map_err(|error| host("starting runsc")(io::Error::other(error)))
}

/// The host as gVisor sees it.
///
/// `runsc` takes the guest's total memory from its own control group or else from the host. The group's limit has our headroom
/// in it, so it is shown a host that has exactly the guest's memory. The size of `/dev/shm` follows from it, too.
///
/// What machines share is read-only for the host's kernel as well: root inside may mount the guest folder anew without
/// `ro`, and gVisor's file server would then write to it, for every other sandbox to run.
fn host_view(plan: &MachinePlan, folder: &MachineFolder) -> io::Result<Enclosure> {
    let mut view = Enclosure::new();
    view.mount(MountAction::Bind {
        from: &folder.meminfo(),
        at: Path::new("/proc/meminfo"),
        read_only: true,
    })?;
    let mut shared = vec![&plan.guest_dir];
    // The probe's is the host's own root, below which the machine's own folder must be writable.
    if plan.rootfs != Path::new("/") {
        shared.push(&plan.rootfs);
    }
    for from in shared {
        view.mount(MountAction::Bind {
            from,
            at: from,
            read_only: true,
        })?;
    }
    Ok(view)
}

/// Spreads machines that see fewer processors than the host has.
fn next_cpu() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Turns what `runsc` has left running into a machine.
fn take_over(shared: &Shared, id: MachineId, folder: &MachineFolder, cpu: u32) -> Result<Machine, EngineError> {
    let group = shared.cgroups.group(id.as_str());
    let gone = || EngineError::Failed {
        program: "runsc",
        action: "start",
        machine: id.clone(),
        detail: "the machine ended as soon as it had started".to_owned(),
    };
    let sandbox = read_pid(&folder.pid())
        .and_then(ProcessId::of)
        .map_err(host("finding the machine's process"))?
        .ok_or_else(gone)?;
    let watch = || {
        sandbox
            .watch()
            .map_err(host("watching the machine's process"))?
            .ok_or_else(gone)
    };
    let (for_port, for_exit) = (watch()?, watch()?);
    let finish = || {
        let quota = CgroupLimits {
            cpu_millis: Some(u64::from(cpu) * 1000),
            ..CgroupLimits::default()
        };
        group.limit(&quota)?;
        if cpu < shared.host_cpus {
            unbind(&group, shared.host_cpus)?;
        }
        folder.write_record(&Record { sandbox })?;
        FifoPort::open(folder.path())
    };
    let port = finish().map_err(host(format!("taking over machine {id}")))?;
    Ok(Machine {
        id,
        port: Box::new(port.until(for_port)),
        exited: exit_watch(for_exit, group),
    })
}

fn read_pid(path: &Path) -> io::Result<i32> {
    std::fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)
}

/// How many processors the guest sees was decided at its start; from here on the quota alone limits it, on any processor.
fn unbind(group: &Cgroup, host_cpus: u32) -> io::Result<()> {
    let all = CpuSet::choose(host_cpus, 0)?;
    for process in group.processes()? {
        match all.bind_threads_of(process) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

fn exit_watch(watch: ProcessWatch, group: Cgroup) -> ExitWatch {
    Box::pin(async move {
        let lost = watch.ended().await.err();
        // The group may be gone by now: then somebody stopped the machine.
        let oom = group.oom_kills().is_ok_and(|kills| kills > 0);
        let detail = match lost {
            Some(error) => format!("its process can no longer be watched: {error}"),
            None if oom => "the host's memory limit ended it".to_owned(),
            None => "its process ended".to_owned(),
        };
        MachineExit { oom, detail }
    })
}

/// Takes over what an earlier process of this server has left running.
pub(crate) async fn adopt(shared: &Shared, id: &MachineId) -> Result<Option<Machine>, EngineError> {
    let _turn = shared.turns.take(id).await;
    let folder = shared.folder(id);
    let Some(record) = folder.record().await? else {
        return Ok(None);
    };
    let watch = || record.sandbox.watch().map_err(host("watching the machine's process"));
    let (Some(for_port), Some(for_exit)) = (watch()?, watch()?) else {
        return Ok(None);
    };
    let port = FifoPort::open(folder.path()).map_err(host("opening the link"))?;
    Ok(Some(Machine {
        id: id.clone(),
        port: Box::new(port.until(for_port)),
        exited: exit_watch(for_exit, shared.cgroups.group(id.as_str())),
    }))
}
