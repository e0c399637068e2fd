//! Whether an agent is still there.

use std::time::Duration;

use atoll_guest_link::GuestLink;
use tokio::time::{MissedTickBehavior, interval};

use crate::{Control, live::Live};

/// How often an agent that is in use is asked.
const EVERY: Duration = Duration::from_secs(5);

impl Control {
    /// Resolves when the link is dead, or the agent silent for too long while calls are open. An idle agent is not asked.
    pub(crate) async fn agent_trouble(&self, link: &GuestLink, live: &Live) -> String {
        let silent_after = self.inner.config.agent_timeout * 3;
        let heartbeat = async {
            let mut beat = interval(EVERY);
            beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                beat.tick().await;
                if live.idle.in_use()
                    && let Err(error) = link.ping(silent_after).await
                {
                    break error.to_string();
                }
            }
        };
        tokio::select! {
            why = link.lost() => why,
            why = heartbeat => why,
        }
    }
}
