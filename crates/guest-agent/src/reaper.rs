//! Process 1 reaps. Every ended child is waited for at once, and its status goes to whoever asked for it.

use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    rc::Rc,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        signal::Signal,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

/// How long is reaped before the agent's other work goes on. On a starved machine one call may take that long.
const TURN: Duration = Duration::from_millis(2);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    /// From a status as `wait` gives it.
    pub(crate) fn from_raw(status: i32) -> Self {
        if nix::libc::WIFSIGNALED(status) {
            Self::Signal(nix::libc::WTERMSIG(status))
        } else {
            Self::Code(nix::libc::WEXITSTATUS(status))
        }
    }

    /// The exit code as a shell would show it.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }

    /// The signal that ended it.
    pub(crate) fn signal(self) -> Option<i32> {
        match self {
            Self::Code(_) => None,
            Self::Signal(signal) => Some(signal),
        }
    }

    pub(crate) fn was_killed(self) -> bool {
        self == Self::Signal(Signal::SIGKILL as i32)
    }
}

/// Who waits for which process.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    waiting: RefCell<HashMap<Pid, oneshot::Sender<Exit>>>,
}

impl Reaper {
    /// Resolves when the process has ended. Call it before the next await after the process was started: the agent has one
    /// thread, so nothing is reaped in between.
    pub(crate) fn watch(&self, pid: Pid) -> oneshot::Receiver<Exit> {
        let (say, told) = oneshot::channel();
        self.waiting.borrow_mut().insert(pid, say);
        told
    }

    /// Tells who waits. Also called for children of a zygote, which reports them.
    pub(crate) fn deliver(&self, pid: Pid, exit: Exit) {
        if let Some(say) = self.waiting.borrow_mut().remove(&pid) {
            // Nobody waits any more: fine.
            let _ = say.send(exit);
        }
    }

    /// Reaps until the agent ends.
    pub(crate) async fn run(self: Rc<Self>) -> io::Result<()> {
        let mut ended = signal(SignalKind::child())?;
        loop {
            if self.reap() {
                // Processes may end as fast as they are reaped: everybody else gets a turn.
                tokio::task::yield_now().await;
            } else {
                ended.recv().await;
            }
        }
    }

    /// Reaps some of those that have ended. `true`: there may be more.
    fn reap(&self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < TURN {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => self.deliver(pid, Exit::Code(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => self.deliver(pid, Exit::Signal(signal as i32)),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return false,
                // Stops and the like are not asked for; an interrupted call is made again.
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => {
                    eprintln!("atoll-agent: wait failed: {error}");
                    return false;
                }
            }
        }
        true
    }
}
