//! Ending a sandbox.

use atoll_model::{GoneReason, Refusal, SandboxId, Scope, State};

use crate::{Caller, Control, actor::Message, live::ownerless, refusal};

impl Control {
    /// Ends a sandbox in whatever state it is and answers when nothing of it is left. Calls that are open on it end at once
    /// as `SandboxGone`. Twice at the same time is one delete; a sandbox that failed is swept already, which is fine, too.
    /// The delete goes on when the caller goes away.
    ///
    /// # Errors
    /// `NotFound`, also for one that was deleted before; `Internal` while its machine can't be removed or its end can't be
    /// recorded (both are tried again until they are).
    pub async fn sandbox_delete(&self, caller: &Caller, id: SandboxId) -> Result<(), Refusal> {
        caller.require(Scope::Full)?;
        let Some(live) = self.inner.live.get(caller.workspace, id) else {
            return self.delete_unlive(caller, id).await;
        };
        if live.status.borrow().gone().is_none() {
            tokio::select! {
                // The mailbox being closed means that the end is under way.
                _ = live.mailbox.send(Message::Stop(GoneReason::Deleted)) => {}
                result = live.ended() => return result,
            }
        }
        live.ended().await
    }

    async fn delete_unlive(&self, caller: &Caller, id: SandboxId) -> Result<(), Refusal> {
        let row = self.inner.store.sandbox_get(caller.workspace, id).await;
        match row.map_err(|error| refusal::of_store(&error))?.map(|row| row.state) {
            None | Some(State::Deleted) => Err(Refusal::not_found("sandbox")),
            Some(State::Failed) => Ok(()),
            Some(_) => Err(ownerless(&self.inner.stopping)),
        }
    }
}
