//! `smoke.toml`: what a template must be able to do before it is put in force.
//!
//! The tests run in a machine that was restored from the new snapshot, so they prove the restore as well.

use std::{collections::BTreeMap, time::Duration};

use atoll_guest_link::{CellOutput, ExecEvent, GuestLink};
use atoll_model::{ContextId, Outcome, OutputLimit};
use atoll_protocol::types::{CellEnd, CellEvent, CellRun, ContextCreate, ExecEnd, ExecStart, Program};
use serde::Deserialize;

use crate::{RecipeError, TemplateError, progress::PhaseLines};

/// What one test may take.
const DEADLINE: Duration = Duration::from_secs(120);
/// Bytes of output that a test looks at.
const KEPT: u64 = 64 * 1024;

/// The smoke tests of a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Smoke {
    /// Commands, in their order.
    #[serde(default, rename = "command")]
    pub commands: Vec<SmokeCommand>,
    /// Cells, in their order; those of one language share a context.
    #[serde(default, rename = "cell")]
    pub cells: Vec<SmokeCell>,
}

/// `[[command]]`: a command that must succeed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmokeCommand {
    /// What it shows, as in "sudo works without a password".
    pub name: String,
    /// For `sh -c`.
    pub shell: String,
    /// Who runs it; root when absent.
    pub user: Option<String>,
    /// All of its standard output, white space at both ends aside; anything when absent.
    pub stdout: Option<String>,
}

/// `[[cell]]`: a cell that must end well.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmokeCell {
    /// What it shows.
    pub name: String,
    /// Whose context runs it.
    pub language: String,
    /// The code.
    pub code: String,
    /// All of its standard output, white space at both ends aside; anything when absent.
    pub stdout: Option<String>,
    /// `text/plain` of its last result; anything when absent.
    pub text: Option<String>,
    /// MIME types that its results must hold.
    #[serde(default)]
    pub mime: Vec<String>,
}

impl Smoke {
    /// Reads smoke tests. `file` is what errors call it.
    ///
    /// # Errors
    /// [`RecipeError::Syntax`].
    pub fn parse(file: &str, text: &str) -> Result<Self, RecipeError> {
        toml::from_str(text).map_err(|error| RecipeError::Syntax {
            file: file.to_owned(),
            detail: error.to_string(),
        })
    }

    /// Runs all of them; the first that fails is the error.
    pub(crate) async fn run(&self, link: &GuestLink, lines: &mut PhaseLines<'_>) -> Result<(), TemplateError> {
        for command in &self.commands {
            lines.line(&command.name);
            command.check(link).await?;
        }
        let mut contexts = BTreeMap::new();
        for cell in &self.cells {
            lines.line(&cell.name);
            let context = match contexts.get(&cell.language) {
                Some(context) => *context,
                None => {
                    let context = cell.context(link).await?;
                    contexts.insert(cell.language.clone(), context);
                    context
                }
            };
            cell.check(link, context).await?;
        }
        Ok(())
    }
}

impl SmokeCommand {
    async fn check(&self, link: &GuestLink) -> Result<(), TemplateError> {
        let start = ExecStart {
            program: Program::Shell(self.shell.clone()),
            cwd: None,
            user: self.user.clone(),
            env: BTreeMap::new(),
            stdin: false,
            terminal: None,
            timeout_ms: Some(millis(DEADLINE)),
            keep: Some(OutputLimit(KEPT)),
            detach: false,
        };
        let failed = |source| TemplateError::guest(format!("the smoke test {:?}", self.name))(source);
        let mut session = link.exec(&start).await.map_err(failed)?;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut end: Option<ExecEnd> = None;
        while let Some(event) = session.next().await.map_err(failed)? {
            match event {
                ExecEvent::Stdout(bytes) => stdout.extend_from_slice(&bytes),
                ExecEvent::Stderr(bytes) => stderr.extend_from_slice(&bytes),
                ExecEvent::End(ended) => end = Some(ended),
            }
        }
        let (stdout, stderr) = (text(&stdout), text(&stderr));
        let succeeded = end.is_some_and(|end| end.outcome == Outcome::Ok && end.exit_code == Some(0));
        if !succeeded {
            return Err(self.fault(format!("it did not succeed: {stdout} {stderr}")));
        }
        expect("standard output", self.stdout.as_deref(), &stdout).map_err(|detail| self.fault(detail))
    }

    fn fault(&self, detail: String) -> TemplateError {
        fault(&self.name, detail)
    }
}

/// What came of a cell.
#[derive(Default)]
struct Ran {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    bundles: Vec<BTreeMap<String, serde_json::Value>>,
    end: Option<CellEnd>,
}

impl SmokeCell {
    async fn context(&self, link: &GuestLink) -> Result<ContextId, TemplateError> {
        let create = ContextCreate {
            language: self.language.clone(),
            cwd: None,
            env: BTreeMap::new(),
        };
        let step = format!("making a context of {}", self.language);
        Ok(link
            .context_create(&create)
            .await
            .map_err(TemplateError::guest(step))?
            .id)
    }

    async fn check(&self, link: &GuestLink, context: ContextId) -> Result<(), TemplateError> {
        let ran = self.execute(link, context).await?;
        let stdout = text(&ran.stdout);
        if ran.end.as_ref().is_none_or(|end| end.outcome != Outcome::Ok) {
            let traceback = ran.end.and_then(|end| end.error).map(|error| error.traceback);
            let detail = traceback.unwrap_or_else(|| text(&ran.stderr));
            return Err(fault(&self.name, format!("it did not succeed: {detail}")));
        }
        let last = ran.bundles.last().and_then(|bundle| bundle.get("text/plain"));
        let last = last.and_then(serde_json::Value::as_str).unwrap_or_default();
        expect("standard output", self.stdout.as_deref(), &stdout)
            .and_then(|()| expect("the last result", self.text.as_deref(), last))
            .map_err(|detail| fault(&self.name, detail))?;
        for mime in &self.mime {
            if !ran.bundles.iter().any(|bundle| bundle.contains_key(mime)) {
                return Err(fault(&self.name, format!("no result holds {mime}")));
            }
        }
        Ok(())
    }

    async fn execute(&self, link: &GuestLink, context: ContextId) -> Result<Ran, TemplateError> {
        let run = CellRun {
            code: self.code.clone(),
            timeout_ms: millis(DEADLINE),
            env: BTreeMap::new(),
            keep: OutputLimit(KEPT),
        };
        let failed = |source| TemplateError::guest(format!("the smoke test {:?}", self.name))(source);
        let mut session = link.context_run(context, &run).await.map_err(failed)?;
        let mut ran = Ran::default();
        while let Some(output) = session.next().await.map_err(failed)? {
            match output {
                CellOutput::Stdout(bytes) => ran.stdout.extend_from_slice(&bytes),
                CellOutput::Stderr(bytes) => ran.stderr.extend_from_slice(&bytes),
                CellOutput::Event(CellEvent::Result { bundle, .. }) => ran.bundles.push(bundle),
                CellOutput::Event(CellEvent::Done(end)) => ran.end = Some(end),
            }
        }
        Ok(ran)
    }
}

fn expect(what: &str, wanted: Option<&str>, got: &str) -> Result<(), String> {
    match wanted {
        Some(wanted) if wanted.trim() != got.trim() => Err(format!("{what} is {got:?}, not {wanted:?}")),
        _ => Ok(()),
    }
}

fn fault(test: &str, detail: String) -> TemplateError {
    TemplateError::Smoke {
        test: test.to_owned(),
        detail,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
