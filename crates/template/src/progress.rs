//! What a build tells while it works, and how it is told to stop.

use std::{fmt, sync::Arc};

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::TemplateError;

/// The steps of a build, in their order. Those that are not needed are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Debian packages into an empty root directory.
    Packages,
    /// Python packages into it.
    Python,
    /// Users, folders, files and the recipe's own steps.
    Setup,
    /// A machine is started on it.
    Boot,
    /// Interpreters import what they are to keep warm.
    Warm,
    /// Memory and disk are stored.
    Snapshot,
    /// The smoke tests run in a machine that was restored from that.
    Test,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Packages,
        Self::Python,
        Self::Setup,
        Self::Boot,
        Self::Warm,
        Self::Snapshot,
        Self::Test,
    ];

    /// What a person reads beside a progress bar.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Packages => "installing system packages",
            Self::Python => "installing Python packages",
            Self::Setup => "setting up users and files",
            Self::Boot => "booting",
            Self::Warm => "warming interpreters",
            Self::Test => "running smoke tests",
            Self::Snapshot => "taking the snapshot",
        }
    }
}

/// Something that a build tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum BuildEvent {
    /// A step begins.
    Phase {
        /// Which.
        phase: Phase,
    },
    /// A program of the step printed a line.
    Line {
        /// During which step.
        phase: Phase,
        /// Its number within the step, from 1.
        number: u64,
        /// Without its end; at most 8192 bytes.
        text: String,
    },
}

/// Who listens to a build, and the means to stop it. A clone listens to the same.
#[derive(Clone)]
pub struct Progress {
    listener: Arc<dyn Fn(&BuildEvent) + Send + Sync>,
    cancel: CancellationToken,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress")
            .field("cancel", &self.cancel)
            .finish_non_exhaustive()
    }
}

impl Progress {
    /// Tells everything to `listener`, which must not block. When `cancel` is cancelled the build kills what it started,
    /// removes what it made and ends as [`TemplateError::Cancelled`].
    #[must_use]
    pub fn new(listener: impl Fn(&BuildEvent) + Send + Sync + 'static, cancel: CancellationToken) -> Self {
        Self {
            listener: Arc::new(listener),
            cancel,
        }
    }

    /// Nobody listens and nobody cancels.
    #[must_use]
    pub fn silent() -> Self {
        Self::new(|_| {}, CancellationToken::new())
    }

    /// The same cancellation, told to another listener.
    pub(crate) fn listened_by(&self, listener: impl Fn(&BuildEvent) + Send + Sync + 'static) -> Self {
        Self::new(listener, self.cancel.clone())
    }

    pub(crate) fn tell(&self, event: &BuildEvent) {
        (self.listener)(event);
    }

    /// Does some work, or drops it half done when the build is cancelled.
    pub(crate) async fn unless_cancelled<T>(
        &self,
        work: impl Future<Output = Result<T, TemplateError>>,
    ) -> Result<T, TemplateError> {
        tokio::select! {
            done = work => done,
            () = self.cancel.cancelled() => Err(TemplateError::Cancelled),
        }
    }

    /// Begins a step.
    pub(crate) fn phase(&self, phase: Phase) -> PhaseLines<'_> {
        (self.listener)(&BuildEvent::Phase { phase });
        PhaseLines {
            progress: self,
            phase,
            number: 0,
        }
    }
}

/// Numbers the lines of one step.
#[derive(Debug)]
pub(crate) struct PhaseLines<'a> {
    progress: &'a Progress,
    phase: Phase,
    number: u64,
}

impl PhaseLines<'_> {
    pub(crate) fn line(&mut self, text: impl Into<String>) {
        self.number += 1;
        (self.progress.listener)(&BuildEvent::Line {
            phase: self.phase,
            number: self.number,
            text: text.into(),
        });
    }
}
