//! How a sandbox ends: its machine is removed and its end is recorded, each tried until it is done.
//!
//! The order is the promise. An end is decided, and callers are told, before the machine goes; a create is told as failed only
//! when nothing of it is left. Whoever waits for an end is told at once why it is not through yet, and the actor goes on.

use std::time::Duration;

use atoll_model::{Event, GoneReason, MachineId, Refusal};
use atoll_store::SandboxChange;
use serde_json::json;
use time::OffsetDateTime;

use crate::{actor::Actor, metrics::bump, refusal};

/// The first and the longest pause between tries to remove a machine or to write its end.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// Why a sandbox ends.
#[derive(Debug)]
pub(crate) enum Ending {
    /// It could not be created.
    Create(Refusal),
    /// Somebody, or its idle limit, ended it.
    Stop(GoneReason),
    /// Its machine ended by itself; the detail is for the log.
    Died(String),
    /// Its agent could not be reached again; the detail is for the log.
    Silent(String),
    /// The server met a fault of its own, which is in the log.
    Fault,
}

impl Ending {
    fn event(&self) -> Event {
        match self {
            Self::Create(_) => Event::CreateFailed,
            Self::Stop(_) => Event::StopRequested,
            Self::Died(_) => Event::MachineDied,
            Self::Silent(_) | Self::Fault => Event::GivenUp,
        }
    }

    fn reason(&self) -> GoneReason {
        match self {
            Self::Create(_) => GoneReason::CreateFailed,
            Self::Stop(reason) => *reason,
            Self::Died(_) => GoneReason::MachineDied,
            Self::Silent(_) => GoneReason::AgentLost,
            Self::Fault => GoneReason::ServerFault,
        }
    }

    /// One sentence for the record.
    fn failure(&self) -> Option<String> {
        match self {
            Self::Create(refusal) => Some(refusal.message.clone()),
            Self::Stop(_) => None,
            Self::Died(_) => Some("the sandbox's machine ended unexpectedly".to_owned()),
            Self::Silent(_) => Some("the sandbox's agent stopped answering and could not be reached again".to_owned()),
            Self::Fault => Some("a fault of the server ended the sandbox; the server's log says more".to_owned()),
        }
    }

    /// The kind of the event that tells it (pandastack-v1 §2.8).
    fn kind(&self) -> &'static str {
        match self {
            Self::Stop(_) => "sandbox.deleted",
            Self::Died(_) => "vm.died",
            Self::Create(_) | Self::Silent(_) | Self::Fault => "sandbox.failed",
        }
    }
}

impl Actor {
    /// Ends the sandbox. Returns early when the server shuts down before all is done: the record then says what there is to
    /// sweep, and the next start does it.
    pub(crate) async fn end(&mut self, ending: Ending) {
        self.tell_operator(&ending);
        if let Ending::Create(_) = &ending {
            if !self.sweep().await {
                return;
            }
            self.decide(&ending, ending.event());
        } else {
            self.decide(&ending, ending.event());
            // Tried once before the machine goes, so that a crash meanwhile finds the reason. Below it is tried until it is done.
            let _logged = self.write(&ending).await;
            self.publish(|status| status.link = None);
            if !self.sweep().await {
                return;
            }
            self.decide(&ending, Event::Stopped);
        }
        if !self.write_until_done(&ending).await {
            return;
        }
        let reason = self.status.borrow().row.gone.unwrap_or(ending.reason());
        self.record(ending.kind(), json!({ "reason": reason })).await;
        self.publish(|status| {
            if let Ending::Create(refusal) = ending {
                status.refusal = Some(refusal);
            }
            status.swept = true;
        });
        self.leave();
    }

    fn tell_operator(&self, ending: &Ending) {
        let (metrics, sandbox) = (&self.control.inner.metrics, self.live.id);
        match ending {
            Ending::Create(refusal) => {
                bump(&metrics.create_failures);
                tracing::warn!(%sandbox, %refusal, "a create failed");
            }
            Ending::Stop(GoneReason::Expired) => bump(&metrics.expirations),
            Ending::Stop(_) => bump(&metrics.deletes),
            Ending::Died(detail) => {
                bump(&metrics.machine_deaths);
                tracing::warn!(%sandbox, detail, "a machine ended by itself");
            }
            Ending::Silent(detail) => {
                tracing::warn!(%sandbox, detail, "an agent could not be reached again; its sandbox is ended")
            }
            Ending::Fault => {}
        }
    }

    /// Moves on by the table, in memory; nothing where the table has no such arrow, as for a failed one that is `Stopped`.
    /// Nobody is told before [`publish`](Self::publish).
    fn decide(&self, ending: &Ending, event: Event) {
        self.status.send_if_modified(|status| {
            // What was in the way of a step before this one is over.
            status.refusal = None;
            let row = &mut status.row;
            if let Ok(next) = row.state.next(event) {
                row.state = next;
                row.gone.get_or_insert(ending.reason());
                row.failure = row.failure.take().or_else(|| ending.failure());
                row.ended_at = next.is_final().then(OffsetDateTime::now_utc);
            }
            false
        });
    }

    /// Removes the machine and all it holds on the host; tries until it is gone. `false` when the server shuts down before.
    async fn sweep(&mut self) -> bool {
        let machine = MachineId::from(self.live.id);
        let mut pause = PAUSE.0;
        while let Err(error) = self.control.inner.engine.stop(&machine).await {
            let refusal = refusal::of_engine("a machine was removed", &error);
            if !self.wait_to_retry(refusal, &mut pause).await {
                return false;
            }
        }
        true
    }

    /// Writes the end; tries until it is written. `false` when the server shuts down before: the next start finds a record
    /// without a machine and ends it.
    async fn write_until_done(&mut self, ending: &Ending) -> bool {
        let mut pause = PAUSE.0;
        while let Err(unwritten) = self.write(ending).await {
            let told = match ending {
                Ending::Create(refusal) => refusal.clone(),
                _ => unwritten,
            };
            if !self.wait_to_retry(told, &mut pause).await {
                return false;
            }
        }
        true
    }

    /// Tells who waits why it is not through yet, and waits. `false`: the server shuts down.
    async fn wait_to_retry(&self, refusal: Refusal, pause: &mut Duration) -> bool {
        self.publish(|status| status.refusal = Some(refusal));
        tokio::select! {
            () = self.control.inner.stopping.cancelled() => false,
            () = tokio::time::sleep(*pause) => {
                *pause = PAUSE.1.min(*pause * 2);
                true
            }
        }
    }

    /// Writes where the sandbox stands, if the store does not say so yet.
    async fn write(&mut self, ending: &Ending) -> Result<(), Refusal> {
        let row = self.status.borrow().row.clone();
        if self.recorded == row.state {
            return Ok(());
        }
        let change = SandboxChange {
            gone: row.gone,
            failure: row.failure,
            ended_at: row.ended_at,
            // Nothing was created, so the same create may be tried again under the same key.
            forget_idempotency: ending.reason() == GoneReason::CreateFailed,
            ..SandboxChange::new(self.recorded, row.state)
        };
        let store = &self.control.inner.store;
        let moved = store.sandbox_state_update(row.id, &change).await;
        if moved.map_err(|error| refusal::of_store(&error))? {
            self.recorded = row.state;
            return Ok(());
        }
        // A write before this one may have said that it failed and be there all the same.
        let found = store.sandbox_get(row.workspace, row.id).await;
        match found
            .map_err(|error| refusal::of_store(&error))?
            .map(|found| found.state)
        {
            None => tracing::error!(sandbox = %row.id, "a sandbox that ends has no record"),
            Some(found) if found == row.state => {}
            Some(found) => {
                tracing::error!(sandbox = %row.id, recorded = ?self.recorded, ?found, "a sandbox's record was changed by somebody else");
                self.recorded = found;
                return Err(refusal::lost_record());
            }
        }
        self.recorded = row.state;
        Ok(())
    }
}
