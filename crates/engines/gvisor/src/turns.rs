//! One thing at a time on each machine, even when its caller has gone away.
//!
//! Making a machine runs on a blocking thread, and that goes on when the caller's future is dropped. A `stop` right after must
//! not look before it is through, or it would miss what is made after its look.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use atoll_model::MachineId;
use tokio::sync::OwnedMutexGuard;

type Turn = Arc<tokio::sync::Mutex<()>>;

/// Whose turn it is, for each machine.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    machines: Mutex<HashMap<MachineId, Turn>>,
}

impl Turns {
    /// Waits until nobody works on the machine, and keeps others waiting until the guard is dropped.
    pub(crate) async fn take(&self, machine: &MachineId) -> OwnedMutexGuard<()> {
        let turn = self.lock().entry(machine.clone()).or_default().clone();
        turn.lock_owned().await
    }

    /// Forgets a machine that is gone, unless somebody waits for it.
    pub(crate) fn forget(&self, machine: &MachineId, guard: OwnedMutexGuard<()>) {
        let mut machines = self.lock();
        drop(guard);
        // One reference is the map's: with no other, nobody holds it or waits, and nobody can come while the map is locked.
        if machines.get(machine).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            machines.remove(machine);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<MachineId, Turn>> {
        // No code that could panic runs under this lock, and a map of locks cannot be half-changed.
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_machine_is_forgotten_only_when_nobody_waits_for_it() {
        let turns = Turns::default();
        let machine: MachineId = "one".parse().unwrap();
        let first = turns.take(&machine).await;
        let mut second = Box::pin(turns.take(&machine));
        assert!(futures_poll(&mut second).await.is_none());
        turns.forget(&machine, first);
        assert_eq!(turns.lock().len(), 1);
        let second = second.await;
        turns.forget(&machine, second);
        assert_eq!(turns.lock().len(), 0);
    }

    /// Polls once.
    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        std::future::poll_fn(|context| match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }
}
