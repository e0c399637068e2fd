//! The commands that run, and those that ended lately.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use atoll_model::ExecId;
use atoll_protocol::types::{ExecInfo, ExecResize, ExecSignal, GuestCode, GuestRefusal};
use tokio::time::Instant;

use super::Exec;
use crate::{
    refusal::{from_io, refuse},
    sys, tree,
};

/// How long an end is remembered.
const RETENTION: Duration = Duration::from_secs(600);
/// How many ends are remembered, and how much output of them, in bytes.
const MOST_ENDED: usize = 512;
const MOST_OUTPUT: usize = 32 << 20;

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Execs {
    /// In the order in which they were started.
    all: RefCell<BTreeMap<u64, Rc<Exec>>>,
    serial: RefCell<u64>,
}

impl Execs {
    pub(super) fn add(&self, exec: Rc<Exec>) {
        let mut serial = self.serial.borrow_mut();
        *serial += 1;
        self.all.borrow_mut().insert(*serial, exec);
    }

    /// How many run.
    pub(crate) fn running(&self) -> usize {
        self.all.borrow().values().filter(|exec| !exec.has_ended()).count()
    }

    /// Forgets what ended long ago. Called when something is added or asked, so that an idle agent needs no timer.
    pub(super) fn prune(&self) {
        let now = Instant::now();
        let mut all = self.all.borrow_mut();
        let is_due = |exec: &Exec| {
            let end = exec.end.borrow();
            end.as_ref().is_some_and(|(_, at)| now.duration_since(*at) > RETENTION)
        };
        all.retain(|_, exec| !is_due(exec));
        let ended: Vec<u64> = all
            .iter()
            .filter(|(_, exec)| exec.has_ended())
            .map(|(serial, _)| *serial)
            .collect();
        let excess = ended.len().saturating_sub(MOST_ENDED);
        for serial in &ended[..excess] {
            all.remove(serial);
        }
        let mut output = 0;
        for serial in ended[excess..].iter().rev() {
            if let Some(exec) = all.get(serial) {
                output += exec.hub.held();
                if output > MOST_OUTPUT {
                    exec.hub.forget_output();
                }
            }
        }
    }

    pub(crate) fn list(&self) -> Vec<ExecInfo> {
        self.prune();
        let all = self.all.borrow();
        let info = |exec: &Rc<Exec>| ExecInfo {
            exec_id: exec.id,
            pid: exec.pid.as_raw(),
            command: exec.command.clone(),
            end: exec.end.borrow().as_ref().map(|(end, _)| end.clone()),
        };
        all.values().map(info).collect()
    }

    fn find(&self, id: ExecId) -> Result<Rc<Exec>, GuestRefusal> {
        let all = self.all.borrow();
        let found = all.values().find(|exec| exec.id == id).cloned();
        found.ok_or_else(|| refuse(GuestCode::NotFound, format!("there is no command {id} (any more)")))
    }

    /// A command that a visitor may follow.
    pub(crate) fn attachable(&self, id: ExecId) -> Result<Rc<Exec>, GuestRefusal> {
        self.prune();
        let exec = self.find(id)?;
        if exec.detached {
            return Ok(exec);
        }
        Err(refuse(
            GuestCode::Conflict,
            "only a command that was started with detach can be attached to",
        ))
    }

    /// Signals a command's process group. One that has ended is left alone: its number may be another's by now.
    pub(crate) fn signal(&self, request: &ExecSignal) -> Result<(), GuestRefusal> {
        let exec = self.find(request.exec_id)?;
        if !(1..=64).contains(&request.signal) {
            return Err(refuse(GuestCode::Invalid, "signal must be 1 to 64"));
        }
        if exec.has_ended() {
            return Err(refuse(GuestCode::Conflict, "the command has ended"));
        }
        sys::signal_group(exec.pid, request.signal).map_err(|error| from_io("signal", &error))
    }

    pub(crate) fn resize(&self, request: &ExecResize) -> Result<(), GuestRefusal> {
        let exec = self.find(request.exec_id)?;
        if exec.has_ended() {
            return Err(refuse(GuestCode::Conflict, "the command has ended"));
        }
        exec.input.resize(request.size)
    }

    /// Ends all that run, when the agent itself ends.
    pub(crate) async fn end_all(&self) {
        let running: Vec<Rc<Exec>> = self
            .all
            .borrow()
            .values()
            .filter(|exec| !exec.has_ended())
            .cloned()
            .collect();
        for exec in running {
            tree::kill_tree(exec.mark, exec.pid).await;
        }
    }
}
