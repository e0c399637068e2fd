//! The start after a stop or a crash: reads intent (the records) and fact (what the engine finds on the host), and acts.
//!
//! No sandbox that was answered for is lost, and none that was not is left: a create is answered only after its record says
//! `Running`, so a record that says `Creating` was never answered for and is swept; one that says `Running` is adopted with a
//! new epoch on its link, or failed if its machine is no more. Machines without a record are removed, bakes included.
//!
//! No actor runs yet, so this may write states.

use std::collections::HashSet;

use atoll_model::{Event, GoneReason, MachineId, Refusal, State};
use atoll_store::{SandboxChange, SandboxRow};
use futures_util::{StreamExt, stream};
use time::OffsetDateTime;

use crate::{Control, boot, refusal};

/// Machines that are looked at side by side.
const SIDE_BY_SIDE: usize = 8;

/// What a start found; for the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Sandboxes that go on.
    pub adopted: usize,
    /// Sandboxes whose machine was no more.
    pub died: usize,
    /// Creates and deletes that a crash had left half done.
    pub swept: usize,
    /// Machines that no record knew.
    pub strays: usize,
    /// Machines that could not be removed; the log says why, and the next start tries again.
    pub left: usize,
}

enum Fate {
    Adopted,
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
            match fate? {
                Fate::Adopted => found.adopted += 1,
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

    async fn recover_one(&self, row: SandboxRow) -> Result<Fate, Refusal> {
        let machine = MachineId::from(row.id);
        match row.state {
            State::Running | State::Paused => match boot::adopt(self, &machine).await {
                Ok(Some(running)) => {
                    let actor = self.actor(row, self.inner.admission.adopt());
                    actor.publish_link(&running.link);
                    self.inner.tasks.spawn(actor.serve(running));
                    Ok(Fate::Adopted)
                }
                Ok(None) => self.bury(&row, &machine).await,
                Err(refusal) => {
                    tracing::warn!(sandbox = %row.id, %refusal, "a sandbox's machine can't be adopted");
                    self.bury(&row, &machine).await
                }
            },
            State::Stopping => {
                if !self.remove(&machine).await {
                    return Ok(Fate::Left);
                }
                self.settle_record(&row, Event::Stopped, row.gone.unwrap_or(GoneReason::Deleted))
                    .await?;
                Ok(Fate::Swept)
            }
            _ => {
                if !self.remove(&machine).await {
                    return Ok(Fate::Left);
                }
                self.settle_record(&row, Event::CreateFailed, GoneReason::CreateFailed)
                    .await?;
                let forgotten = self.inner.store.idempotency_forget(row.id).await;
                forgotten.map_err(|error| refusal::of_store(&error))?;
                Ok(Fate::Swept)
            }
        }
    }

    async fn bury(&self, row: &SandboxRow, machine: &MachineId) -> Result<Fate, Refusal> {
        if !self.remove(machine).await {
            return Ok(Fate::Left);
        }
        self.settle_record(row, Event::MachineDied, GoneReason::MachineDied)
            .await?;
        let payload = serde_json::json!({ "reason": GoneReason::MachineDied });
        let now = OffsetDateTime::now_utc();
        if let Err(error) = self.inner.store.event_insert(row.id, now, "vm.died", &payload).await {
            tracing::error!(error = refusal::chain(&error), "an event was not kept");
        }
        Ok(Fate::Died)
    }

    /// Whether nothing of the machine is left. One that resists must not keep all others from being served.
    async fn remove(&self, machine: &MachineId) -> bool {
        let removed = self.inner.engine.stop(machine).await;
        if let Err(error) = &removed {
            tracing::error!(%machine, error = refusal::chain(error), "a machine was not removed");
        }
        removed.is_ok()
    }

    async fn settle_record(&self, row: &SandboxRow, event: Event, reason: GoneReason) -> Result<(), Refusal> {
        let to = row
            .state
            .next(event)
            .map_err(|error| refusal::internal("a sandbox can't move on", &error))?;
        let mut change = SandboxChange::new(row.state, to);
        change.gone = Some(reason);
        change.ended_at = Some(OffsetDateTime::now_utc());
        let moved = self.inner.store.sandbox_state_update(row.id, &change).await;
        moved.map(|_| ()).map_err(|error| refusal::of_store(&error))
    }
}
