//! The surface that everything outside calls, and the tasks behind it.

use std::{fmt, sync::Arc};

use atoll_engine::Engine;
use atoll_model::Refusal;
use atoll_store::Store;
use atoll_template::Templates;
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    KeyText, Recovered,
    admission::{Admission, ThisHost},
    answers::Answers,
    builds::Builds,
    config::ControlConfig,
    jobs::Retention,
    key_cache::KeyCache,
    live::LiveMap,
    metrics::Metrics,
    refusal,
};

/// The workspace of an installation; others are made with their first key.
const DEFAULT_WORKSPACE: &str = "default";

/// All use cases. A clone is one more reference to the same.
#[derive(Clone)]
pub struct Control {
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("live", &self.inner.live.len())
            .finish_non_exhaustive()
    }
}

/// What the use cases share.
pub(crate) struct Inner {
    pub(crate) config: ControlConfig,
    pub(crate) store: Store,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) templates: Templates,
    pub(crate) live: LiveMap,
    pub(crate) keys: KeyCache,
    pub(crate) builds: Builds,
    pub(crate) metrics: Metrics,
    pub(crate) admission: Admission,
    pub(crate) answers: Answers,
    /// Turns for creates that are at work.
    pub(crate) booting: Semaphore,
    /// Every task that this crate starts.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the server stops.
    pub(crate) stopping: CancellationToken,
}

/// The tasks behind a [`Control`]: whoever started it shuts them down.
#[derive(Debug)]
pub struct ControlTasks {
    control: Control,
}

impl ControlTasks {
    /// Ends the jobs, lets creates and deletes that are at work finish, and leaves running sandboxes alive: the next start
    /// adopts them. Calls that are still open end as `AgentLost`. New creates are refused from here on.
    pub async fn shutdown(self) {
        self.control.inner.stopping.cancel();
        self.control.inner.tasks.close();
        self.control.inner.tasks.wait().await;
        self.control.inner.store.close().await;
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
    /// What the start found on the host.
    pub recovered: Recovered,
}

impl Control {
    /// Runs work that must not stop half way when its caller goes away.
    pub(crate) async fn in_task<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        let done = self.inner.tasks.spawn(work).await;
        done.unwrap_or_else(|error| Err(refusal::internal("a task of the server ended early", &error)))
    }

    /// Brings the host in line with the records, then serves: machines of recorded sandboxes are adopted, what a crash left
    /// half done is swept away, machines that no record knows are stopped. The caller makes sure that no other process uses
    /// the same state folder.
    ///
    /// # Errors
    /// The store or the engine does not work.
    pub async fn start(
        config: ControlConfig,
        store: Store,
        engine: Arc<dyn Engine>,
        templates: Templates,
    ) -> Result<Started, Refusal> {
        let now = OffsetDateTime::now_utc();
        let workspace = store.workspace_ensure(DEFAULT_WORKSPACE, now).await;
        let workspace = workspace.map_err(|error| refusal::of_store(&error))?.id;
        let unfinished = store
            .build_fail_unfinished("the server stopped during the build; start it again", now)
            .await;
        unfinished.map_err(|error| refusal::of_store(&error))?;
        let (builds, build_runner) = Builds::new();
        let control = Self {
            inner: Arc::new(Inner {
                admission: Admission::new(&config, Arc::new(ThisHost::new(&config.state_dir))),
                answers: Answers::new(config.answers_bytes),
                booting: Semaphore::new(config.max_booting.max(1)),
                config,
                store,
                engine,
                templates,
                live: LiveMap::default(),
                keys: KeyCache::default(),
                builds,
                metrics: Metrics::default(),
                tasks: TaskTracker::new(),
                stopping: CancellationToken::new(),
            }),
        };
        let recovered = control.recover().await?;
        tracing::info!(?recovered, "the host is in line with the records");
        control.collect_templates().await?;
        let first_key = control.first_key(workspace).await?;
        control.inner.tasks.spawn(Retention(control.clone()).run());
        control.inner.tasks.spawn(build_runner.run(control.clone()));
        Ok(Started {
            tasks: ControlTasks {
                control: control.clone(),
            },
            control,
            first_key,
            recovered,
        })
    }
}
