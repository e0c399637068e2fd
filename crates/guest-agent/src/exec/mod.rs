//! Commands: started in [`start`](mod@start), driven to their end by [`run`], read by callers in [`follow`](mod@follow).

mod follow;
mod input;
mod run;
mod start;
mod table;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use atoll_model::ExecId;
use atoll_protocol::types::ExecEnd;
use nix::unistd::Pid;
use tokio::{sync::Notify, time::Instant};

use self::input::Input;
pub(crate) use self::{
    follow::{Role, follow},
    start::start,
    table::Execs,
};
use crate::{output::Hub, tree::Mark};

/// A command that runs, or ran not long ago.
#[derive(Debug)]
pub(crate) struct Exec {
    id: ExecId,
    pid: Pid,
    mark: Mark,
    /// What runs, cut to 200 characters.
    command: String,
    detached: bool,
    started: Instant,
    hub: Rc<Hub>,
    input: Input,
    /// Somebody wants it to end.
    cancelled: Cell<bool>,
    cancel: Notify,
    end: RefCell<Option<(ExecEnd, Instant)>>,
}

impl Exec {
    /// Ends the command with its whole tree; its runner does the work.
    fn cancel(&self) {
        self.cancelled.set(true);
        self.cancel.notify_one();
    }

    fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }
}
