//! Making the templates ready that the operator asked for, and telling how it goes.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use atoll_engine::Engine;
use atoll_model::TemplateName;
use atoll_template::{BuildEvent, Phase, Progress, TemplateError, Templates};
use tokio_util::sync::CancellationToken;

use crate::gate::Gate;

/// How often a step that takes long is told of again.
const REMINDER: Duration = Duration::from_secs(10);

/// Bakes what is missing or out of date, one after the other.
pub(crate) struct Baking<'a> {
    pub(crate) templates: &'a Templates,
    pub(crate) engine: &'a Arc<dyn Engine>,
    pub(crate) gate: &'a Gate,
    pub(crate) stop: &'a CancellationToken,
}

/// Where a build stands.
#[derive(Debug, Clone, Default)]
struct Standing {
    phase: Option<Phase>,
    line: String,
}

impl Baking<'_> {
    /// All of these templates. One that cannot be baked anew is used as it was before, with a warning.
    pub(crate) async fn ensure(&self, names: &[TemplateName]) -> Result<(), TemplateError> {
        for name in names {
            match self.one(name).await {
                Err(error) if !matches!(error, TemplateError::Cancelled) && self.templates.in_force(name).is_some() => {
                    let error = chain(&error);
                    tracing::warn!(template = %name, error, "the template is out of date and could not be baked anew; the earlier bake is used");
                }
                other => other?,
            }
        }
        Ok(())
    }

    async fn one(&self, name: &TemplateName) -> Result<(), TemplateError> {
        let standing = Arc::new(Mutex::new(Standing::default()));
        let progress = self.listen(name, Arc::clone(&standing));
        let baked = self.templates.ensure(name.as_str(), self.engine, &progress);
        tokio::pin!(baked);
        let began = Instant::now();
        loop {
            tokio::select! {
                result = &mut baked => {
                    result?;
                    break;
                }
                () = tokio::time::sleep(REMINDER) => remind(name, &standing, began),
            }
        }
        let worked = standing.lock().unwrap_or_else(PoisonError::into_inner).phase.is_some();
        if worked {
            tracing::info!(template = %name, seconds = began.elapsed().as_secs(), "the template is ready");
        }
        Ok(())
    }

    fn listen(&self, name: &TemplateName, standing: Arc<Mutex<Standing>>) -> Progress {
        let (gate, name) = (self.gate.clone(), name.clone());
        let listener = move |event: &BuildEvent| {
            let mut standing = standing.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                BuildEvent::Phase { phase } => {
                    gate.wait_for(format!("baking the template {name}: {}", phase.label()));
                    tracing::info!(template = %name, "{}", phase.label());
                    standing.phase = Some(*phase);
                    standing.line.clear();
                }
                BuildEvent::Line { text, .. } => {
                    tracing::debug!(template = %name, "{text}");
                    standing.line.clone_from(text);
                }
            }
        };
        Progress::new(listener, self.stop.clone())
    }
}

fn remind(name: &TemplateName, standing: &Mutex<Standing>, began: Instant) {
    let standing = standing.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(phase) = standing.phase {
        let line = standing.line.chars().take(120).collect::<String>();
        tracing::info!(template = %name, seconds = began.elapsed().as_secs(), "still {}: {line}", phase.label());
    }
}

/// An error with its causes, for one log line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
