//! The surface that everything outside calls.

use std::{fmt, sync::Arc};

use atoll_engine::Engine;
use atoll_model::Refusal;
use zeroize::Zeroizing;

use crate::config::ControlConfig;

/// All use cases. A clone is one more reference to the same.
#[derive(Debug, Clone)]
pub struct Control {}

/// The tasks behind a [`Control`]: whoever started it awaits them.
#[derive(Debug)]
pub struct ControlTasks {}

impl ControlTasks {
    /// Ends the jobs, lets every sandbox's actor finish what it is at, and leaves running sandboxes alive: the next start
    /// adopts them. Calls that are still open end as `AgentLost`.
    pub async fn shutdown(self) {
        unimplemented!()
    }
}

/// What [`Control::start`] gives.
#[derive(Debug)]
pub struct Started {
    /// The use cases.
    pub control: Control,
    /// To be shut down at the end.
    pub tasks: ControlTasks,
    /// The first admin key, when this state folder had none. It is stored hashed only, so this is the one time to show it.
    pub first_key: Option<KeyText>,
}

/// A credential's text. It does not print, and is wiped from memory when dropped.
pub struct KeyText(Zeroizing<String>);

impl KeyText {
    /// The text: `atl_` and 40 hexadecimal digits.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyText(not shown)")
    }
}

impl Control {
    /// Brings the host in line with the records, then serves: machines of recorded sandboxes are adopted, what a crash left
    /// half done is swept away, machines that no record knows are stopped.
    ///
    /// # Errors
    /// The store or the engine does not work.
    pub async fn start(
        _config: ControlConfig,
        _store: atoll_store::Store,
        _engine: Arc<dyn Engine>,
    ) -> Result<Started, Refusal> {
        unimplemented!()
    }
}
