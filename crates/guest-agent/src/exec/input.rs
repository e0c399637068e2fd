//! Standard input of a command.

use std::{cell::RefCell, io, os::fd::AsFd, rc::Rc};

use atoll_protocol::types::{GuestCode, GuestRefusal, TerminalSize};

use crate::{
    descriptor::Descriptor,
    refusal::{from_io, refuse},
    sys,
};

/// End of input, typed on a terminal.
const END_OF_TRANSMISSION: &[u8] = b"\x04";

/// Where a command reads from.
#[derive(Debug)]
pub(crate) enum Input {
    /// Nothing to read.
    Null,
    /// A pipe, until it is closed.
    Pipe(RefCell<Option<Rc<Descriptor>>>),
    /// The terminal that is its output as well.
    Terminal(Rc<Descriptor>),
}

impl Input {
    /// Writes, waiting while the command does not read. A command that does not want it is no error.
    pub(super) async fn write(&self, data: &[u8]) {
        let target = match self {
            Self::Null => None,
            Self::Pipe(pipe) => pipe.borrow().clone(),
            Self::Terminal(terminal) => Some(Rc::clone(terminal)),
        };
        let Some(target) = target else {
            return;
        };
        if let Err(error) = target.write_all(data).await {
            if error.kind() != io::ErrorKind::BrokenPipe && error.raw_os_error() != Some(nix::libc::EIO) {
                eprintln!("atoll-agent: standard input: {error}");
            }
            self.close();
        }
    }

    /// The caller says that the input ends here.
    pub(super) async fn end(&self) {
        match self {
            Self::Terminal(_) => self.write(END_OF_TRANSMISSION).await,
            Self::Null | Self::Pipe(_) => self.close(),
        }
    }

    /// Closes a pipe; a terminal lives as long as its command.
    pub(super) fn close(&self) {
        if let Self::Pipe(pipe) = self {
            pipe.replace(None);
        }
    }

    pub(super) fn resize(&self, size: TerminalSize) -> Result<(), GuestRefusal> {
        check_size(size)?;
        let Self::Terminal(terminal) = self else {
            return Err(refuse(GuestCode::WrongKind, "this command has no terminal"));
        };
        sys::set_window_size(terminal.as_fd(), size.rows, size.cols).map_err(|error| from_io("terminal", &error))
    }
}

pub(super) fn check_size(size: TerminalSize) -> Result<(), GuestRefusal> {
    let allowed = 1..=1000;
    if allowed.contains(&size.rows) && allowed.contains(&size.cols) {
        return Ok(());
    }
    Err(refuse(GuestCode::Invalid, "rows and cols must be 1 to 1000"))
}
