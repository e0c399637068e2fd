//! Forgets what ended long ago.

use std::time::Duration;

use time::OffsetDateTime;

use crate::{Control, refusal};

/// How often it looks.
const EVERY: Duration = Duration::from_secs(3600);

/// Removes ended sandboxes, their events and idempotency keys, and ended builds once they are older than the operator keeps.
pub(crate) struct Retention(pub(crate) Control);

impl Retention {
    pub(crate) async fn run(self) {
        let mut beat = tokio::time::interval(EVERY);
        loop {
            tokio::select! {
                () = self.0.inner.stopping.cancelled() => return,
                _ = beat.tick() => self.once(OffsetDateTime::now_utc()).await,
            }
        }
    }

    async fn once(&self, now: OffsetDateTime) {
        let Some(before) = now.checked_sub(self.0.inner.config.retention.try_into().unwrap_or(time::Duration::MAX))
        else {
            return;
        };
        let store = &self.0.inner.store;
        for purged in [store.sandbox_purge(before).await, store.build_purge(before).await] {
            match purged {
                Ok(0) => {}
                Ok(count) => tracing::info!(count, "old records were removed"),
                Err(error) => tracing::error!(error = refusal::chain(&error), "old records were not removed"),
            }
        }
    }
}
