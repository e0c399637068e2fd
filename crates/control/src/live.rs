//! Sandboxes that have a machine: the handle that calls share with the actor.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use atoll_guest_link::GuestLink;
use atoll_model::{GoneReason, Refusal, SandboxId, State, WorkspaceId};
use atoll_store::SandboxRow;
use tokio::sync::{Semaphore, broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{actor::Message, idle::IdleClock, log::OutputLog, refusal, views::EventView};

/// Events that a follower may be behind.
const EVENTS_BEHIND: usize = 64;

/// What the actor says of its sandbox. Everybody else only reads it.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    /// The row as it is in the store.
    pub(crate) row: SandboxRow,
    /// The way to the agent, while `Running` and the agent is not lost.
    pub(crate) link: Option<GuestLink>,
    /// Why a create failed, or why an end is not through yet.
    pub(crate) refusal: Option<Refusal>,
    /// Nothing of the machine is left on the host, and the record says so.
    pub(crate) swept: bool,
}

impl Status {
    /// Why it is no more, once that is decided.
    pub(crate) fn gone(&self) -> Option<GoneReason> {
        match self.row.state {
            State::Stopping | State::Deleted | State::Failed => Some(self.row.gone.unwrap_or(GoneReason::MachineDied)),
            State::Creating | State::Running | State::Paused | State::Hibernated => None,
        }
    }
}

/// One live sandbox.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) id: SandboxId,
    pub(crate) workspace: WorkspaceId,
    pub(crate) status: watch::Receiver<Status>,
    pub(crate) mailbox: mpsc::Sender<Message>,
    pub(crate) idle: Arc<IdleClock>,
    /// Calls that may be open at once.
    pub(crate) calls: Arc<Semaphore>,
    pub(crate) log: OutputLog,
    pub(crate) events: broadcast::Sender<EventView>,
    /// Cancelled when the server stops.
    stopping: CancellationToken,
}

impl Live {
    pub(crate) fn new(
        row: &SandboxRow,
        status: watch::Receiver<Status>,
        mailbox: mpsc::Sender<Message>,
        max_calls: usize,
        stopping: CancellationToken,
    ) -> Self {
        Self {
            id: row.id,
            workspace: row.workspace,
            status,
            mailbox,
            idle: Arc::new(IdleClock::new(row.spec.ttl_seconds, row.spec.persistent)),
            calls: Arc::new(Semaphore::new(max_calls)),
            log: OutputLog::new(),
            events: broadcast::Sender::new(EVENTS_BEHIND),
            stopping,
        }
    }

    /// Why there is no actor to answer: ordinarily because the server shuts down.
    pub(crate) fn ownerless(&self) -> Refusal {
        ownerless(&self.stopping)
    }

    /// Waits until the sandbox is no longer being created, and says what came of it.
    pub(crate) async fn created(&self) -> Result<SandboxRow, Refusal> {
        let mut status = self.status.clone();
        let settled = |status: &Status| match status.row.state {
            State::Creating => false,
            // Told when it is recorded, so that the same create can be tried again, or when it can't be.
            State::Failed => status.swept || status.refusal.is_some(),
            _ => true,
        };
        let settled = status.wait_for(settled).await;
        let status = settled.map_err(|_| self.ownerless())?.clone();
        match (status.refusal, status.row.state) {
            (Some(refusal), _) => Err(refusal),
            (None, State::Running) => Ok(status.row),
            (None, _) => Err(refusal::gone(status.row.gone.unwrap_or(GoneReason::CreateFailed))),
        }
    }

    /// Waits until nothing of the sandbox is left and its record says so, or says what is in the way.
    pub(crate) async fn ended(&self) -> Result<(), Refusal> {
        let mut status = self.status.clone();
        let over = |status: &Status| status.swept || status.refusal.is_some();
        let status = status.wait_for(over).await.map_err(|_| self.ownerless())?;
        match &status.refusal {
            Some(refusal) if !status.swept => Err(refusal.clone()),
            _ => Ok(()),
        }
    }
}

/// What a sandbox without an actor is: one that lives on while the server shuts down, or one that the server lost by a fault.
pub(crate) fn ownerless(stopping: &CancellationToken) -> Refusal {
    if stopping.is_cancelled() {
        refusal::shutting_down()
    } else {
        refusal::server_fault()
    }
}

/// All live sandboxes of this host.
#[derive(Debug, Default)]
pub(crate) struct LiveMap(Mutex<HashMap<SandboxId, Arc<Live>>>);

impl LiveMap {
    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Live>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, live: &Arc<Live>) {
        self.lock().insert(live.id, Arc::clone(live));
    }

    pub(crate) fn remove(&self, id: SandboxId) {
        self.lock().remove(&id);
    }

    /// The live sandbox of that id, if it belongs to the workspace.
    pub(crate) fn get(&self, workspace: WorkspaceId, id: SandboxId) -> Option<Arc<Live>> {
        self.lock().get(&id).filter(|live| live.workspace == workspace).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Live>> {
        self.lock().values().cloned().collect()
    }
}
