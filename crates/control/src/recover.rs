//! The start after a stop or a crash: reads intent (the records) and fact (what the engine finds on the host), and acts.
//!
//! No sandbox that was answered for is lost, and none that was not is left: a create is answered only after its record says
//! `Running`, so a record that says `Creating` was never answered for and is swept; one that says `Running` is adopted with a
//! new epoch on its link, or failed if its machine is no more. Machines without a record are removed, bakes included.
//!
//! Each record gets an actor, which does all of this for its sandbox: there is no second way in which a sandbox is reached or ended.

use std::{collections::HashSet, sync::Arc};

use atoll_model::{ErrorCode, GoneReason, MachineId, Refusal, State};
use atoll_store::SandboxRow;
use futures_util::{StreamExt, stream};

use crate::{Control, actor::Begin, ending::Ending, refusal};

/// Machines that are looked at side by side.
const SIDE_BY_SIDE: usize = 8;

/// What a start found; for the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Sandboxes that go on.
    pub adopted: usize,
    /// Sandboxes that go on if their agents can be reached, which is still tried.
    pub late: usize,
    /// Sandboxes whose machine was no more.
    pub died: usize,
    /// Creates and deletes that a crash had left half done.
    pub swept: usize,
    /// Machines that no record knew.
    pub strays: usize,
    /// Machines that could not be removed yet; the log says why. What has a record is tried again until it is gone, and the
    /// others at the next start.
    pub left: usize,
}

enum Fate {
    Adopted,
    Late,
    Died,
    Swept,
    Left,
}

impl Control {
    /// Brings host and records in line.
    pub(crate) async fn recover(&self) -> Result<Recovered, Refusal> {
        let rows = self
            .inner
            .store
            .sandbox_list_all(&[State::Creating, State::Running, State::Paused, State::Stopping])
            .await;
        let rows = rows.map_err(|error| refusal::of_store(&error))?;
        let inventory = self.inner.engine.inventory().await;
        let inventory = inventory.map_err(|error| refusal::of_engine("machines were listed", &error))?;
        let recorded: HashSet<MachineId> = rows.iter().map(|row| MachineId::from(row.id)).collect();

        let mut found = Recovered::default();
        let mut fates = stream::iter(rows)
            .map(|row| self.recover_one(row))
            .buffer_unordered(SIDE_BY_SIDE);
        while let Some(fate) = fates.next().await {
            match fate {
                Fate::Adopted => found.adopted += 1,
                Fate::Late => found.late += 1,
                Fate::Died => found.died += 1,
                Fate::Swept => found.swept += 1,
                Fate::Left => found.left += 1,
            }
        }
        for stray in inventory.into_iter().filter(|machine| !recorded.contains(machine)) {
            tracing::warn!(machine = %stray, "a machine that no record knows is removed");
            match self.remove(&stray).await {
                true => found.strays += 1,
                false => found.left += 1,
            }
        }
        Ok(found)
    }

    /// Removes bakes and root directories that are neither in force nor below any live sandbox. Only while nothing is
    /// created, so that no create holds one that no record names yet.
    pub(crate) async fn collect_templates(&self) -> Result<(), Refusal> {
        let rows = self
            .inner
            .store
            .sandbox_list_all(&[State::Running, State::Paused, State::Stopping])
            .await;
        let rows = rows.map_err(|error| refusal::of_store(&error))?;
        let pinned = rows.iter().filter_map(|row| row.origin.bake.parse().ok()).collect();
        if let Err(error) = self.inner.templates.collect(&pinned).await {
            tracing::error!(error = refusal::chain(&error), "old bakes were not all removed");
        }
        Ok(())
    }

    /// Gives a record its actor, and waits for what it finds first: one that takes its time must not keep all others from being
    /// served.
    async fn recover_one(&self, row: SandboxRow) -> Fate {
        let begin = match row.state {
            State::Running | State::Paused => Begin::Reach,
            State::Stopping => Begin::End(Ending::Stop(row.gone.unwrap_or(GoneReason::Deleted))),
            _ => Begin::End(Ending::Create(Refusal::new(
                ErrorCode::Internal,
                "the server stopped during the create",
            ))),
        };
        let reaching = matches!(begin, Begin::Reach);
        let admitted = self.inner.admission.adopt(row.spec.limits.disk_mb);
        let actor = self.actor(row, admitted);
        let live = Arc::clone(&actor.live);
        self.inner.tasks.spawn(actor.own(begin));
        let mut status = live.status.clone();
        let found = status.wait_for(|status| status.link.is_some() || status.swept || status.refusal.is_some());
        let found = tokio::time::timeout(self.inner.config.agent_timeout, found).await;
        let swept = match &found {
            Ok(Ok(status)) if status.link.is_some() => return Fate::Adopted,
            Ok(Ok(status)) => status.swept,
            Ok(Err(_)) | Err(_) => false,
        };
        match (reaching, swept) {
            (true, true) => Fate::Died,
            (true, false) if found.is_err() => Fate::Late,
            (false, true) => Fate::Swept,
            (_, false) => Fate::Left,
        }
    }

    /// Whether nothing of the machine is left. One that resists must not keep all others from being served.
    async fn remove(&self, machine: &MachineId) -> bool {
        let removed = self.inner.engine.stop(machine).await;
        if let Err(error) = &removed {
            tracing::error!(%machine, error = refusal::chain(error), "a machine was not removed");
        }
        removed.is_ok()
    }
}
