//! A rootfs to a snapshot: boot, thaw, warm, store, and prove by restoring it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use atoll_engine::{Engine, GUEST_DIR, Machine, MachinePlan};
use atoll_guest_link::{GuestError, GuestLink};
use atoll_model::{BuildId, Limits, MachineId, TemplateName};
use atoll_protocol::types::{ThawRequest, WarmRequest};
use serde::{Deserialize, Serialize};

use crate::{
    Digest, Phase, Progress, Recipe, TemplateError, catalog::Entry, places::Places, progress::PhaseLines,
    recipe::WarmUp,
};

/// Part of every bake's digest: raise it when the same parts would be baked differently than before.
const FORMAT: &str = "atoll-bake-2";
/// How long a booted machine's agent may take to answer for the first time.
const AGENT_PATIENCE: Duration = Duration::from_secs(60);

/// What a bake was made of and for. `bake.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BakeRecord {
    pub(crate) template: TemplateName,
    pub(crate) rootfs: Digest,
    pub(crate) guest: Digest,
    pub(crate) engine: String,
    pub(crate) engine_version: String,
    pub(crate) limits: Limits,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) languages: Vec<String>,
    /// For engines whose snapshots carry no memory.
    #[serde(default)]
    pub(crate) warm_ups: Vec<WarmUp>,
    /// Bytes of the rootfs and of the snapshot.
    pub(crate) bytes: u64,
    /// Seconds since 1970.
    pub(crate) baked_at: u64,
}

/// A template that sandboxes can be restored from. Its files are never changed; a newer bake lies beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BakedTemplate {
    /// Which template.
    pub name: TemplateName,
    /// Which bake of it. A sandbox's record keeps this, so that it can be found again when another is in force.
    pub digest: Digest,
    /// The root directory, for [`MachinePlan::rootfs`].
    pub rootfs: PathBuf,
    /// The agent and its drivers, for [`MachinePlan::guest_dir`].
    pub guest_dir: PathBuf,
    /// What the engine stored, for [`Engine::restore`].
    pub snapshot: PathBuf,
    /// What a sandbox gets when its creator names nothing else.
    pub limits: Limits,
    /// Environment of every command and context; a sandbox's own goes on top. For [`ThawRequest::env`].
    pub env: BTreeMap<String, String>,
    /// Languages that have contexts.
    pub languages: Vec<String>,
    /// What the bake warmed; see [`warm_again`].
    pub warm_ups: Vec<WarmUp>,
    /// The engine that baked it, and that alone can restore it.
    pub engine: String,
    /// That engine's version at the time.
    pub engine_version: String,
    /// Bytes of rootfs and snapshot on the host.
    pub bytes: u64,
}

impl BakedTemplate {
    pub(crate) fn of(record: BakeRecord, digest: Digest, places: &Places) -> Self {
        Self {
            rootfs: places.rootfs(&record.template, &record.rootfs),
            guest_dir: places.guest(&record.guest),
            snapshot: places.bake(&record.template, &digest).join("snapshot"),
            name: record.template,
            digest,
            limits: record.limits,
            env: record.env,
            languages: record.languages,
            warm_ups: record.warm_ups,
            engine: record.engine,
            engine_version: record.engine_version,
            bytes: record.bytes,
        }
    }
}

/// Warms one interpreter.
async fn warm(link: &GuestLink, warm: &WarmUp) -> Result<(), GuestError> {
    let request = WarmRequest {
        language: warm.language.clone(),
        argv: warm.argv.clone(),
        user: warm.user.clone(),
        code: warm.code.clone(),
        timeout_ms: u64::from(warm.timeout_seconds) * 1000,
    };
    link.warm(&request).await
}

/// Warms what a bake warmed in a machine that was restored by an engine whose snapshots carry no memory
/// ([`Capabilities::memory_snapshot`](atoll_engine::Capabilities::memory_snapshot)). The machine was thawed before.
///
/// # Errors
/// [`GuestError`]; the machine is of no use then.
pub async fn warm_again(warm_ups: &[WarmUp], link: &GuestLink) -> Result<(), GuestError> {
    for one in warm_ups {
        warm(link, one).await?;
    }
    Ok(())
}

/// What is to be baked.
pub(crate) struct Bake<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) rootfs: PathBuf,
    pub(crate) guest_dir: PathBuf,
    pub(crate) engine: &'a Arc<dyn Engine>,
}

/// The digest of a bake: any of its parts changes, it is baked anew.
pub(crate) fn digest(recipe: &Recipe, rootfs: &Digest, guest: &Digest, engine: &dyn Engine) -> Digest {
    let recipe = recipe.bake_digest();
    Digest::of([
        FORMAT.as_bytes(),
        recipe.as_str().as_bytes(),
        rootfs.as_str().as_bytes(),
        guest.as_str().as_bytes(),
        engine.name().as_bytes(),
        engine.capabilities().version.as_bytes(),
    ])
}

impl Bake<'_> {
    /// Makes the snapshot in the empty folder `to`.
    pub(crate) async fn run(&self, to: &Path, progress: &Progress) -> Result<(), TemplateError> {
        let machine = MachineId::bake(BuildId::random());
        let stored = progress.unless_cancelled(self.store(&machine, to, progress)).await;
        self.stop(&machine).await?;
        stored?;
        let machine = MachineId::bake(BuildId::random());
        let proven = progress.unless_cancelled(self.prove(&machine, to, progress)).await;
        self.stop(&machine).await?;
        proven
    }

    async fn store(&self, id: &MachineId, to: &Path, progress: &Progress) -> Result<(), TemplateError> {
        progress.phase(Phase::Boot);
        let mount_point = self.rootfs.join(GUEST_DIR.trim_start_matches('/'));
        std::fs::create_dir_all(&mount_point).map_err(TemplateError::host("make", &mount_point))?;
        let booted = self.engine.boot(self.plan(id)).await;
        let machine = booted.map_err(TemplateError::engine("boot the template"))?;
        let link = self.thawed(machine).await?;
        let mut lines = progress.phase(Phase::Warm);
        for warm in &self.entry.recipe.warm_ups {
            self.warm(&link, warm, &mut lines).await?;
        }
        // No call may be open while the snapshot is taken.
        drop(link);
        progress.phase(Phase::Snapshot);
        let stored = self.engine.snapshot(id, to.to_owned()).await;
        stored.map_err(TemplateError::engine("take the snapshot"))
    }

    async fn prove(&self, id: &MachineId, snapshot: &Path, progress: &Progress) -> Result<(), TemplateError> {
        let mut lines = progress.phase(Phase::Test);
        let restored = self.engine.restore(self.plan(id), snapshot.to_owned()).await;
        let machine = restored.map_err(TemplateError::engine("restore the snapshot that it just took"))?;
        let link = self.thawed(machine).await?;
        if !self.engine.capabilities().memory_snapshot {
            let warmed = warm_again(&self.entry.recipe.warm_ups, &link).await;
            warmed.map_err(TemplateError::guest("warming the restored machine"))?;
        }
        self.entry.smoke.run(&link, &mut lines).await
    }

    async fn stop(&self, id: &MachineId) -> Result<(), TemplateError> {
        let stopped = self.engine.stop(id).await;
        stopped.map_err(TemplateError::engine("stop the template's machine"))
    }

    fn plan(&self, id: &MachineId) -> MachinePlan {
        MachinePlan {
            id: id.clone(),
            rootfs: self.rootfs.clone(),
            guest_dir: self.guest_dir.clone(),
            limits: self.entry.recipe.size.into(),
            hostname: self.entry.recipe.name.to_string(),
        }
    }

    /// Attaches to a machine's agent and thaws it.
    async fn thawed(&self, machine: Machine) -> Result<GuestLink, TemplateError> {
        let link = GuestLink::attach(machine.port).await?;
        let mut entropy = [0_u8; 32];
        getrandom::fill(&mut entropy).map_err(TemplateError::Random)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let recipe = &self.entry.recipe;
        let thaw = ThawRequest {
            unix_nanos: now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)),
            entropy: hex::encode(entropy),
            hostname: recipe.name.to_string(),
            env: recipe.env.clone(),
            cpu: recipe.size.cpu,
            memory_mb: recipe.size.memory_mb,
            pids: recipe.size.pids,
        };
        let answered = tokio::time::timeout(AGENT_PATIENCE, link.thaw(&thaw)).await;
        let answered = answered.unwrap_or(Err(GuestError::Silent { after: AGENT_PATIENCE }));
        answered.map_err(TemplateError::guest("thawing the template's machine"))?;
        Ok(link)
    }

    async fn warm(&self, link: &GuestLink, wanted: &WarmUp, lines: &mut PhaseLines<'_>) -> Result<(), TemplateError> {
        lines.line(&wanted.language);
        let step = format!("warming {}", wanted.language);
        warm(link, wanted).await.map_err(TemplateError::guest(step))
    }
}
