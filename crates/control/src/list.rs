//! Looking at sandboxes.

use std::collections::BTreeMap;

use atoll_model::{GoneReason, Refusal, SandboxId, Scope, State};

use crate::{Caller, Control, SandboxFilter, SandboxView, refusal, view};

/// The most sandboxes that one list holds.
const MAX_LISTED: u32 = 10_000;

impl Control {
    /// The workspace's sandboxes, newest first. Deleted ones are hidden, and so are creates that failed.
    ///
    /// # Errors
    /// The store does not work.
    pub async fn sandbox_list(&self, caller: &Caller, filter: &SandboxFilter) -> Result<Vec<SandboxView>, Refusal> {
        caller.require(Scope::ReadOnly)?;
        let mut states = vec![
            State::Creating,
            State::Running,
            State::Paused,
            State::Hibernated,
            State::Stopping,
        ];
        if filter.include_failed {
            states.push(State::Failed);
        }
        let rows = self
            .inner
            .store
            .sandbox_list(caller.workspace, &states, MAX_LISTED)
            .await;
        let views = rows
            .map_err(|error| refusal::of_store(&error))?
            .into_iter()
            .map(view::sandbox);
        let shown = |view: &SandboxView| {
            view.gone != Some(GoneReason::CreateFailed)
                && holds(&view.labels, &filter.labels)
                && holds(&view.metadata, &filter.metadata)
        };
        Ok(views.filter(shown).collect())
    }

    /// One sandbox. One that failed is still found, one that was deleted is not.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn sandbox_get(&self, caller: &Caller, id: SandboxId) -> Result<SandboxView, Refusal> {
        caller.require(Scope::ReadOnly)?;
        let row = self.inner.store.sandbox_get(caller.workspace, id).await;
        let row = row.map_err(|error| refusal::of_store(&error))?;
        let row = row.filter(|row| row.state != State::Deleted);
        row.map(view::sandbox).ok_or_else(|| Refusal::not_found("sandbox"))
    }
}

/// Whether `all` has every entry of `wanted`.
fn holds(all: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(name, value)| all.get(name) == Some(value))
}
