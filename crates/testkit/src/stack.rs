//! The stack, its start and its stop.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use atoll_control::{Caller, Control, ControlConfig, ControlTasks, CreateSandbox, Recovered, Started};
use atoll_engine::{Engine, EngineError};
use atoll_engine_fake::Fake;
use atoll_model::{MachineId, SandboxId};
use atoll_store::Store;
use atoll_template::{Progress, RecipeFolder, Templates, TemplatesConfig};

use crate::{Faulty, templates};

/// A store, an engine, templates and the use cases, in a folder of their own that goes with it.
#[derive(Debug)]
pub struct Stack {
    /// The use cases.
    pub control: Control,
    /// A caller with the scope admin.
    pub admin: Caller,
    /// The engine, to make it fail.
    pub engine: Arc<Faulty>,
    /// The text of the first key.
    pub first_key: String,
    /// What the start found.
    pub recovered: Recovered,
    config: ControlConfig,
    recipes: &'static [RecipeFolder<'static>],
    tasks: ControlTasks,
    ground: Ground,
}

impl Stack {
    /// A stack with the settings of `atoll serve`, on the fake engine. Its templates have no interpreter.
    ///
    /// # Panics
    /// Anything does not work: a test has nothing to do then.
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// The same with other settings.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub async fn start_with(change: impl FnOnce(&mut ControlConfig)) -> Self {
        Self::start_on(&templates::PLAIN, change).await
    }

    /// The same with Python contexts, which takes a second or two for each sandbox: the fake engine has to warm it anew.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub async fn start_with_python() -> Self {
        Self::start_on(templates::recipes().await, |_| {}).await
    }

    async fn start_on(recipes: &'static [RecipeFolder<'static>], change: impl FnOnce(&mut ControlConfig)) -> Self {
        let ground = Ground::new();
        let folder = ground.0.path();
        let mut config = ControlConfig {
            state_dir: folder.to_owned(),
            memory_reserve_mb: 0,
            memory_per_create_mb: 1,
            disk_reserve_mb: 0,
            ..ControlConfig::default()
        };
        change(&mut config);
        let parts = Parts::open(folder, recipes).await;
        parts.bake(folder).await;
        let started = parts.start(&config).await;
        let first_key = started.first_key.as_ref().expect("a first key").expose().to_owned();
        let admin = started
            .control
            .authenticate(&first_key)
            .await
            .expect("the first key is valid");
        Self {
            control: started.control,
            admin,
            engine: parts.engine,
            first_key,
            recovered: started.recovered,
            config,
            recipes,
            tasks: started.tasks,
            ground,
        }
    }

    /// An orderly stop of the server and a new start on the same folder.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub async fn restart(self) -> Self {
        self.restart_after(async |_| {}).await
    }

    /// The same, with something that happens while no server runs. It gets the engine of the next start.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub async fn restart_after(self, meanwhile: impl AsyncFnOnce(&Faulty)) -> Self {
        self.tasks.shutdown().await;
        let parts = Parts::open(self.ground.0.path(), self.recipes).await;
        meanwhile(parts.engine.as_ref()).await;
        let started = parts.start(&self.config).await;
        Self {
            control: started.control,
            engine: parts.engine,
            recovered: started.recovered,
            tasks: started.tasks,
            ..self
        }
    }

    /// A stop that leaves nothing: every sandbox is deleted first.
    ///
    /// # Panics
    /// A sandbox can't be deleted, or something of it is left.
    pub async fn stop(self) {
        for sandbox in self
            .control
            .sandbox_list(&self.admin, &atoll_control::SandboxFilter::default())
            .await
            .expect("a list")
        {
            self.control
                .sandbox_delete(&self.admin, sandbox.id)
                .await
                .expect("a delete");
        }
        assert_eq!(self.machines().await, [], "machines are left");
        self.tasks.shutdown().await;
    }

    /// A sandbox of the test template.
    ///
    /// # Panics
    /// It can't be made.
    pub async fn sandbox(&self) -> SandboxId {
        let created = self.control.sandbox_create(&self.admin, CreateSandbox::default()).await;
        created.expect("a sandbox").id
    }

    /// The file of the records.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        database(self.folder())
    }

    /// Machines of which anything is on the host.
    ///
    /// # Panics
    /// The engine can't tell.
    pub async fn machines(&self) -> Vec<MachineId> {
        let mut machines = self.engine.inventory().await.expect("an inventory");
        machines.sort();
        machines
    }

    /// The folder of everything.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.ground.0.path()
    }
}

/// The folder of a stack. However a test ends, no machine of it outlives it.
#[derive(Debug)]
struct Ground(tempfile::TempDir);

impl Ground {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("atoll-kit-").tempdir();
        Self(folder.expect("a temporary folder"))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let folder = self.0.path().to_owned();
        // On a thread of its own: this one may be inside of a runtime.
        let swept = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(sweep(&folder)).map_err(std::io::Error::other)
        });
        match swept.join() {
            Ok(Ok(())) => {}
            failed => eprintln!("machines may be left: {failed:?}"),
        }
    }
}

async fn sweep(folder: &Path) -> Result<(), EngineError> {
    let engine = Fake::new(folder)?;
    for machine in engine.inventory().await? {
        engine.stop(&machine).await?;
    }
    Ok(())
}

fn database(folder: &Path) -> PathBuf {
    folder.join("atoll.db")
}

struct Parts {
    store: Store,
    engine: Arc<Faulty>,
    templates: Templates,
}

impl Parts {
    async fn open(folder: &Path, built_in: &'static [RecipeFolder<'static>]) -> Self {
        let fake: Arc<dyn Engine> = Arc::new(Fake::new(folder).expect("the fake engine"));
        let config = TemplatesConfig {
            state_dir: folder.to_owned(),
            built_in,
            recipes_dir: None,
            guest: atoll_guest_image::guest(),
        };
        Self {
            store: Store::open(&database(folder)).await.expect("a store"),
            engine: Arc::new(Faulty::new(fake)),
            templates: Templates::open(config).expect("templates"),
        }
    }

    async fn bake(&self, folder: &Path) {
        templates::import(&self.templates, folder).await;
        let engine: Arc<dyn Engine> = self.engine.clone();
        for template in self.templates.list() {
            let baked = self
                .templates
                .ensure(template.name.as_str(), &engine, &Progress::silent())
                .await;
            baked.expect("a bake");
        }
    }

    async fn start(&self, config: &ControlConfig) -> Started {
        let engine: Arc<dyn Engine> = self.engine.clone();
        let started = Control::start(config.clone(), self.store.clone(), engine, self.templates.clone()).await;
        started.expect("a start")
    }
}
