//! One interpreter process of a context.

use std::{
    collections::BTreeMap,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream},
    rc::Rc,
    time::Duration,
};

use nix::{
    fcntl::OFlag,
    sys::signal::{Signal, kill},
    unistd::{Pid, pipe2},
};
use tokio::{sync::oneshot, time::timeout};

use super::{
    wire::{Channel, Incoming, Request},
    zygote::{Failure, ForkOrder, Zygote},
};
use crate::{
    agent::Agent,
    descriptor::Descriptor,
    reaper::Exit,
    refusal::from_io,
    sys,
    tree::{self, Mark},
};

/// How long the status of a kernel may take whose socket has closed.
const STATUS_DELAY: Duration = Duration::from_millis(500);

/// How a context is forked, each time anew.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    pub(super) context: String,
    pub(super) cwd: String,
    pub(super) env: BTreeMap<String, String>,
}

/// A kernel that lives, or has just ended. Its tree ends with it: see [`end`](Self::end).
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) pid: Pid,
    pub(super) mark: Mark,
    pub(super) channel: Channel,
    pub(super) stdout: Descriptor,
    pub(super) stderr: Descriptor,
    /// Resolves once, when it has ended; an error when how it ended cannot be known.
    pub(super) exited: oneshot::Receiver<Exit>,
}

impl Kernel {
    pub(super) async fn fork(agent: &Rc<Agent>, zygote: &Zygote, surroundings: &Surroundings) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::from(from_io("making a context", &error));
        let (ours, theirs) = StdStream::pair().map_err(failed)?;
        let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(|error| failed(error.into()));
        let ((stdout, child_stdout), (stderr, child_stderr)) = (pipe()?, pipe()?);
        let mut env = agent.machine_env.borrow().clone();
        env.extend(surroundings.env.clone());
        let order = ForkOrder {
            context: surroundings.context.clone(),
            cwd: surroundings.cwd.clone(),
            env,
            entropy: agent.entropy.seed()?,
            descriptors: [OwnedFd::from(theirs), child_stdout, child_stderr],
        };
        let forked = zygote.fork(order).await?;
        let mark = agent.marks.next();
        // It waits for its first cell and has started nothing yet. If it is gone already, its exit says so.
        if let Err(error) = sys::set_mark(forked.pid, mark.value()) {
            eprintln!("atoll-agent: marking a context: {error}");
        }
        agent.guard.add_resident(forked.pid, mark, false);
        Ok(Self {
            pid: forked.pid,
            mark,
            channel: Channel::new(ours).map_err(failed)?,
            stdout: Descriptor::reader(stdout).map_err(failed)?,
            stderr: Descriptor::reader(stderr).map_err(failed)?,
            exited: forked.exited,
        })
    }

    /// Re-seeds it and gives it the machine's environment; done before the next cell.
    pub(super) fn thaw(&mut self, entropy: &str, env: &BTreeMap<String, String>) {
        // One that takes nothing is killed when a cell comes, and draws anew when it is started again.
        let _ = self.channel.post(&Request::Thaw { entropy, env });
    }

    /// Raises KeyboardInterrupt in the cell that runs.
    pub(super) fn interrupt(&self) {
        // That it has ended meanwhile is told elsewhere.
        let _ = kill(self.pid, Signal::SIGINT);
    }

    /// Its socket has closed: it has ended, or is about to.
    pub(super) async fn exited_soon(&mut self) -> Option<Exit> {
        timeout(STATUS_DELAY, &mut self.exited).await.ok()?.ok()
    }

    /// Ends it with all that it started. Cells must not find processes of a context that was started anew.
    pub(super) async fn end(&self, agent: &Agent) {
        tree::kill_tree(self.mark, self.pid).await;
        agent.guard.remove_resident(self.pid);
    }

    /// Waits until it ends; what it says meanwhile belongs to no cell and is dropped. Cancel-safe.
    pub(super) async fn idle(&mut self, agent: &Agent) -> Option<Exit> {
        let (mut stdout, mut stderr) = (true, true);
        loop {
            tokio::select! {
                exit = &mut self.exited => return exit.ok(),
                count = self.stdout.read(&agent.scratch), if stdout => stdout = matches!(count, Ok(1..)),
                count = self.stderr.read(&agent.scratch), if stderr => stderr = matches!(count, Ok(1..)),
                incoming = self.channel.receive(&agent.spill) => {
                    if !matches!(incoming, Ok(Some(Incoming::Whole(_) | Incoming::TooLong { .. }))) {
                        return self.exited_soon().await;
                    }
                }
            }
        }
    }
}
