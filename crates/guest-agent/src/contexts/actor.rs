//! The task of one context: its queue, its kernel, one cell at a time.

use std::rc::Rc;

use atoll_model::Outcome;
use atoll_protocol::types::GuestRefusal;
use tokio::sync::{mpsc, oneshot};

use super::{
    Context,
    cell::{self, After, Control, Job, Running},
    kernel::{Kernel, Surroundings},
};
use crate::{agent::Agent, reaper::Exit};

/// A place in the queue, taken before the cell itself has arrived.
pub(super) type Ticket = oneshot::Receiver<Job>;

pub(super) struct Actor {
    agent: Rc<Agent>,
    context: Rc<Context>,
    surroundings: Surroundings,
    kernel: Option<Kernel>,
    /// The kernel ended between two cells, and nobody was told yet.
    untold: Option<Option<Exit>>,
    tickets: mpsc::Receiver<Ticket>,
    controls: mpsc::Receiver<Control>,
}

impl Actor {
    pub(super) fn new(
        agent: &Rc<Agent>,
        context: Rc<Context>,
        surroundings: Surroundings,
        kernel: Kernel,
        tickets: mpsc::Receiver<Ticket>,
        controls: mpsc::Receiver<Control>,
    ) -> Self {
        Self {
            agent: Rc::clone(agent),
            context,
            surroundings,
            kernel: Some(kernel),
            untold: None,
            tickets,
            controls,
        }
    }

    /// Serves the context until it is closed.
    pub(super) async fn run(mut self) {
        loop {
            tokio::select! {
                control = self.controls.recv() => match control {
                    Some(control) => if self.obey(control).await {
                        break;
                    },
                    None => break,
                },
                ticket = self.tickets.recv() => match ticket {
                    // A caller who left before its cell arrived is none.
                    Some(ticket) => if let Ok(job) = ticket.await && self.serve(&job).await {
                        break;
                    },
                    None => break,
                },
                exit = idle(&self.agent, self.kernel.as_mut()) => {
                    self.drop_kernel().await;
                    self.untold = Some(exit);
                }
            }
        }
        self.close().await;
    }

    /// Does what was asked while no cell runs. `true`: the context is to be closed.
    async fn obey(&mut self, control: Control) -> bool {
        // Whoever asked may have left; then nobody is told.
        match control {
            Control::Interrupt(done) => {
                let _ = done.send(());
                false
            }
            Control::Restart(done) => {
                self.drop_kernel().await;
                self.untold = None;
                let made = self.make_kernel().await;
                let _ = done.send(made.map(|()| self.context.info()));
                false
            }
            Control::Close(done) => {
                self.drop_kernel().await;
                let _ = done.send(());
                true
            }
            Control::Thaw { entropy, env } => {
                if let Some(kernel) = &mut self.kernel {
                    kernel.thaw(&entropy, &env);
                }
                false
            }
        }
    }

    /// Runs a cell. `true`: the context is to be closed.
    async fn serve(&mut self, job: &Job) -> bool {
        if job.departure.has_left() {
            job.end(Outcome::Cancelled, self.context.cells.get());
            return false;
        }
        let number = self.context.count_cell();
        if let Some(exit) = self.untold.take() {
            // Its code was written for a state that is lost: better not run it at all.
            job.end(cell::died(exit), number);
            self.renew().await;
            return false;
        }
        if self.kernel.is_none()
            && let Err(refusal) = self.make_kernel().await
        {
            job.hub
                .push_bytes(atoll_protocol::event::Kind::Stderr, refusal.message.as_bytes());
            job.end(cell::died(None), number);
            return false;
        }
        let Some(kernel) = self.kernel.as_mut() else {
            return false;
        };
        self.context.busy.set(true);
        let busy = self.agent.guard.busy();
        let after = Running::new(&self.agent, kernel, job, number)
            .run(&mut self.controls)
            .await;
        drop(busy);
        self.context.busy.set(false);
        match after {
            After::Alive => false,
            After::Dead => {
                self.renew().await;
                false
            }
            After::Asked(control) => self.obey(control).await,
        }
    }

    /// A fresh kernel for a dead one, so that the next cell need not wait for it. Should that fail, the next cell is told.
    async fn renew(&mut self) {
        self.drop_kernel().await;
        if let Err(refusal) = self.make_kernel().await {
            eprintln!("atoll-agent: context {}: {refusal}", self.surroundings.context);
        }
    }

    async fn make_kernel(&mut self) -> Result<(), GuestRefusal> {
        self.kernel = Some(self.agent.contexts.fork(&self.agent, &self.surroundings).await?);
        self.context.restarts.set(self.context.restarts.get() + 1);
        Ok(())
    }

    /// Ends the kernel and everything that its cells started.
    async fn drop_kernel(&mut self) {
        if let Some(kernel) = self.kernel.take() {
            kernel.end(&self.agent).await;
        }
    }

    /// Tells those who still wait.
    async fn close(&mut self) {
        self.drop_kernel().await;
        self.tickets.close();
        while let Some(ticket) = self.tickets.recv().await {
            if let Ok(job) = ticket.await {
                job.end(Outcome::Cancelled, self.context.cells.get());
            }
        }
    }
}

async fn idle(agent: &Agent, kernel: Option<&mut Kernel>) -> Option<Exit> {
    match kernel {
        Some(kernel) => kernel.idle(agent).await,
        None => std::future::pending().await,
    }
}
