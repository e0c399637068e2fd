//! A sandbox's lease: how long it may be idle.

use atoll_model::{Refusal, SandboxId, Scope};
use tokio::sync::{oneshot, watch};

use crate::{
    Caller, Control, LifecyclePatch, LifecycleView,
    actor::Message,
    check::check_ttl,
    guest::gone,
    live::{Live, Status},
    refusal,
};

impl Control {
    /// The lease. Looking at it is no use of the sandbox.
    ///
    /// # Errors
    /// `NotFound`, `SandboxGone`.
    pub async fn lifecycle_get(&self, caller: &Caller, id: SandboxId) -> Result<LifecycleView, Refusal> {
        caller.require(Scope::ReadOnly)?;
        let Some(live) = self.inner.live.get(caller.workspace, id) else {
            return Err(self.why_not_live(caller, id).await?);
        };
        let status = live.status.borrow();
        if let Some(reason) = status.gone() {
            return Err(refusal::gone(reason));
        }
        Ok(LifecycleView {
            ttl_seconds: status.row.spec.ttl_seconds,
            persistent: status.row.spec.persistent,
            idle_seconds: live.idle.idle_for().as_secs(),
        })
    }

    /// Changes the lease. An answer of "yes" holds: a sandbox whose lease was extended does not expire by the old one.
    ///
    /// # Errors
    /// `InvalidRequest`, `NotFound`, `SandboxGone`, `NotRunning` while it is being created.
    pub async fn lifecycle_patch(
        &self,
        caller: &Caller,
        id: SandboxId,
        patch: LifecyclePatch,
    ) -> Result<LifecycleView, Refusal> {
        caller.require(Scope::Full)?;
        patch.ttl_seconds.map_or(Ok(()), check_ttl)?;
        let Some(live) = self.inner.live.get(caller.workspace, id) else {
            return Err(self.why_not_live(caller, id).await?);
        };
        let (answer, answered) = oneshot::channel();
        let asked = async {
            let message = Message::Lease { patch, answer };
            live.mailbox.send(message).await.map_err(|_| live.ownerless())?;
            match answered.await {
                Ok(changed) => changed,
                // The actor went on to the sandbox's end, which the other arm tells, or the server shuts down.
                Err(_) => Err(live.ownerless()),
            }
        };
        let mut status = live.status.clone();
        tokio::select! {
            biased;
            changed = asked => match status.borrow().gone() {
                Some(reason) if changed.is_err() => Err(refusal::gone(reason)),
                _ => changed,
            },
            reason = gone(&mut status) => Err(refusal::gone(reason)),
        }
    }
}

/// Changes the lease in the store, then for the clock and everybody. Only the actor calls this.
pub(crate) async fn change(
    control: &Control,
    live: &Live,
    status: &watch::Sender<Status>,
    patch: LifecyclePatch,
) -> Result<LifecycleView, Refusal> {
    let mut spec = status.borrow().row.spec.clone();
    spec.ttl_seconds = patch.ttl_seconds.unwrap_or(spec.ttl_seconds);
    spec.persistent = patch.persistent.unwrap_or(spec.persistent);
    let written = control.inner.store.sandbox_spec_update(live.id, &spec).await;
    written.map_err(|error| refusal::of_store(&error))?;
    // Only this task lets the clock expire, and it is here: the new limit holds.
    live.idle.set_limit(spec.ttl_seconds, spec.persistent);
    let view = LifecycleView {
        ttl_seconds: spec.ttl_seconds,
        persistent: spec.persistent,
        idle_seconds: live.idle.idle_for().as_secs(),
    };
    status.send_modify(|status| status.row.spec = spec);
    Ok(view)
}
