//! Being told to stop, once and twice.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// How the server is told to stop.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Cancelled: finish what is open, then end.
    pub graceful: CancellationToken,
    /// Cancelled: end at once.
    pub now: CancellationToken,
}

impl Stop {
    /// Listens to SIGTERM and SIGINT: the first asks for a graceful end, the second ends at once. The listener lives as long
    /// as the handle that comes with it.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub fn on_signals() -> io::Result<(Self, AbortOnDropHandle<()>)> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stop = Self::default();
        let listened = stop.clone();
        let listener = tokio::spawn(async move {
            for token in [&listened.graceful, &listened.now] {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                token.cancel();
            }
        });
        Ok((stop, AbortOnDropHandle::new(listener)))
    }
}
