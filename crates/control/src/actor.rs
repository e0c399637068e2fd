//! One task a sandbox: the only writer of its state, by the table of [`atoll_model::lifecycle`].
//!
//! ```text
//!  create.rs ──> boot ──ok──> serve ──Stop, idle limit──> stop ──> sweep ──> Deleted
//!                  │            │ └─machine ended, agent lost for good──┐
//!                  └─failed─────┼──> sweep ──> Failed                   └──> Failed ──> sweep
//!                               └─server shuts down──> (left alive, adopted by the next start)
//! ```
//!
//! A step that fails is undone by [`Actor::sweep`], which removes whatever exists under the machine's id, however far the
//! step came. That is why no step has an undo of its own: an actor is never dropped in the middle, and after a kill of the
//! process the next start sweeps in the same way.

use std::{sync::Arc, time::Duration};

use atoll_engine::{ExitWatch, MachineExit};
use atoll_guest_link::GuestLink;
use atoll_model::{Event, GoneReason, MachineId, Refusal, State};
use atoll_store::SandboxChange;
use serde_json::json;
use time::OffsetDateTime;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use crate::{
    Control, LifecyclePatch, LifecycleView,
    admission::Admitted,
    boot::{self, Plan},
    lease,
    live::{Live, Status},
    metrics::bump,
    refusal,
};

/// Messages that may wait.
pub(crate) const MAILBOX: usize = 32;
/// How long after its link broke a machine may take to be seen as ended.
const EXIT_SEEN: Duration = Duration::from_secs(1);
/// The first and the longest pause between tries to remove a machine.
const SWEEP_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// What an actor is asked.
#[derive(Debug)]
pub(crate) enum Message {
    /// End the sandbox.
    Stop(GoneReason),
    /// Change its lease.
    Lease {
        patch: LifecyclePatch,
        answer: oneshot::Sender<Result<LifecycleView, Refusal>>,
    },
}

/// A machine that runs and whose agent answered.
pub(crate) struct Running {
    pub(crate) link: GuestLink,
    pub(crate) exited: ExitWatch,
}

pub(crate) struct Actor {
    pub(crate) control: Control,
    pub(crate) live: Arc<Live>,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) mailbox: mpsc::Receiver<Message>,
    pub(crate) admitted: Admitted,
}

/// Why serving a machine came to an end.
enum End {
    /// Leave it alive.
    Shutdown,
    Stop(GoneReason),
    Died(String),
}

impl Actor {
    /// Brings a recorded sandbox up and serves it to its end.
    pub(crate) async fn create(mut self, plan: Plan) {
        let began = Instant::now();
        let booted = {
            let control = self.control.clone();
            let row = self.status.borrow().row.clone();
            let mut boot = std::pin::pin!(boot::boot(&control, &row, plan));
            loop {
                tokio::select! {
                    result = &mut boot => break Ok(result),
                    Some(message) = self.mailbox.recv() => match message {
                        Message::Stop(reason) => break Err(reason),
                        Message::Lease { answer, .. } => refuse_lease(answer),
                    }
                }
            }
        };
        let running = match booted {
            Err(reason) => return self.stop(reason).await,
            Ok(Err(refusal)) => return self.create_failed(refusal).await,
            Ok(Ok(running)) => running,
        };
        let boot_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let moved = self
            .transition(Event::ThawAcknowledged, |change| change.boot_ms = Some(boot_ms))
            .await;
        if let Err(refusal) = moved {
            running.link.close();
            return self.create_failed(refusal).await;
        }
        self.control.inner.metrics.boots.observe(began.elapsed());
        self.admitted.booted();
        self.publish_link(&running.link);
        self.record("sandbox.running", json!({ "boot_ms": boot_ms })).await;
        self.serve(running).await;
    }

    /// Serves a machine to its end, or until the server shuts down.
    pub(crate) async fn serve(mut self, mut running: Running) {
        let end = loop {
            match self.until_event(&mut running).await {
                Err(end) => break end,
                Ok(()) => match self.reconnect(&mut running).await {
                    Ok(again) => {
                        running = again;
                        self.publish_link(&running.link);
                    }
                    Err(end) => break end,
                },
            }
        };
        running.link.close();
        match end {
            End::Shutdown => {}
            End::Stop(reason) => self.stop(reason).await,
            End::Died(detail) => self.died(&detail).await,
        }
    }

    /// Waits for the machine's end or a reason to end it; `Ok` when the agent was lost.
    async fn until_event(&mut self, running: &mut Running) -> Result<(), End> {
        let shutdown = self.control.inner.stopping.clone();
        let mut trouble = std::pin::pin!(self.control.agent_trouble(&running.link, &self.live));
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Err(End::Shutdown),
                exit = &mut running.exited => return Err(End::Died(exit_detail(&exit))),
                Some(message) = self.mailbox.recv() => match message {
                    Message::Stop(reason) => return Err(End::Stop(reason)),
                    Message::Lease { patch, answer } => {
                        let changed = lease::change(&self.control, &self.live, &self.status, patch).await;
                        // The caller may have gone; the lease is changed all the same.
                        let _ = answer.send(changed);
                    }
                },
                () = self.live.idle.expired() => return Err(End::Stop(GoneReason::Expired)),
                why = &mut trouble => {
                    tracing::warn!(sandbox = %self.live.id, why, "the link to the agent broke");
                    return Ok(());
                }
            }
        }
    }

    /// After the link broke: tells a machine that ended from one whose link can be opened again.
    async fn reconnect(&mut self, running: &mut Running) -> Result<Running, End> {
        running.link.close();
        self.publish(|status| status.link = None);
        if let Ok(exit) = tokio::time::timeout(EXIT_SEEN, &mut running.exited).await {
            return Err(End::Died(exit_detail(&exit)));
        }
        let machine = MachineId::from(self.live.id);
        match boot::adopt(&self.control, &machine).await {
            Ok(Some(again)) => Ok(again),
            Ok(None) => Err(End::Died("its machine was no longer there".to_owned())),
            Err(refusal) => Err(End::Died(format!("its agent stopped answering: {}", refusal.message))),
        }
    }

    async fn create_failed(mut self, refusal: Refusal) {
        bump(&self.control.inner.metrics.create_failures);
        tracing::warn!(sandbox = %self.live.id, %refusal, "a create failed");
        if !self.sweep().await {
            return;
        }
        let failure = refusal.message.clone();
        self.settle(Event::CreateFailed, GoneReason::CreateFailed, Some(failure))
            .await;
        // Nothing was created, so the same create may be tried again under the same key.
        if let Err(error) = self.control.inner.store.idempotency_forget(self.live.id).await {
            tracing::error!(
                error = refusal::chain(&error),
                "a failed create keeps its idempotency key"
            );
        }
        self.publish(|status| {
            status.refusal = Some(refusal);
            status.swept = true;
        });
        self.record("sandbox.failed", json!({ "reason": GoneReason::CreateFailed }))
            .await;
        self.leave();
    }

    async fn stop(mut self, reason: GoneReason) {
        match reason {
            GoneReason::Expired => bump(&self.control.inner.metrics.expirations),
            _ => bump(&self.control.inner.metrics.deletes),
        }
        self.settle(Event::StopRequested, reason, None).await;
        self.publish(|status| status.link = None);
        if !self.sweep().await {
            return;
        }
        self.settle(Event::Stopped, reason, None).await;
        self.record("sandbox.deleted", json!({ "reason": reason })).await;
        self.publish(|status| status.swept = true);
        self.leave();
    }

    async fn died(mut self, detail: &str) {
        bump(&self.control.inner.metrics.machine_deaths);
        tracing::warn!(sandbox = %self.live.id, detail, "a machine ended by itself");
        let failure = "the sandbox's machine ended unexpectedly".to_owned();
        self.settle(Event::MachineDied, GoneReason::MachineDied, Some(failure))
            .await;
        self.publish(|status| status.link = None);
        if !self.sweep().await {
            return;
        }
        self.record("vm.died", json!({ "reason": GoneReason::MachineDied }))
            .await;
        self.publish(|status| status.swept = true);
        self.leave();
    }

    /// Removes the machine and all it holds on the host; tries until it is gone. `false` when the server shuts down before:
    /// the record then still says what there is to sweep, and the next start does it.
    async fn sweep(&mut self) -> bool {
        let machine = MachineId::from(self.live.id);
        let (mut pause, longest) = SWEEP_PAUSE;
        while let Err(error) = self.control.inner.engine.stop(&machine).await {
            let refusal = refusal::of_engine("a machine was removed", &error);
            self.publish(|status| status.refusal = Some(refusal));
            tokio::select! {
                () = self.control.inner.stopping.cancelled() => return false,
                () = tokio::time::sleep(pause) => pause = longest.min(pause * 2),
            }
        }
        true
    }

    /// Moves on the way to an end. That the store can't be written must not keep the machine alive: the record then says
    /// what was true before, and the next start finds that there is no machine.
    async fn settle(&mut self, event: Event, reason: GoneReason, failure: Option<String>) {
        let moved = self.transition(event, |change| {
            change.gone = Some(reason);
            change.failure = failure;
        });
        if moved.await.is_ok() {
            return;
        }
        self.status.send_if_modified(|status| {
            if let Ok(next) = status.row.state.next(event) {
                status.row.state = next;
                status.row.gone = Some(reason);
            }
            false
        });
    }

    /// Moves the sandbox by the table, in the store first. Nobody sees it before [`publish`](Self::publish).
    async fn transition(&mut self, event: Event, fill: impl FnOnce(&mut SandboxChange)) -> Result<(), Refusal> {
        let from = self.status.borrow().row.state;
        let to = from
            .next(event)
            .map_err(|error| refusal::internal("a sandbox can't move on", &error))?;
        let mut change = SandboxChange::new(from, to);
        change.ended_at = to.is_final().then(OffsetDateTime::now_utc);
        fill(&mut change);
        let moved = self
            .control
            .inner
            .store
            .sandbox_state_update(self.live.id, &change)
            .await;
        if !moved.map_err(|error| refusal::of_store(&error))? {
            tracing::error!(sandbox = %self.live.id, ?from, ?to, "the record of a sandbox was changed by somebody else");
            return Err(refusal::lost_record());
        }
        self.status.send_if_modified(|status| {
            let row = &mut status.row;
            row.state = to;
            row.gone = change.gone.or(row.gone);
            row.failure = change.failure.or(row.failure.take());
            row.boot_ms = change.boot_ms.or(row.boot_ms);
            row.ended_at = change.ended_at.or(row.ended_at);
            false
        });
        Ok(())
    }

    /// Lets everybody see the state as it is now.
    fn publish(&self, fill: impl FnOnce(&mut Status)) {
        self.status.send_modify(fill);
    }

    /// Lets calls in.
    pub(crate) fn publish_link(&self, link: &GuestLink) {
        self.publish(|status| status.link = Some(link.clone()));
    }

    async fn record(&self, kind: &str, payload: serde_json::Value) {
        self.control.record(&self.live, kind, payload).await;
    }

    /// The sandbox is no more: calls for it are answered from the store from now on.
    fn leave(self) {
        debug_assert!(self.status.borrow().row.state != State::Running);
        self.control.inner.live.remove(self.live.id);
    }
}

fn exit_detail(exit: &MachineExit) -> String {
    let cause = if exit.oom {
        "the host's memory limit ended it: "
    } else {
        ""
    };
    format!("{cause}{}", exit.detail)
}

fn refuse_lease(answer: oneshot::Sender<Result<LifecycleView, Refusal>>) {
    let refusal = Refusal::new(
        atoll_model::ErrorCode::NotRunning,
        "sandbox not running: it is being created",
    );
    // The caller may have gone.
    let _ = answer.send(Err(refusal));
}
