//! `atoll serve` on the fake engine, for flows that need a server and no isolation. Its sandboxes are plain processes of the
//! host, so it is never part of a release.

use std::{process::ExitCode, sync::Arc};

use atoll_engine::Engine;
use atoll_engine_fake::Fake;
use atoll_server::{
    logging,
    run::{Claimed, Parts, ServeError},
    settings::{HostFacts, Overrides, Settings},
    signals::Stop,
};
use atoll_template::{Templates, TemplatesConfig};
use atoll_testkit::templates;
use clap::Parser;

/// The settings of `atoll serve`.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    settings: Overrides,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll-testserver: {error}");
            let causes = std::iter::successors(error.source(), |cause| cause.source());
            causes.for_each(|cause| eprintln!("  because: {cause}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let settings = arguments.settings.resolve(&HostFacts::gather(true))?;
    logging::install(&settings.log, settings.log_format)?;
    let (stop, _listener) = Stop::on_signals()?;
    Ok(Claimed::new(settings).await?.run(parts, stop).await?)
}

async fn parts(settings: &Settings) -> Result<Parts, ServeError> {
    let engine: Arc<dyn Engine> = Arc::new(Fake::new(&settings.state_dir)?);
    let parts = Parts {
        engine,
        guest: atoll_guest_image::guest(),
        recipes: templates::recipes().await,
    };
    let here = Templates::open(TemplatesConfig {
        state_dir: settings.state_dir.clone(),
        built_in: parts.recipes,
        recipes_dir: None,
        guest: parts.guest.clone(),
    })?;
    templates::import(&here, &settings.state_dir).await;
    Ok(parts)
}
