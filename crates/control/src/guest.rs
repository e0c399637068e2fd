//! Lending the way to a sandbox's agent: the checks before a call, and what ends it from outside.
//!
//! A call holds a [`Lent`]: a clone of the link, a use of the idle clock and one of the sandbox's places for calls. The actor
//! is not in the path of the data; it only publishes its sandbox's end, which ends every call at once.

use std::{sync::Arc, time::Duration};

use atoll_guest_link::{GuestError, GuestLink};
use atoll_model::{ErrorCode, GoneReason, Refusal, SandboxId, Scope, State};
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::{
    Caller, Control,
    idle::InUse,
    live::{Live, Status, ownerless},
    metrics::bump,
    refusal,
};

/// How long a call whose link died waits for the actor to say whether the machine died. Only the wording hangs on it.
const VERDICT: Duration = Duration::from_secs(2);

/// Whether a call counts as use of the sandbox (pandastack-v1 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counts {
    /// It uses the sandbox, for as long as it is open.
    AsUse,
    /// It only looks.
    AsLook,
}

/// A sandbox's agent, for one call.
#[derive(Debug)]
pub(crate) struct Lent {
    pub(crate) link: GuestLink,
    pub(crate) control: Control,
    pub(crate) live: Arc<Live>,
    status: watch::Receiver<Status>,
    _in_use: Option<InUse>,
    _place: OwnedSemaphorePermit,
}

impl Control {
    /// Checks that the caller may, that the sandbox is its own and runs, and that there is a place for one more call.
    pub(crate) async fn lend(
        &self,
        caller: &Caller,
        id: SandboxId,
        needed: Scope,
        counts: Counts,
    ) -> Result<Lent, Refusal> {
        caller.require(needed)?;
        let Some(live) = self.inner.live.get(caller.workspace, id) else {
            return Err(self.why_not_live(caller, id).await?);
        };
        // The use begins before the state is read: what is read as running can't expire any more.
        let in_use = match counts {
            Counts::AsUse => Some(live.idle.begin().ok_or_else(|| refusal::gone(GoneReason::Expired))?),
            Counts::AsLook => None,
        };
        let link = usable_link(&live.status.borrow())?;
        let place = Arc::clone(&live.calls).try_acquire_owned().map_err(|_| {
            Refusal::new(
                ErrorCode::TooMany,
                format!(
                    "{} calls are open on this sandbox, which is the most it takes; wait for one to end",
                    self.inner.config.max_calls_per_sandbox
                ),
            )
            .retry_after(1)
        })?;
        Ok(Lent {
            link,
            control: self.clone(),
            status: live.status.clone(),
            live,
            _in_use: in_use,
            _place: place,
        })
    }

    /// What a sandbox that has no actor is.
    pub(crate) async fn why_not_live(&self, caller: &Caller, id: SandboxId) -> Result<Refusal, Refusal> {
        let row = self.inner.store.sandbox_get(caller.workspace, id).await;
        Ok(match row.map_err(|error| refusal::of_store(&error))? {
            None => Refusal::not_found("sandbox"),
            Some(row) if row.state.is_final() => refusal::gone(row.gone.unwrap_or(GoneReason::MachineDied)),
            Some(_) => ownerless(&self.inner.stopping),
        })
    }
}

fn usable_link(status: &Status) -> Result<GuestLink, Refusal> {
    if let Some(reason) = status.gone() {
        return Err(refusal::gone(reason));
    }
    match (status.row.state, &status.link) {
        (State::Running, Some(link)) => Ok(link.clone()),
        (State::Running, None) => Err(Refusal::new(
            ErrorCode::AgentLost,
            "the sandbox's agent does not answer; the server is trying to reach it again",
        )
        .retry_after(5)),
        (state, _) => Err(Refusal::new(
            ErrorCode::NotRunning,
            format!("sandbox not running: it is {}", state.as_str()),
        )),
    }
}

/// Resolves when the sandbox's end is decided; never when the server just shuts down.
pub(crate) async fn gone(status: &mut watch::Receiver<Status>) -> GoneReason {
    let told = status.wait_for(|status| status.gone().is_some()).await;
    let reason = told.ok().and_then(|status| status.gone());
    match reason {
        Some(reason) => reason,
        None => std::future::pending().await,
    }
}

impl Lent {
    /// Awaits a call, but not longer than the sandbox lives.
    pub(crate) async fn race<T>(&self, call: impl Future<Output = Result<T, GuestError>>) -> Result<T, Refusal> {
        let mut status = self.status.clone();
        let result = tokio::select! {
            biased;
            reason = gone(&mut status) => return Err(refusal::gone(reason)),
            result = call => result,
        };
        match result {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.explain(error).await),
        }
    }

    /// The same for a call that the agent answers at once or not at all.
    pub(crate) async fn prompt<T>(&self, call: impl Future<Output = Result<T, GuestError>>) -> Result<T, Refusal> {
        let after = self.control.inner.config.agent_timeout;
        self.race(async {
            tokio::time::timeout(after, call)
                .await
                .unwrap_or(Err(GuestError::Silent { after }))
        })
        .await
    }

    /// Resolves when the sandbox's end is decided.
    pub(crate) async fn gone(&self) -> GoneReason {
        gone(&mut self.status.clone()).await
    }

    /// Why the sandbox is no more, if that is decided.
    pub(crate) fn gone_reason(&self) -> Option<GoneReason> {
        self.status.borrow().gone()
    }

    /// What a failed call means. A link that broke because its machine ended is told as the sandbox's end.
    pub(crate) async fn explain(&self, error: GuestError) -> Refusal {
        if matches!(error, GuestError::Lost { .. } | GuestError::Protocol { .. }) {
            if let Ok(reason) = tokio::time::timeout(VERDICT, self.gone()).await {
                return refusal::gone(reason);
            }
            bump(&self.control.inner.metrics.agent_losses);
        }
        refusal::of_guest(error)
    }
}
