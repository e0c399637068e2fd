//! A caller who leaves before its cell has ended.

use std::{cell::Cell, rc::Rc};

use tokio::sync::Notify;

/// Whether the caller of a cell has left.
#[derive(Debug, Default)]
pub(super) struct Departure {
    has_left: Cell<bool>,
    leaving: Notify,
}

impl Departure {
    pub(super) fn has_left(&self) -> bool {
        self.has_left.get()
    }

    /// Resolves when the caller leaves. Cancel-safe.
    pub(super) async fn left(&self) {
        while !self.has_left.get() {
            self.leaving.notified().await;
        }
    }
}

/// The caller's presence: dropping it is leaving.
#[derive(Debug)]
pub(super) struct Presence(pub(super) Rc<Departure>);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.has_left.set(true);
        self.0.leaving.notify_one();
    }
}
