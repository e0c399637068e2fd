//! The terminal that the user sits at: its size, and raw mode that is always undone.

use std::{io, os::fd::AsFd};

use nix::sys::termios::{self, SetArg, Termios};

/// Rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Size {
    pub(crate) rows: u16,
    pub(crate) cols: u16,
}

impl Default for Size {
    fn default() -> Self {
        Self { rows: 24, cols: 80 }
    }
}

/// The size of the terminal that is open at standard output, error or input; 24 by 80 when there is none.
pub(crate) fn size() -> Size {
    terminal_size::terminal_size().map_or_else(Size::default, |(width, height)| Size {
        rows: height.0,
        cols: width.0,
    })
}

/// Raw mode at standard input for as long as this lives. Dropped on every way out, a panic included.
#[derive(Debug)]
pub(crate) struct RawMode {
    before: Termios,
}

impl RawMode {
    /// Every key goes to the program at the other end.
    pub(crate) fn enter() -> io::Result<Self> {
        let before = termios::tcgetattr(io::stdin().as_fd())?;
        let mut raw = before.clone();
        termios::cfmakeraw(&mut raw);
        termios::tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // Nothing is left to be done when the terminal itself is gone.
        let _gone = termios::tcsetattr(io::stdin().as_fd(), SetArg::TCSADRAIN, &self.before);
    }
}
