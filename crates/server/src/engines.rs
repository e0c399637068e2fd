//! The registry of engines: the only place that names concrete ones.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use atoll_engine::{Capabilities, Engine, EngineError};
use atoll_engine_gvisor::{Gvisor, GvisorConfig};
use futures_util::future::BoxFuture;

/// The engine taken when none is named.
pub const DEFAULT: &str = "gvisor";

type Opened = Result<Arc<dyn Engine>, EngineError>;

/// An engine that this release has.
struct Known {
    name: &'static str,
    open: fn(PathBuf) -> BoxFuture<'static, Opened>,
}

const KNOWN: [Known; 1] = [Known {
    name: "gvisor",
    open: |state_dir| {
        Box::pin(async move {
            let config = GvisorConfig { state_dir, runsc: None };
            Ok(Arc::new(Gvisor::new(config).await?) as Arc<dyn Engine>)
        })
    },
}];

/// There is no engine of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no engine named {name:?}; this release has {}", known.join(", "))]
pub struct UnknownEngine {
    name: String,
    known: Vec<&'static str>,
}

/// An engine ready to make machines below a state folder. It was found, not tried; see [`Engine::probe`].
///
/// # Errors
/// [`UnknownEngine`] outside; inside, why it is not usable here.
pub async fn open(name: &str, state_dir: &Path) -> Result<Opened, UnknownEngine> {
    let found = KNOWN
        .iter()
        .find(|engine| engine.name == name)
        .ok_or_else(|| UnknownEngine {
            name: name.to_owned(),
            known: KNOWN.iter().map(|engine| engine.name).collect(),
        })?;
    Ok((found.open)(state_dir.to_owned()).await)
}

/// What came of trying an engine.
#[derive(Debug)]
pub struct Examination {
    /// Its name.
    pub name: &'static str,
    /// What it can do here, or why it can't.
    pub result: Result<Capabilities, EngineError>,
    /// How long the trial took.
    pub took: Duration,
}

/// Tries every engine for real, each in the empty folder `scratch`, which stays small and may be removed afterwards.
pub async fn examine(scratch: &Path) -> Vec<Examination> {
    let mut examined = Vec::with_capacity(KNOWN.len());
    for engine in &KNOWN {
        let began = Instant::now();
        let result = match (engine.open)(scratch.to_owned()).await {
            Ok(opened) => opened.probe().await,
            Err(error) => Err(error),
        };
        examined.push(Examination {
            name: engine.name,
            result,
            took: began.elapsed(),
        });
    }
    examined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_engine_that_is_not_there_is_refused_by_name() {
        let refused = open("fake", Path::new("/nonexistent")).await.err().unwrap().to_string();
        assert!(refused.contains("fake") && refused.contains(DEFAULT), "{refused}");
    }
}
