//! The idle clock of a sandbox: what counts as use, and when there was none for too long.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// Shared by the calls, which use the sandbox, and the actor, which ends it.
#[derive(Debug)]
pub(crate) struct IdleClock {
    idle: Mutex<Idle>,
    /// The deadline may be earlier than before.
    changed: Notify,
}

#[derive(Debug)]
struct Idle {
    /// Calls that use the sandbox now.
    active: u32,
    last_used: Instant,
    /// `None` is "never".
    limit: Option<Duration>,
    /// The limit has passed and was acted on; no use can begin any more.
    expired: bool,
}

impl IdleClock {
    /// A clock that counts as used right now.
    pub(crate) fn new(ttl_seconds: u64, persistent: bool) -> Self {
        Self {
            idle: Mutex::new(Idle {
                active: 0,
                last_used: Instant::now(),
                limit: limit(ttl_seconds, persistent),
                expired: false,
            }),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a use that lasts as long as the guard. `None` when the sandbox has expired: whoever gets a guard can rely on
    /// the sandbox not expiring under it.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<InUse> {
        let mut idle = self.lock();
        if idle.expired {
            return None;
        }
        idle.active += 1;
        Some(InUse(Arc::clone(self)))
    }

    /// Whether any call uses the sandbox now.
    pub(crate) fn in_use(&self) -> bool {
        self.lock().active > 0
    }

    /// How long there was no use; zero while there is one.
    pub(crate) fn idle_for(&self) -> Duration {
        let idle = self.lock();
        if idle.active > 0 {
            Duration::ZERO
        } else {
            idle.last_used.elapsed()
        }
    }

    /// A new limit; counts from the last use on. `false` when the sandbox has expired already.
    pub(crate) fn set_limit(&self, ttl_seconds: u64, persistent: bool) -> bool {
        let mut idle = self.lock();
        if idle.expired {
            return false;
        }
        idle.limit = limit(ttl_seconds, persistent);
        self.changed.notify_one();
        true
    }

    /// Waits until the limit has passed without use, and closes the clock in the same moment. Only the actor calls this.
    pub(crate) async fn expired(&self) {
        loop {
            let deadline = {
                let mut idle = self.lock();
                let deadline = idle.deadline();
                if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                    idle.expired = true;
                    return;
                }
                deadline
            };
            // A later deadline needs no word: the old one is awaited and looked at again.
            match deadline {
                Some(deadline) => tokio::select! {
                    () = tokio::time::sleep_until(deadline) => {}
                    () = self.changed.notified() => {}
                },
                None => self.changed.notified().await,
            }
        }
    }
}

impl Idle {
    fn deadline(&self) -> Option<Instant> {
        let limit = self.limit.filter(|_| self.active == 0)?;
        self.last_used.checked_add(limit)
    }
}

fn limit(ttl_seconds: u64, persistent: bool) -> Option<Duration> {
    (ttl_seconds > 0 && !persistent).then(|| Duration::from_secs(ttl_seconds))
}

/// A use under way; its end starts the clock anew.
#[derive(Debug)]
pub(crate) struct InUse(Arc<IdleClock>);

impl Drop for InUse {
    fn drop(&mut self) {
        let mut idle = self.0.lock();
        idle.active = idle.active.saturating_sub(1);
        idle.last_used = Instant::now();
        if idle.active == 0 {
            self.0.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(ttl_seconds: u64) -> Arc<IdleClock> {
        Arc::new(IdleClock::new(ttl_seconds, false))
    }

    /// Whether the clock expires within so many seconds (of paused time, which moves by itself).
    async fn expires_within(clock: &IdleClock, seconds: u64) -> bool {
        tokio::time::timeout(Duration::from_secs(seconds), clock.expired())
            .await
            .is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn it_expires_after_its_limit_and_not_before() {
        let clock = clock(60);
        assert!(!expires_within(&clock, 59).await);
        assert!(expires_within(&clock, 2).await);
        assert!(clock.begin().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_use_counts_for_its_whole_length_and_then_the_limit_begins() {
        let clock = clock(60);
        let long_cell = clock.begin().unwrap();
        assert!(!expires_within(&clock, 3600).await);
        drop(long_cell);
        assert!(!expires_within(&clock, 59).await);
        assert!(expires_within(&clock, 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_use_wakes_whoever_waits() {
        let clock = clock(60);
        let cell = clock.begin().unwrap();
        let waiter = tokio::spawn({
            let clock = Arc::clone(&clock);
            async move { expires_within(&clock, 200).await }
        });
        tokio::time::sleep(Duration::from_secs(100)).await;
        drop(cell);
        assert!(waiter.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn zero_and_persistent_never_expire() {
        assert!(!expires_within(&clock(0), 1_000_000).await);
        assert!(!expires_within(&IdleClock::new(1, true), 1_000_000).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_either_holds_or_is_refused() {
        let clock = clock(10);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(clock.set_limit(100, false));
        assert!(!expires_within(&clock, 80).await);
        assert!(expires_within(&clock, 20).await);
        assert!(!clock.set_limit(100, false));
    }
}
