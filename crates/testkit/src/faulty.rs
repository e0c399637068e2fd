//! An engine that fails on demand. Everything else is the engine behind it.

use std::{
    collections::VecDeque,
    fmt, io,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use async_trait::async_trait;
use atoll_engine::{Capabilities, Engine, EngineError, GuestPort, Machine, MachinePlan, Usage};
use atoll_model::MachineId;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A call of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// [`Engine::restore`].
    Restore,
    /// [`Engine::stop`].
    Stop,
    /// [`Engine::adopt`].
    Adopt,
}

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails and did nothing.
    Before,
    /// It did its work, and fails all the same: what it made is left behind.
    After,
    /// The host has no room.
    NoRoom,
    /// It never returns.
    Hang,
    /// A machine whose link ends at once.
    DeadLink,
    /// It waits for [`Faulty::release`] and then does its work.
    Hold,
    /// It panics.
    Panic,
}

/// Wraps an engine.
pub struct Faulty {
    engine: Arc<dyn Engine>,
    faults: Mutex<VecDeque<(Step, Fault)>>,
    /// Ends every link that was given out since the last cut.
    cut: Mutex<CancellationToken>,
    released: Notify,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty")
            .field("engine", &self.engine.name())
            .finish_non_exhaustive()
    }
}

impl Faulty {
    /// An engine that works, until it is told otherwise.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        Self {
            engine,
            faults: Mutex::default(),
            cut: Mutex::default(),
            released: Notify::new(),
        }
    }

    /// Lets the call that is on hold go on, or the next one that is to be held.
    pub fn release(&self) {
        self.released.notify_one();
    }

    /// Ends a machine behind the back of whoever uses it.
    ///
    /// # Panics
    /// The engine can't.
    pub async fn kill(&self, machine: &MachineId) {
        self.engine.stop(machine).await.expect("the machine can be stopped");
    }

    /// Ends the links of all machines; the machines live on.
    pub fn cut_links(&self) {
        let mut cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *cut).cancel();
    }

    fn cuttable(&self, machine: Machine) -> Machine {
        let cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Machine {
            port: Box::new(CuttablePort {
                port: machine.port,
                cut: Box::pin(cut.cancelled_owned()),
            }),
            ..machine
        }
    }

    /// Lets the next call of that kind fail, or the one after it if a fault waits for the next one already.
    pub fn fail(&self, step: Step, fault: Fault) {
        self.faults
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back((step, fault));
    }

    fn due(&self, step: Step) -> Option<Fault> {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let index = faults.iter().position(|(wanted, _)| *wanted == step)?;
        faults.remove(index).map(|(_, fault)| fault)
    }

    /// Makes a call go wrong as it is due; what it gave, and the fault that is left to its caller.
    async fn disturb<T>(
        &self,
        step: Step,
        machine: &MachineId,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<(T, Option<Fault>), EngineError> {
        match self.due(step) {
            due @ (None | Some(Fault::DeadLink)) => Ok((call.await?, due)),
            Some(Fault::Hold) => {
                self.released.notified().await;
                Ok((call.await?, None))
            }
            Some(Fault::Before) => Err(failed(step, machine)),
            Some(Fault::NoRoom) => Err(EngineError::NoRoom("a test said so".to_owned())),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Panic) => panic!("a test said so"),
            Some(Fault::After) => {
                call.await?;
                Err(failed(step, machine))
            }
        }
    }
}

fn failed(step: Step, machine: &MachineId) -> EngineError {
    EngineError::Failed {
        program: "faulty",
        action: match step {
            Step::Restore => "restore",
            Step::Stop => "stop",
            Step::Adopt => "adopt",
        },
        machine: machine.clone(),
        detail: "a test said so".to_owned(),
    }
}

#[async_trait]
impl Engine for Faulty {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn capabilities(&self) -> &Capabilities {
        self.engine.capabilities()
    }

    async fn probe(&self) -> Result<Capabilities, EngineError> {
        self.engine.probe().await
    }

    async fn boot(&self, plan: MachinePlan) -> Result<Machine, EngineError> {
        self.engine.boot(plan).await
    }

    async fn snapshot(&self, machine: &MachineId, to: PathBuf) -> Result<(), EngineError> {
        self.engine.snapshot(machine, to).await
    }

    async fn restore(&self, plan: MachinePlan, snapshot: PathBuf) -> Result<Machine, EngineError> {
        let id = plan.id.clone();
        let restored = self
            .disturb(Step::Restore, &id, self.engine.restore(plan, snapshot))
            .await?;
        Ok(match restored {
            (machine, Some(Fault::DeadLink)) => with_dead_link(machine),
            (machine, _) => self.cuttable(machine),
        })
    }

    async fn stop(&self, machine: &MachineId) -> Result<(), EngineError> {
        self.disturb(Step::Stop, machine, self.engine.stop(machine))
            .await
            .map(|_| ())
    }

    async fn adopt(&self, machine: &MachineId) -> Result<Option<Machine>, EngineError> {
        let (adopted, _) = self.disturb(Step::Adopt, machine, self.engine.adopt(machine)).await?;
        Ok(adopted.map(|machine| self.cuttable(machine)))
    }

    async fn inventory(&self) -> Result<Vec<MachineId>, EngineError> {
        self.engine.inventory().await
    }

    async fn usage(&self, machine: &MachineId) -> Result<Usage, EngineError> {
        self.engine.usage(machine).await
    }

    async fn pause(&self, machine: &MachineId) -> Result<(), EngineError> {
        self.engine.pause(machine).await
    }

    async fn resume(&self, machine: &MachineId) -> Result<(), EngineError> {
        self.engine.resume(machine).await
    }
}

/// The same machine, with a link whose other end is closed.
fn with_dead_link(machine: Machine) -> Machine {
    let (ours, _) = tokio::io::duplex(64);
    Machine {
        port: Box::new(ours),
        ..machine
    }
}

/// A port that ends when it is cut.
struct CuttablePort {
    port: GuestPort,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl AsyncRead for CuttablePort {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.port).poll_read(context, into)
    }
}

impl AsyncWrite for CuttablePort {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.port).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.port).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.port).poll_shutdown(context)
    }
}
