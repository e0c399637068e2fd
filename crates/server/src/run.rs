//! The server from its start to its end, in the order in which things happen.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use atoll_api::ApiConfig;
use atoll_control::{Control, ControlConfig};
use atoll_engine::{Engine, EngineError};
use atoll_host::{lock::FileLock, private};
use atoll_model::Refusal;
use atoll_store::{Store, StoreError};
use atoll_template::{GuestImage, RecipeFolder, TemplateError, Templates, TemplatesConfig};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    baking::Baking,
    engines::{self, UnknownEngine},
    first_key,
    gate::Gate,
    http::HttpServer,
    settings::Settings,
    signals::Stop,
};

/// How long creates and deletes that are at work at a stop may take to finish; a create takes 25 seconds at most.
const SETTLED: Duration = Duration::from_secs(60);

/// Why the server could not start, or could not go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The state folder cannot be made or used.
    #[error("cannot use the state folder {}", path.display())]
    StateDir {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another server has it.
    #[error("another server uses the state folder {}", .0.display())]
    Locked(PathBuf),
    /// The address is taken or not ours.
    #[error("cannot listen on {address}")]
    Bind {
        /// Which.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no such engine.
    #[error(transparent)]
    UnknownEngine(#[from] UnknownEngine),
    /// The engine does not work here.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The records cannot be opened.
    #[error("cannot open the records")]
    Store(#[from] StoreError),
    /// A template cannot be made ready.
    #[error("a template cannot be made ready")]
    Template(#[from] TemplateError),
    /// The host cannot be brought in line with the records.
    #[error("cannot bring the host in line with the records")]
    Control(#[from] Refusal),
    /// A second signal came.
    #[error("ended at once, on request")]
    EndedAtOnce,
}

/// What a server is put together from, besides its settings.
pub struct Parts {
    /// What isolates.
    pub engine: Arc<dyn Engine>,
    /// What every sandbox sees at `/opt/atoll`.
    pub guest: GuestImage,
    /// Recipes that come with it.
    pub recipes: &'static [RecipeFolder<'static>],
}

impl Parts {
    /// Those of this release: the engine that the settings name, once it was tried, and what the program carries in itself.
    ///
    /// # Errors
    /// No such engine, or it does not work here.
    pub async fn of_release(settings: &Settings) -> Result<Self, ServeError> {
        let engine = engines::open(&settings.engine, &settings.state_dir).await??;
        let capabilities = engine.probe().await?;
        for warning in &capabilities.warnings {
            tracing::warn!("{warning}");
        }
        tracing::info!(
            engine = engine.name(),
            version = capabilities.version,
            "the engine works"
        );
        Ok(Self {
            engine,
            guest: atoll_guest_image::guest(),
            recipes: atoll_guest_image::recipes(),
        })
    }
}

/// A server that holds its state folder and its port, and has done nothing else yet.
#[derive(Debug)]
pub struct Claimed {
    settings: Settings,
    http: HttpServer,
    address: SocketAddr,
    _lock: FileLock,
}

impl Claimed {
    /// Takes the state folder and the port, so that a second server fails before it can do harm.
    ///
    /// # Errors
    /// Either is taken or not usable.
    pub async fn new(settings: Settings) -> Result<Self, ServeError> {
        make_private(&settings.state_dir)?;
        let lock = FileLock::try_take(&settings.state_dir.join("lock")).map_err(state_dir(&settings.state_dir))?;
        let lock = lock.ok_or_else(|| ServeError::Locked(settings.state_dir.clone()))?;
        let bind = |source| ServeError::Bind {
            address: settings.listen,
            source,
        };
        let http = HttpServer::bind(settings.listen).await.map_err(bind)?;
        let address = http.address().map_err(bind)?;
        Ok(Self {
            settings,
            http,
            address,
            _lock: lock,
        })
    }

    /// Serves until told to stop. Running sandboxes outlive it and are adopted by the next start.
    ///
    /// # Errors
    /// What keeps it from starting. Once it serves, only [`ServeError::EndedAtOnce`].
    pub async fn run(
        self,
        parts: impl AsyncFnOnce(&Settings) -> Result<Parts, ServeError>,
        stop: Stop,
    ) -> Result<(), ServeError> {
        raise_descriptor_limit();
        tokio::select! {
            ended = self.serve(parts, stop.graceful) => ended,
            () = stop.now.cancelled() => Err(ServeError::EndedAtOnce),
        }
    }

    async fn serve(
        self,
        parts: impl AsyncFnOnce(&Settings) -> Result<Parts, ServeError>,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let Self {
            settings,
            http,
            address,
            _lock,
        } = self;
        let gate = Gate::closed("the server is starting");
        let grace = Duration::from_secs(settings.drain_seconds);
        let serving = AbortOnDropHandle::new(tokio::spawn(http.run(gate.clone(), stop.clone(), grace)));
        tracing::info!(%address, state_dir = %settings.state_dir.display(), "listening");

        let parts = parts(&settings).await?;
        let database = settings.state_dir.join("atoll.db");
        // The files that SQLite keeps beside it take its mode.
        private::file(&database).map_err(state_dir(&database))?;
        let store = Store::open(&database).await?;
        let templates = open_templates(&settings, &parts)?;
        let control = control_config(&settings);
        let started = Control::start(control, store, Arc::clone(&parts.engine), templates.clone()).await?;
        if let Some(key) = &started.first_key {
            first_key::announce(key, address);
        }
        gate.admit(atoll_api::router(started.control, ApiConfig::default()));

        let baking = Baking {
            templates: &templates,
            engine: &parts.engine,
            gate: &gate,
            stop: &stop,
        };
        let baked = baking.ensure(&settings.templates).await;
        if baked.is_ok() {
            gate.ready();
            tracing::info!(%address, "ready: sandboxes can be created");
            stop.cancelled().await;
        }
        // Not ready any more: a load balancer in front sends nobody new.
        gate.wait_for("the server is shutting down");
        stop.cancel();
        if let Err(error) = serving.await {
            tracing::error!(%error, "the HTTP server failed");
        }
        // What is half done then is found and finished by the next start, as after a crash.
        if tokio::time::timeout(SETTLED, started.tasks.shutdown()).await.is_err() {
            tracing::error!("creates or deletes were still at work at the end; the next start finishes them");
        }
        tracing::info!("ended; running sandboxes stay alive for the next start");
        match baked {
            Err(TemplateError::Cancelled) => Ok(()),
            other => Ok(other?),
        }
    }
}

fn open_templates(settings: &Settings, parts: &Parts) -> Result<Templates, TemplateError> {
    Templates::open(TemplatesConfig {
        state_dir: settings.state_dir.clone(),
        built_in: parts.recipes,
        recipes_dir: settings.recipes_dir.clone(),
        guest: parts.guest.clone(),
    })
}

fn control_config(settings: &Settings) -> ControlConfig {
    ControlConfig {
        state_dir: settings.state_dir.clone(),
        max_live_sandboxes: settings.max_sandboxes as usize,
        memory_reserve_mb: settings.memory_reserve_mb,
        disk_overcommit: settings.disk_overcommit,
        ..ControlConfig::default()
    }
}

/// Nobody but its owner looks into a folder that we make. One that the operator made keeps its mode: what is worth hiding in
/// it has modes of its own.
fn make_private(path: &Path) -> Result<(), ServeError> {
    if path.is_dir() {
        return Ok(());
    }
    private::folder(path).map_err(state_dir(path))
}

fn state_dir(path: &Path) -> impl Fn(io::Error) -> ServeError + '_ {
    |source| ServeError::StateDir {
        path: path.to_owned(),
        source,
    }
}

/// Every sandbox and every connection costs descriptors; the usual soft limit of 1024 is far below what is allowed.
fn raise_descriptor_limit() {
    let raised =
        getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
}
