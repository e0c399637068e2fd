//! The templates of a state folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use atoll_engine::Engine;
use atoll_model::{BuildId, Limits, TemplateName};
use serde::{Deserialize, Serialize};

use crate::{
    BakedTemplate, Catalog, Digest, GuestImage, Progress, Recipe, RecipeFolder, TemplateError,
    bake::{self, Bake, BakeRecord},
    catalog::Entry,
    log::BoundedLog,
    places::{self, Making, Places},
    rootfs,
};

/// What [`Templates::open`] needs.
#[derive(Debug)]
pub struct TemplatesConfig<'a> {
    /// The server's state folder.
    pub state_dir: PathBuf,
    /// Recipes that come with this release.
    pub built_in: &'a [RecipeFolder<'a>],
    /// A folder with more, one folder each; they go before the built-in ones.
    pub recipes_dir: Option<PathBuf>,
    /// The agent and its drivers.
    pub guest: GuestImage,
}

/// A template as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateInfo {
    /// Its name.
    pub name: TemplateName,
    /// Other names that it answers to.
    pub aliases: Vec<TemplateName>,
    /// One sentence.
    pub description: String,
    /// What a sandbox gets when its creator names nothing else.
    pub limits: Limits,
    /// The bake in force; sandboxes can be created when there is one.
    pub baked: Option<Arc<BakedTemplate>>,
}

/// The templates of a state folder. A clone is one more reference to the same.
#[derive(Debug, Clone)]
pub struct Templates {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    places: Places,
    catalog: Catalog,
    guest: GuestImage,
    in_force: Mutex<BTreeMap<TemplateName, Arc<BakedTemplate>>>,
    /// One build of a template at a time.
    building: BTreeMap<TemplateName, tokio::sync::Mutex<()>>,
}

/// `current.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Current {
    bake: Digest,
}

/// What is known of a rootfs.
#[derive(Debug, Serialize, Deserialize)]
struct RootfsRecord {
    /// The recipe's digest, as far as the rootfs goes.
    recipe: Digest,
    bytes: u64,
    /// Seconds since 1970.
    built_at: u64,
}

/// A rootfs that is complete.
struct Rootfs {
    id: Digest,
    bytes: u64,
}

impl Templates {
    /// Reads the recipes and what was baked before, removes what a crash left half made, and repairs the guests' files. Only
    /// one server may have the state folder open.
    ///
    /// # Errors
    /// A recipe that is not right, or a state folder that cannot be read or written.
    pub fn open(config: TemplatesConfig<'_>) -> Result<Self, TemplateError> {
        let catalog = Catalog::read(config.built_in, config.recipes_dir.as_deref())?;
        let places = Places::new(config.state_dir);
        places.sweep()?;
        config.guest.install(&places.guests())?;
        let names = || catalog.recipes().map(|recipe| recipe.name.clone());
        let mut in_force = BTreeMap::new();
        for name in names() {
            if let Some(current) = places::read_json::<Current>(&places.current(&name))?
                && let Some(baked) = load(&places, &name, current.bake)?
            {
                in_force.insert(name, Arc::new(baked));
            }
        }
        Ok(Self {
            inner: Arc::new(Inner {
                building: names().map(|name| (name, tokio::sync::Mutex::default())).collect(),
                in_force: Mutex::new(in_force),
                guest: config.guest,
                catalog,
                places,
            }),
        })
    }

    /// All of them, in the order of their names.
    #[must_use]
    pub fn list(&self) -> Vec<TemplateInfo> {
        self.inner.catalog.recipes().map(|recipe| self.info(recipe)).collect()
    }

    /// The one of a name or alias.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<TemplateInfo> {
        self.inner.catalog.get(name).map(|recipe| self.info(recipe))
    }

    fn info(&self, recipe: &Recipe) -> TemplateInfo {
        TemplateInfo {
            name: recipe.name.clone(),
            aliases: recipe.aliases.clone(),
            description: recipe.description.clone(),
            limits: recipe.size.into(),
            baked: self.in_force(&recipe.name),
        }
    }

    /// The bake in force. No I/O.
    #[must_use]
    pub fn in_force(&self, name: &TemplateName) -> Option<Arc<BakedTemplate>> {
        let in_force = self.inner.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        in_force.get(name).cloned()
    }

    /// A bake that may no longer be in force, for a sandbox that was made from it. `None` when it is gone.
    ///
    /// # Errors
    /// The state folder cannot be read.
    pub fn baked(&self, name: &TemplateName, digest: &Digest) -> Result<Option<BakedTemplate>, TemplateError> {
        load(&self.inner.places, name, digest.clone())
    }

    /// Makes a template ready: what is missing or out of date is built and baked, nothing else is done. A second call for the
    /// same template waits for the first.
    ///
    /// # Errors
    /// [`TemplateError`]; what was in force stays in force.
    pub async fn ensure(
        &self,
        name: &str,
        engine: &Arc<dyn Engine>,
        progress: &Progress,
    ) -> Result<Arc<BakedTemplate>, TemplateError> {
        self.make(name, engine, progress, false).await
    }

    /// Builds a template anew from its recipe, rootfs included, as when packages without pins are to be brought up to date.
    ///
    /// # Errors
    /// [`TemplateError`]; what was in force stays in force.
    pub async fn build(
        &self,
        name: &str,
        engine: &Arc<dyn Engine>,
        progress: &Progress,
    ) -> Result<Arc<BakedTemplate>, TemplateError> {
        self.make(name, engine, progress, true).await
    }

    /// Takes a root directory that was built elsewhere from the very recipe that is here, so that [`ensure`](Self::ensure) only
    /// has to bake it. `folder` lies on the file system of the state folder and is moved away.
    ///
    /// # Errors
    /// [`TemplateError::Unknown`]; the folder can't be read or moved.
    pub async fn import_rootfs(&self, name: &str, folder: &std::path::Path) -> Result<(), TemplateError> {
        let entry = self.inner.catalog.entry(name);
        let recipe = &entry.ok_or_else(|| TemplateError::Unknown(name.to_owned()))?.recipe;
        self.inner
            .put_rootfs(recipe, folder, BuildId::random())
            .await
            .map(|_| ())
    }

    async fn make(
        &self,
        name: &str,
        engine: &Arc<dyn Engine>,
        progress: &Progress,
        anew: bool,
    ) -> Result<Arc<BakedTemplate>, TemplateError> {
        let unknown = || TemplateError::Unknown(name.to_owned());
        let entry = self.inner.catalog.entry(name).ok_or_else(unknown)?;
        let gate = self.inner.building.get(&entry.recipe.name).ok_or_else(unknown)?;
        let _gate = progress.unless_cancelled(async { Ok(gate.lock().await) }).await?;
        Build::new(&self.inner, entry, engine, progress).run(anew).await
    }

    /// Removes bakes, rootfs and guest folders that are neither in force nor in `pinned`, the bakes of existing sandboxes. The
    /// newest rootfs of each recipe stays.
    /// Not while a template is built.
    ///
    /// # Errors
    /// Something could not be removed; the rest was.
    pub async fn collect(&self, pinned: &BTreeSet<Digest>) -> Result<(), TemplateError> {
        for gate in self.inner.building.values() {
            drop(gate.lock().await);
        }
        let (inner, pinned) = (Arc::clone(&self.inner), pinned.clone());
        let swept = tokio::task::spawn_blocking(move || inner.collect(&pinned)).await;
        swept.unwrap_or_else(|error| Err(TemplateError::host("sweep", "templates")(std::io::Error::other(error))))
    }
}

fn load(places: &Places, name: &TemplateName, digest: Digest) -> Result<Option<BakedTemplate>, TemplateError> {
    let record = places::read_json::<BakeRecord>(&places.bake(name, &digest).join("bake.json"))?;
    let baked = record.map(|record| BakedTemplate::of(record, digest, places));
    Ok(baked.filter(|baked| baked.rootfs.is_dir() && baked.guest_dir.is_dir() && baked.snapshot.is_dir()))
}

impl Inner {
    /// Puts a complete root directory in its place.
    async fn put_rootfs(
        &self,
        recipe: &Recipe,
        folder: &std::path::Path,
        build: BuildId,
    ) -> Result<Rootfs, TemplateError> {
        let places = &self.places;
        let bytes = bytes_of(folder).await?;
        let digest = recipe.rootfs_digest();
        let id = Digest::of([digest.as_str().as_bytes(), build.to_string().as_bytes()]);
        let record = RootfsRecord {
            recipe: digest,
            bytes,
            built_at: now(),
        };
        // The record last: a rootfs without one is not complete, and the next start removes it.
        places::put(folder, &places.rootfs(&recipe.name, &id))?;
        places::write_json(&places.rootfs_record(&recipe.name, &id), &record)?;
        Ok(Rootfs { id, bytes })
    }

    /// The newest complete rootfs of this very recipe.
    fn newest_rootfs(&self, recipe: &Recipe) -> Result<Option<Rootfs>, TemplateError> {
        let (name, wanted) = (&recipe.name, recipe.rootfs_digest());
        let mut found: Option<(u64, Rootfs)> = None;
        for id in digests_in(&self.places.all_rootfs(name))? {
            let record = places::read_json::<RootfsRecord>(&self.places.rootfs_record(name, &id))?;
            if let Some(record) = record.filter(|record| record.recipe == wanted)
                && found.as_ref().is_none_or(|(built_at, _)| *built_at <= record.built_at)
            {
                let bytes = record.bytes;
                found = Some((record.built_at, Rootfs { id, bytes }));
            }
        }
        Ok(found.map(|(_, rootfs)| rootfs))
    }

    fn collect(&self, pinned: &BTreeSet<Digest>) -> Result<(), TemplateError> {
        let mut guests = BTreeSet::from([self.guest.digest().clone()]);
        for recipe in self.catalog.recipes() {
            let name = &recipe.name;
            let current = places::read_json::<Current>(&self.places.current(name))?.map(|current| current.bake);
            // One that is not baked yet is what the next bake starts from.
            let mut rootfs: BTreeSet<Digest> = self
                .newest_rootfs(recipe)?
                .map(|newest| newest.id)
                .into_iter()
                .collect();
            for bake in digests_in(&self.places.bakes(name))? {
                let folder = self.places.bake(name, &bake);
                if current.as_ref() == Some(&bake) || pinned.contains(&bake) {
                    let record = places::read_json::<BakeRecord>(&folder.join("bake.json"))?;
                    rootfs.extend(record.iter().map(|record| record.rootfs.clone()));
                    guests.extend(record.map(|record| record.guest));
                } else {
                    remove(&folder)?;
                }
            }
            for id in digests_in(&self.places.all_rootfs(name))?.difference(&rootfs) {
                let record = self.places.rootfs_record(name, id);
                // The record first: a rootfs without one is removed by the next start.
                std::fs::remove_file(&record).map_err(TemplateError::host("remove", record))?;
                remove(&self.places.rootfs(name, id))?;
            }
        }
        for guest in digests_in(&self.places.guests())?.difference(&guests) {
            remove(&self.places.guest(guest))?;
        }
        Ok(())
    }
}

fn digests_in(folder: &Path) -> Result<BTreeSet<Digest>, TemplateError> {
    Ok(places::names_in(folder)?
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect())
}

fn remove(folder: &Path) -> Result<(), TemplateError> {
    std::fs::remove_dir_all(folder).map_err(TemplateError::host("remove", folder))
}

/// One build of one template.
struct Build<'a> {
    inner: &'a Inner,
    entry: &'a Entry,
    engine: &'a Arc<dyn Engine>,
    progress: Progress,
    log: Arc<Mutex<BoundedLog>>,
    id: BuildId,
}

impl<'a> Build<'a> {
    fn new(inner: &'a Inner, entry: &'a Entry, engine: &'a Arc<dyn Engine>, progress: &Progress) -> Self {
        let log = Arc::new(Mutex::new(BoundedLog::default()));
        let (listener, copy) = (progress.clone(), Arc::clone(&log));
        let progress = progress.listened_by(move |event| {
            copy.lock().unwrap_or_else(PoisonError::into_inner).add(event);
            listener.tell(event);
        });
        Self {
            inner,
            entry,
            engine,
            progress,
            log,
            id: BuildId::random(),
        }
    }

    async fn run(self, anew: bool) -> Result<Arc<BakedTemplate>, TemplateError> {
        let made = self.make(anew).await;
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner).text();
        if !log.is_empty() {
            let path = self.inner.places.log(&self.entry.recipe.name);
            std::fs::write(&path, log).map_err(TemplateError::host("write", path))?;
        }
        made
    }

    async fn make(&self, anew: bool) -> Result<Arc<BakedTemplate>, TemplateError> {
        let name = &self.entry.recipe.name;
        let places = &self.inner.places;
        let found = if anew {
            None
        } else {
            self.inner.newest_rootfs(&self.entry.recipe)?
        };
        let rootfs = match found {
            Some(rootfs) => rootfs,
            None => self.make_rootfs().await?,
        };
        let guest = &self.inner.guest;
        let digest = bake::digest(&self.entry.recipe, &rootfs.id, guest.digest(), self.engine.as_ref());
        guest.install(&places.guests())?;
        if load(places, name, digest.clone())?.is_none() {
            self.bake(&rootfs, &digest).await?;
        }
        let missing = || {
            TemplateError::host("find the bake in", places.bake(name, &digest))(std::io::Error::other(
                "it is not complete",
            ))
        };
        let baked = Arc::new(load(places, name, digest.clone())?.ok_or_else(missing)?);
        places::write_json(&places.current(name), &Current { bake: digest })?;
        let mut in_force = self.inner.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        in_force.insert(name.clone(), Arc::clone(&baked));
        Ok(baked)
    }

    async fn make_rootfs(&self) -> Result<Rootfs, TemplateError> {
        let recipe = &self.entry.recipe;
        let making = self.making()?;
        let folder = making.path().join("rootfs");
        let work = making.path().join("work");
        let build = rootfs::build(recipe, &folder, &work, &self.progress);
        self.progress.unless_cancelled(build).await?;
        self.inner.put_rootfs(recipe, &folder, self.id).await
    }

    async fn bake(&self, rootfs: &Rootfs, digest: &Digest) -> Result<(), TemplateError> {
        let recipe = &self.entry.recipe;
        let places = &self.inner.places;
        let making = self.making()?;
        let folder = making.path().join("bake");
        let snapshot = folder.join("snapshot");
        std::fs::create_dir_all(&snapshot).map_err(TemplateError::host("make", &snapshot))?;
        let bake = Bake {
            entry: self.entry,
            rootfs: places.rootfs(&recipe.name, &rootfs.id),
            guest_dir: places.guest(self.inner.guest.digest()),
            engine: self.engine,
        };
        bake.run(&snapshot, &self.progress).await?;
        let bytes = bytes_of(&snapshot).await?;
        let record = BakeRecord {
            template: recipe.name.clone(),
            rootfs: rootfs.id.clone(),
            guest: self.inner.guest.digest().clone(),
            engine: self.engine.name().to_owned(),
            engine_version: self.engine.capabilities().version.clone(),
            limits: recipe.size.into(),
            env: recipe.env.clone(),
            warm_ups: recipe.warm_ups.clone(),
            languages: recipe.warm_ups.iter().map(|warm| warm.language.clone()).collect(),
            bytes: rootfs.bytes + bytes,
            baked_at: now(),
        };
        places::write_json(&folder.join("bake.json"), &record)?;
        let target = places.bake(&recipe.name, digest);
        if target.is_dir() {
            remove(&target)?;
        }
        places::put(&folder, &target)
    }

    fn making(&self) -> Result<Making, TemplateError> {
        self.inner.places.making(&self.entry.recipe.name, self.id)
    }
}

async fn bytes_of(folder: &Path) -> Result<u64, TemplateError> {
    let path = folder.to_owned();
    let counted = tokio::task::spawn_blocking(move || atoll_host::disk::tree_bytes(&path)).await;
    let counted = counted.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    counted.map_err(TemplateError::host("measure", folder))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
