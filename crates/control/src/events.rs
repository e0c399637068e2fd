//! What happened to a sandbox: kept in the store, and told to followers.

use atoll_model::{Refusal, SandboxId, Scope};
use time::OffsetDateTime;
use tokio::sync::{broadcast, watch};

use crate::{
    Caller, Control, EventView,
    live::{Live, Status},
    refusal, view,
};

/// Events that one list holds at most.
const MAX_TAIL: u32 = 1000;

/// What happens to a sandbox from now on.
#[derive(Debug)]
pub struct EventFollow {
    events: broadcast::Receiver<EventView>,
    status: watch::Receiver<Status>,
}

impl EventFollow {
    /// The next event; `None` after the one that ended the sandbox. Events that a slow reader missed are skipped; their
    /// sequence numbers show it, and [`Control::event_list`] has them. Cancel-safe.
    pub async fn next(&mut self) -> Option<EventView> {
        let received = async {
            loop {
                match self.events.recv().await {
                    Ok(event) => return Some(event),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        };
        tokio::select! {
            biased;
            event = received => event,
            // The last event comes before this; so does the end of a server that shuts down.
            _ = self.status.wait_for(|status| status.swept) => None,
        }
    }
}

impl Control {
    /// The newest `tail` events (1 to 1000), oldest first; also of a sandbox that is no more, as long as it is kept.
    ///
    /// # Errors
    /// `NotFound`; `InvalidRequest`.
    pub async fn event_list(&self, caller: &Caller, id: SandboxId, tail: u32) -> Result<Vec<EventView>, Refusal> {
        caller.require(Scope::ReadOnly)?;
        if !(1..=MAX_TAIL).contains(&tail) {
            return Err(Refusal::field(
                "tail",
                format!("tail must be 1 to {MAX_TAIL}, not {tail}"),
            ));
        }
        let store = &self.inner.store;
        let row = store
            .sandbox_get(caller.workspace, id)
            .await
            .map_err(|error| refusal::of_store(&error))?;
        row.ok_or_else(|| Refusal::not_found("sandbox"))?;
        let rows = store.event_list(caller.workspace, id, tail).await;
        Ok(rows
            .map_err(|error| refusal::of_store(&error))?
            .into_iter()
            .map(view::event)
            .collect())
    }

    /// The events from now on.
    ///
    /// # Errors
    /// `NotFound`, `SandboxGone`.
    pub async fn event_follow(&self, caller: &Caller, id: SandboxId) -> Result<EventFollow, Refusal> {
        caller.require(Scope::ReadOnly)?;
        match self.inner.live.get(caller.workspace, id) {
            Some(live) => Ok(EventFollow {
                events: live.events.subscribe(),
                status: live.status.clone(),
            }),
            None => Err(self.why_not_live(caller, id).await?),
        }
    }

    /// Keeps and tells an event. That it can't be kept is logged and stops nothing.
    pub(crate) async fn record(&self, live: &Live, kind: &str, payload: serde_json::Value) {
        let at = OffsetDateTime::now_utc();
        let sequence = match self.inner.store.event_insert(live.id, at, kind, &payload).await {
            Ok(sequence) => sequence,
            Err(error) => {
                tracing::error!(error = refusal::chain(&error), kind, "an event was not kept");
                return;
            }
        };
        // Nobody may follow.
        let _ = live.events.send(EventView {
            sequence,
            at,
            sandbox: live.id,
            kind: kind.to_owned(),
            payload,
        });
    }
}
