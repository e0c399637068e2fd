//! From a plan to a machine whose agent answered: one engine call and one round trip to the guest.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use atoll_engine::{Machine, MachineExit, MachinePlan};
use atoll_guest_link::{GuestError, GuestLink};
use atoll_model::{ErrorCode, MachineId, Refusal};
use atoll_protocol::types::ThawRequest;
use atoll_store::SandboxRow;
use atoll_template::{BakedTemplate, WarmUp, warm_again};
use time::OffsetDateTime;
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::{Control, actor::Running, refusal};

/// The first and the longest pause between tries to reach a machine.
const REACH_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Where a new machine comes from.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The template's root directory.
    pub(crate) rootfs: PathBuf,
    /// The agent and the drivers.
    pub(crate) guest_dir: PathBuf,
    /// The baked snapshot.
    pub(crate) snapshot: PathBuf,
    /// The template's environment; the sandbox's own goes on top.
    pub(crate) env: BTreeMap<String, String>,
    /// What to warm where a snapshot carries no memory.
    pub(crate) warm_ups: Vec<WarmUp>,
}

impl Plan {
    pub(crate) fn of(template: &BakedTemplate) -> Self {
        Self {
            rootfs: template.rootfs.clone(),
            guest_dir: template.guest_dir.clone(),
            snapshot: template.snapshot.clone(),
            env: template.env.clone(),
            warm_ups: template.warm_ups.clone(),
        }
    }
}

/// Restores a machine and thaws it, by `deadline`; at most half of a create's time may go into waiting for a turn. Whoever drops
/// this, or gets an error, sweeps the machine's id.
pub(crate) async fn boot(
    control: &Control,
    row: &SandboxRow,
    plan: Plan,
    deadline: Instant,
) -> Result<Running, Refusal> {
    let limit = control.inner.config.create_timeout;
    let turn = tokio::time::timeout_at(deadline - limit / 2, control.inner.booting.acquire()).await;
    let Ok(Ok(_turn)) = turn else {
        return Err(refusal::no_capacity(
            "too many sandboxes are being created on this host; nothing was created",
        ));
    };
    let booted = tokio::time::timeout_at(deadline, restore_and_thaw(control, row, plan)).await;
    booted.unwrap_or_else(|_| {
        Err(Refusal::new(
            ErrorCode::Internal,
            format!(
                "the sandbox was not ready after {} seconds; nothing is left of it",
                limit.as_secs()
            ),
        ))
    })
}

async fn restore_and_thaw(control: &Control, row: &SandboxRow, plan: Plan) -> Result<Running, Refusal> {
    let hostname = hostname(row);
    let machine = MachinePlan {
        id: MachineId::from(row.id),
        rootfs: plan.rootfs,
        guest_dir: plan.guest_dir,
        limits: row.spec.limits,
        hostname: hostname.clone(),
    };
    let restored = control.inner.engine.restore(machine, plan.snapshot).await;
    let machine = restored.map_err(|error| refusal::of_engine("a machine was restored", &error))?;
    let Machine { port, mut exited, .. } = machine;
    let link = GuestLink::attach(port)
        .await
        .map_err(|error| refusal::internal("the agent can't be reached", &error))?;
    let thaw = thaw(row, hostname, plan.env)?;
    let ready = async {
        link.thaw(&thaw).await?;
        if !control.inner.engine.capabilities().memory_snapshot {
            warm_again(&plan.warm_ups, &link).await?;
        }
        Ok::<(), GuestError>(())
    };
    tokio::select! {
        ready = ready => ready.map_err(|error| refusal::internal("the sandbox's agent did not start", &error))?,
        exit = &mut exited => return Err(ended_early(&exit)),
    };
    Ok(Running { link, exited })
}

/// What came of reaching for a machine that runs already.
pub(crate) enum Reached {
    Running(Running),
    /// The machine is no more.
    Gone,
    /// It may live, and neither engine nor agent gave an answer for as long as is tried; the detail is for the log.
    Silent(String),
}

/// Takes over a machine that runs already, with a new epoch on its link. Tries for
/// [`reach_timeout`](crate::ControlConfig::reach_timeout): an error may pass, and a host that is short of everything is slow.
pub(crate) async fn reach(control: &Control, machine: &MachineId) -> Reached {
    let give_up = Instant::now() + control.inner.config.reach_timeout;
    let (mut pause, longest) = REACH_PAUSE;
    loop {
        match adopt(control, machine, give_up).await {
            Ok(Some(running)) => return Reached::Running(running),
            Ok(None) => return Reached::Gone,
            Err(refusal) if Instant::now() + pause >= give_up => return Reached::Silent(refusal.message),
            Err(refusal) => tracing::warn!(%machine, %refusal, "a machine is not reached yet"),
        }
        tokio::time::sleep(pause).await;
        pause = longest.min(pause * 2);
    }
}

/// One try. The engine is awaited until `give_up`, since its call must not be broken off and made again; the agent for as long as
/// a ping may take. `None` when the machine no longer lives.
async fn adopt(control: &Control, machine: &MachineId, give_up: Instant) -> Result<Option<Running>, Refusal> {
    let slow = || Refusal::new(ErrorCode::Internal, "the engine did not answer");
    let adopted = tokio::time::timeout_at(give_up, control.inner.engine.adopt(machine))
        .await
        .map_err(|_| slow())?;
    let adopted = adopted.map_err(|error| refusal::of_engine("a machine was adopted", &error))?;
    let Some(Machine { port, exited, .. }) = adopted else {
        return Ok(None);
    };
    let unreachable = |error: &dyn std::error::Error| refusal::internal("the agent can't be reached", error);
    let patience = control.inner.config.agent_timeout;
    let attached = tokio::time::timeout(patience, GuestLink::attach(port)).await;
    let link = attached
        .map_err(|elapsed| unreachable(&elapsed))?
        .map_err(|error| unreachable(&error))?;
    match link.ping(patience).await {
        Ok(()) => Ok(Some(Running { link, exited })),
        Err(error) => Err(unreachable(&error)),
    }
}

/// What makes the restored machine a new one: its time, its randomness, its name.
fn thaw(row: &SandboxRow, hostname: String, mut env: BTreeMap<String, String>) -> Result<ThawRequest, Refusal> {
    let mut entropy = Zeroizing::new([0u8; 32]);
    getrandom::fill(entropy.as_mut_slice()).map_err(|error| refusal::internal("no entropy for a sandbox", &error))?;
    env.insert("ATOLL_SANDBOX_ID".to_owned(), row.id.to_string());
    env.extend(row.spec.env.iter().map(|(name, value)| (name.clone(), value.clone())));
    Ok(ThawRequest {
        unix_nanos: u64::try_from(OffsetDateTime::now_utc().unix_timestamp_nanos()).unwrap_or_default(),
        entropy: hex::encode(entropy.as_slice()),
        hostname,
        env,
        cpu: row.spec.limits.cpu,
        memory_mb: row.spec.limits.memory_mb,
        pids: row.spec.limits.pids,
    })
}

/// The host name: short, and telling one sandbox from another.
fn hostname(row: &SandboxRow) -> String {
    let id = row.id.to_string();
    format!("sandbox-{}", &id[..8])
}

fn ended_early(exit: &MachineExit) -> Refusal {
    let error = std::io::Error::other(exit.detail.clone());
    refusal::internal("the sandbox's machine ended while it started", &error)
}
