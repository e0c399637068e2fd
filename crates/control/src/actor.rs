//! One task a sandbox: the only writer of its state, by the table of [`atoll_model::lifecycle`].
//!
//! ```text
//!  create.rs ──> boot ──ok──> serve ──Stop, idle limit──────────────────────┐
//!                  │           │ └─link broke──> reconnect ──┬─reached──> serve
//!                  │           │                             └─silent for good─┤
//!                  └─failed────┼──machine ended────────────────────────────────┴──> end (ending.rs): sweep, record
//!                              └─server shuts down──> (left alive, adopted by the next start)
//! ```
//!
//! A step that fails is undone by the sweep of `ending.rs`, which removes whatever exists under the machine's id, however far
//! the step came. That is why no step has an undo of its own: an actor is never dropped in the middle, a panic in it is caught
//! by [`Actor::own`] and ends its sandbox like any fault, and after a kill of the process the next start sweeps in the same way.
//!
//! Whatever an actor waits for, it hears its mailbox meanwhile.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use atoll_engine::{ExitWatch, MachineExit};
use atoll_guest_link::GuestLink;
use atoll_model::{GoneReason, MachineId, Refusal, State};
use atoll_store::SandboxChange;
use futures_util::FutureExt;
use serde_json::json;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use crate::{
    Control, LifecyclePatch, LifecycleView,
    admission::Admitted,
    boot::{self, Reached},
    create::NewSandbox,
    ending::Ending,
    lease,
    live::{Live, Status},
    refusal,
};

/// Messages that may wait.
pub(crate) const MAILBOX: usize = 32;
/// How long after its link broke a machine may take to be seen as ended.
const EXIT_SEEN: Duration = Duration::from_secs(1);

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

/// What an actor is started with.
pub(crate) enum Begin {
    /// A sandbox that is to be recorded and brought up.
    Create(Box<NewSandbox>),
    /// One whose machine an earlier process of this server started.
    Reach,
    /// One that is to be ended.
    End(Ending),
}

pub(crate) struct Actor {
    pub(crate) control: Control,
    pub(crate) live: Arc<Live>,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) mailbox: mpsc::Receiver<Message>,
    pub(crate) admitted: Admitted,
    /// The state that the store has; behind the one of `status` while an end can't be written.
    pub(crate) recorded: State,
}

/// Why serving a machine came to an end.
enum Left {
    /// Leave it alive.
    Shutdown,
    End(Ending),
}

impl Actor {
    /// Runs the actor to its end. A panic in it ends the sandbox as a fault of the server: no machine is left without an owner.
    pub(crate) async fn own(mut self, begin: Begin) {
        let Err(panic) = AssertUnwindSafe(self.run(begin)).catch_unwind().await else {
            return;
        };
        tracing::error!(sandbox = %self.live.id, panic = panic_text(panic.as_ref()), "a sandbox's task panicked; the sandbox is ended");
        let ending = match self.status.borrow().row.state {
            State::Creating => Ending::Create(refusal::server_fault()),
            _ => Ending::Fault,
        };
        if let Err(panic) = AssertUnwindSafe(self.end(ending)).catch_unwind().await {
            tracing::error!(
                sandbox = %self.live.id,
                panic = panic_text(panic.as_ref()),
                "ending a sandbox panicked, too; the next start of the server sweeps what is left of it"
            );
            self.leave();
        }
    }

    async fn run(&mut self, begin: Begin) {
        match begin {
            Begin::Create(new) => self.create(*new).await,
            Begin::Reach => self.serve(None).await,
            Begin::End(ending) => self.end(ending).await,
        }
    }

    /// Records a sandbox, brings it up and serves it to its end.
    async fn create(&mut self, new: NewSandbox) {
        let Some((plan, deadline)) = self.insert(new).await else {
            return self.leave();
        };
        let began = Instant::now();
        let booted = {
            let control = self.control.clone();
            let row = self.status.borrow().row.clone();
            let mut boot = std::pin::pin!(boot::boot(&control, &row, plan, deadline));
            loop {
                tokio::select! {
                    result = &mut boot => break result.map_err(Ending::Create),
                    Some(message) = self.mailbox.recv() => match message {
                        Message::Stop(GoneReason::CreateFailed) => break Err(Ending::Create(refusal::create_too_slow())),
                        Message::Stop(reason) => break Err(Ending::Stop(reason)),
                        Message::Lease { answer, .. } => refuse_lease(answer),
                    }
                }
            }
        };
        let running = match booted {
            Err(ending) => return self.end(ending).await,
            Ok(running) => running,
        };
        let boot_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        if let Err(refusal) = self.acknowledge(boot_ms).await {
            running.link.close();
            return self.end(Ending::Create(refusal)).await;
        }
        self.control.inner.metrics.boots.observe(began.elapsed());
        self.admitted.booted();
        self.publish_link(&running.link);
        self.record("sandbox.running", json!({ "boot_ms": boot_ms })).await;
        self.serve(Some(running)).await;
    }

    /// Writes that the sandbox runs. Only then it is seen to.
    async fn acknowledge(&mut self, boot_ms: u64) -> Result<(), Refusal> {
        let mut change = SandboxChange::new(State::Creating, State::Running);
        change.boot_ms = Some(boot_ms);
        let moved = self
            .control
            .inner
            .store
            .sandbox_state_update(self.live.id, &change)
            .await;
        if !moved.map_err(|error| refusal::of_store(&error))? {
            tracing::error!(sandbox = %self.live.id, "the record of a sandbox was changed by somebody else");
            return Err(refusal::lost_record());
        }
        self.recorded = State::Running;
        self.status.send_if_modified(|status| {
            status.row.state = State::Running;
            status.row.boot_ms = Some(boot_ms);
            false
        });
        Ok(())
    }

    /// Serves a machine to its end, or until the server shuts down. `None`: its agent is yet to be reached.
    async fn serve(&mut self, first: Option<Running>) {
        let mut connected = first;
        let mut exited = None;
        let left = loop {
            let mut running = match connected.take() {
                Some(running) => running,
                None => match self.reconnect(exited.take()).await {
                    Ok(again) => again,
                    Err(left) => break left,
                },
            };
            self.publish_link(&running.link);
            let until = self.until_event(&mut running).await;
            running.link.close();
            match until {
                Ok(()) => exited = Some(running.exited),
                Err(left) => break left,
            }
            self.publish(|status| status.link = None);
        };
        match left {
            Left::Shutdown => {}
            Left::End(ending) => self.end(ending).await,
        }
    }

    /// Waits for the machine's end or a reason to end it; `Ok` when the agent was lost.
    async fn until_event(&mut self, running: &mut Running) -> Result<(), Left> {
        let control = self.control.clone();
        let live = Arc::clone(&self.live);
        let Running { link, exited } = running;
        let trouble = std::pin::pin!(control.agent_trouble(link, &live));
        let why = self.hear(exited, trouble).await?;
        tracing::warn!(sandbox = %live.id, why, "the link to the agent broke");
        Ok(())
    }

    /// Opens the link to the agent anew. Only a machine that ended, or an agent that stays silent for as long as is tried, ends
    /// the sandbox. `broken` is the end of the machine whose link broke just now.
    async fn reconnect(&mut self, broken: Option<ExitWatch>) -> Result<Running, Left> {
        let control = self.control.clone();
        let machine = MachineId::from(self.live.id);
        let broke = broken.is_some();
        let mut exited = broken.unwrap_or_else(|| Box::pin(std::future::pending()));
        let reached = async {
            if broke {
                // The machine's end may be why, and is seen a moment later.
                tokio::time::sleep(EXIT_SEEN).await;
            }
            boot::reach(&control, &machine).await
        };
        match self.hear(&mut exited, std::pin::pin!(reached)).await? {
            Reached::Running(running) => Ok(running),
            Reached::Gone => Err(Left::End(Ending::Died("its machine was no longer there".to_owned()))),
            Reached::Silent(detail) => Err(Left::End(Ending::Silent(detail))),
        }
    }

    /// Awaits `work`, but hears everything else meanwhile: the machine's end, the mailbox, the idle limit, the server's stop.
    async fn hear<T>(&mut self, exited: &mut ExitWatch, mut work: impl Future<Output = T> + Unpin) -> Result<T, Left> {
        let shutdown = self.control.inner.stopping.clone();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Err(Left::Shutdown),
                exit = &mut *exited => return Err(Left::End(Ending::Died(exit_detail(&exit)))),
                Some(message) = self.mailbox.recv() => match message {
                    Message::Stop(reason) => return Err(Left::End(Ending::Stop(reason))),
                    Message::Lease { patch, answer } => {
                        let changed = lease::change(&self.control, &self.live, &self.status, patch).await;
                        // The caller may have gone; the lease is changed all the same.
                        let _ = answer.send(changed);
                    }
                },
                () = self.live.idle.expired() => return Err(Left::End(Ending::Stop(GoneReason::Expired))),
                done = &mut work => return Ok(done),
            }
        }
    }

    /// Lets everybody see the state as it is now.
    pub(crate) fn publish(&self, fill: impl FnOnce(&mut Status)) {
        self.status.send_modify(fill);
    }

    /// Lets calls in.
    fn publish_link(&self, link: &GuestLink) {
        self.publish(|status| status.link = Some(link.clone()));
    }

    pub(crate) async fn record(&self, kind: &str, payload: serde_json::Value) {
        self.control.record(&self.live, kind, payload).await;
    }

    /// The sandbox is no more: calls for it are answered from the store from now on.
    pub(crate) fn leave(&self) {
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

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}

fn refuse_lease(answer: oneshot::Sender<Result<LifecycleView, Refusal>>) {
    let refusal = Refusal::new(
        atoll_model::ErrorCode::NotRunning,
        "sandbox not running: it is being created",
    );
    // The caller may have gone.
    let _ = answer.send(Err(refusal));
}
