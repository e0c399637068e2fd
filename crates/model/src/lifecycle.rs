//! The lifecycle of a sandbox: a pure table.
//!
//! ```text
//!            ThawAcknowledged        PauseBegun/PauseDone
//!  Creating ------------------> Running <-----------------> Paused
//!     |  \                       |  ^ \                       |
//!     |   `--- Failed <----------'  |  `- HibernateDone -> Hibernated
//!     |                             `------- WakeDone ---------'
//!     `---------------> Stopping -> Deleted      (StopRequested from every live state)
//! ```
//!
//! Only the sandbox's actor (`control`) moves a sandbox from one state to the next.

use serde::{Deserialize, Serialize};

/// The states; the words are those of the wire (pandastack-v1 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Recorded, and its machine is being restored.
    Creating,
    /// Thawed and usable.
    Running,
    /// Frozen in memory.
    Paused,
    /// Memory and disk are in the snapshot store; no process is left.
    Hibernated,
    /// Its machine is being taken away.
    Stopping,
    /// Gone on request or by its idle limit.
    Deleted,
    /// Gone by a fault.
    Failed,
}

/// What happens to a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The agent acknowledged the thaw of a create.
    ThawAcknowledged,
    /// A step of the create failed.
    CreateFailed,
    /// The machine was frozen.
    Paused,
    /// The machine was unfrozen.
    Resumed,
    /// Memory and disk are stored, the machine is gone.
    Hibernated,
    /// The machine was restored and thawed again.
    Woken,
    /// The machine ended by itself.
    MachineDied,
    /// The server gave it up: its agent stays silent, or the server met a fault of its own.
    GivenUp,
    /// A caller, the idle limit or the lease ends it.
    StopRequested,
    /// Nothing of the machine is left.
    Stopped,
}

/// An event that this state does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} is not possible while {state:?}")]
pub struct Forbidden {
    /// The state it met.
    pub state: State,
    /// The event.
    pub event: Event,
}

impl State {
    /// The next state.
    ///
    /// # Errors
    /// [`Forbidden`] when the table has no such arrow.
    pub fn next(self, event: Event) -> Result<Self, Forbidden> {
        use Event as E;
        use State::{Creating, Deleted, Failed, Hibernated, Paused, Running, Stopping};
        Ok(match (self, event) {
            (Creating, E::ThawAcknowledged) | (Paused, E::Resumed) | (Hibernated, E::Woken) => Running,
            (Running, E::Paused) => Paused,
            (Running | Paused, E::Hibernated) => Hibernated,
            (Creating, E::CreateFailed) => Failed,
            (Creating | Running | Paused, E::MachineDied | E::GivenUp) => Failed,
            // A stop asked for twice is one stop; a machine that dies while it is stopped was stopped.
            (Creating | Running | Paused | Hibernated | Stopping, E::StopRequested) => Stopping,
            (Stopping, E::MachineDied | E::GivenUp) => Stopping,
            (Stopping, E::Stopped) => Deleted,
            (state, event) => return Err(Forbidden { state, event }),
        })
    }

    /// Whether nothing more can happen.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Deleted | Self::Failed)
    }

    /// Whether a machine may exist for it.
    #[must_use]
    pub fn may_have_machine(self) -> bool {
        matches!(self, Self::Creating | Self::Running | Self::Paused | Self::Stopping)
    }

    /// The word used on the wire and in the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Hibernated => "hibernated",
            Self::Stopping => "stopping",
            Self::Deleted => "deleted",
            Self::Failed => "failed",
        }
    }

    /// The state of that word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [
            Self::Creating,
            Self::Running,
            Self::Paused,
            Self::Hibernated,
            Self::Stopping,
            Self::Deleted,
            Self::Failed,
        ]
        .into_iter()
        .find(|state| state.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STATES: [State; 7] = [
        State::Creating,
        State::Running,
        State::Paused,
        State::Hibernated,
        State::Stopping,
        State::Deleted,
        State::Failed,
    ];
    const EVENTS: [Event; 10] = [
        Event::ThawAcknowledged,
        Event::CreateFailed,
        Event::Paused,
        Event::Resumed,
        Event::Hibernated,
        Event::Woken,
        Event::MachineDied,
        Event::GivenUp,
        Event::StopRequested,
        Event::Stopped,
    ];

    proptest! {
        #[test]
        fn nothing_leaves_a_final_state(steps in proptest::collection::vec(0usize..EVENTS.len(), 0..40)) {
            let mut state = State::Creating;
            for step in steps {
                let was = state;
                if let Ok(next) = state.next(EVENTS[step]) {
                    state = next;
                }
                if was.is_final() {
                    prop_assert_eq!(was, state);
                }
            }
        }

        #[test]
        fn a_stop_once_begun_ends_in_deleted_only(steps in proptest::collection::vec(0usize..EVENTS.len(), 0..40)) {
            let mut state = State::Stopping;
            for step in steps {
                if let Ok(next) = state.next(EVENTS[step]) {
                    state = next;
                }
                prop_assert!(matches!(state, State::Stopping | State::Deleted));
            }
        }
    }

    #[test]
    fn every_live_state_can_be_stopped() {
        for state in STATES {
            assert_eq!(state.next(Event::StopRequested).is_ok(), !state.is_final(), "{state:?}");
        }
    }

    #[test]
    fn only_a_thaw_makes_a_new_sandbox_run() {
        for event in EVENTS {
            let runs = State::Creating.next(event) == Ok(State::Running);
            assert_eq!(runs, event == Event::ThawAcknowledged, "{event:?}");
        }
    }
}
