//! Looking into a sandbox without using it, and at the host.

use atoll_engine::Usage;
use atoll_model::{MachineId, Refusal, SandboxId, Scope};
use atoll_protocol::types::Stats;
use tokio::sync::watch;

use crate::{
    Caller, Control, Health, LogStream, MetricsView, VersionView,
    guest::{Counts, gone},
    live::Status,
    log::LogReader,
    refusal,
};

/// What a sandbox's commands and cells print.
#[derive(Debug)]
pub struct LogFollow {
    reader: LogReader,
    status: watch::Receiver<Status>,
}

impl LogFollow {
    /// The next text; `None` once the sandbox is no more. A reader that is too slow is told how much it missed. Cancel-safe.
    pub async fn next(&mut self) -> Option<String> {
        tokio::select! {
            biased;
            text = self.reader.next() => text,
            _ = gone(&mut self.status) => None,
        }
    }
}

impl Control {
    /// The last output of the sandbox's commands and cells, 64 KiB of each stream at most, since the server knows it.
    ///
    /// # Errors
    /// `NotFound`, `SandboxGone`.
    pub async fn log_tail(&self, caller: &Caller, id: SandboxId, stream: LogStream) -> Result<String, Refusal> {
        caller.require(Scope::ReadOnly)?;
        match self.inner.live.get(caller.workspace, id) {
            Some(live) => Ok(live.log.tail(stream)),
            None => Err(self.why_not_live(caller, id).await?),
        }
    }

    /// The last output, and then all that comes.
    ///
    /// # Errors
    /// `NotFound`, `SandboxGone`.
    pub async fn log_follow(&self, caller: &Caller, id: SandboxId, stream: LogStream) -> Result<LogFollow, Refusal> {
        caller.require(Scope::ReadOnly)?;
        match self.inner.live.get(caller.workspace, id) {
            Some(live) => Ok(LogFollow {
                reader: live.log.follow(stream),
                status: live.status.clone(),
            }),
            None => Err(self.why_not_live(caller, id).await?),
        }
    }

    /// What the host holds for the sandbox.
    ///
    /// # Errors
    /// `NotFound`, `SandboxGone`.
    pub async fn sandbox_usage(&self, caller: &Caller, id: SandboxId) -> Result<Usage, Refusal> {
        caller.require(Scope::ReadOnly)?;
        let Some(live) = self.inner.live.get(caller.workspace, id) else {
            return Err(self.why_not_live(caller, id).await?);
        };
        let usage = self.inner.engine.usage(&MachineId::from(id)).await;
        usage.map_err(|error| match live.status.borrow().gone() {
            Some(reason) => refusal::gone(reason),
            None => refusal::of_engine("a machine was measured", &error),
        })
    }

    /// What the agent says of the sandbox.
    ///
    /// # Errors
    /// `NotFound`, `NotRunning`, `SandboxGone`, `AgentLost`.
    pub async fn sandbox_stats(&self, caller: &Caller, id: SandboxId) -> Result<Stats, Refusal> {
        let lent = self.lend(caller, id, Scope::ReadOnly, Counts::AsLook).await?;
        lent.prompt(lent.link.stats()).await
    }

    /// What runs here.
    #[must_use]
    pub fn version(&self) -> VersionView {
        let capabilities = self.inner.engine.capabilities();
        VersionView {
            version: env!("CARGO_PKG_VERSION"),
            engine: self.inner.engine.name(),
            engine_version: capabilities.version.clone(),
            isolation: capabilities.isolation,
        }
    }

    /// Whether sandboxes can be created now: the store answers, and at least one template is baked.
    pub async fn health(&self) -> Health {
        let reason = if self.inner.stopping.is_cancelled() {
            Some("the server is shutting down".to_owned())
        } else if let Err(error) = self.inner.store.check().await {
            tracing::error!(error = refusal::chain(&error), "the store does not answer");
            Some("the server's records can't be read".to_owned())
        } else if !self.any_template_ready() {
            Some("no template is built yet; `atoll template ls` shows how far they are".to_owned())
        } else {
            None
        };
        Health {
            ready: reason.is_none(),
            reason,
        }
    }

    /// All counters.
    #[must_use]
    pub fn metrics(&self) -> MetricsView {
        let live = self.inner.live.all();
        let most = self.inner.config.max_calls_per_sandbox;
        let open: usize = live.iter().map(|live| most - live.calls.available_permits()).sum();
        self.inner.metrics.view(self.inner.live.len() as u64, open as u64)
    }
}
