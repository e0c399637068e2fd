//! Builds of templates: one at a time, with a log that can be followed.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use atoll_model::{BuildId, ErrorCode, Refusal, Scope, TemplateName, WorkspaceId};
use atoll_store::{BuildRow, BuildStatus};
use atoll_template::{BuildEvent, Progress};
use time::OffsetDateTime;
use tokio::sync::{mpsc, watch};

use crate::{BuildView, Caller, Control, refusal, view};

/// Builds that may wait.
const QUEUE: usize = 16;
/// Bytes of log that a build keeps; the oldest lines go first (pandastack-v1 §2.12).
const MAX_LOG: usize = 256 * 1024;

/// Builds that wait or run.
#[derive(Debug)]
pub(crate) struct Builds {
    queue: mpsc::Sender<Arc<Build>>,
    active: Mutex<HashMap<BuildId, Arc<Build>>>,
}

#[derive(Debug)]
struct Build {
    id: BuildId,
    workspace: WorkspaceId,
    template: TemplateName,
    lines: watch::Sender<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    kept: VecDeque<String>,
    bytes: usize,
    /// Lines that were dropped before the first kept one.
    dropped: usize,
    ended: bool,
}

impl Lines {
    fn push(&mut self, line: String) {
        self.bytes += line.len() + 1;
        self.kept.push_back(line);
        while self.bytes > MAX_LOG
            && let Some(oldest) = self.kept.pop_front()
        {
            self.bytes -= oldest.len() + 1;
            self.dropped += 1;
        }
    }

    /// The line of that number, or a note on those that are gone; and the number of the next one.
    fn get(&self, number: usize) -> Option<(String, usize)> {
        match number.checked_sub(self.dropped) {
            Some(index) => Some((self.kept.get(index)?.clone(), number + 1)),
            None => Some((format!("[{} lines not kept]", self.dropped - number), self.dropped)),
        }
    }

    fn text(&self) -> String {
        self.kept.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }
}

/// A build's log from its start on.
#[derive(Debug)]
pub struct BuildLog(Source);

#[derive(Debug)]
enum Source {
    Active { lines: watch::Receiver<Lines>, next: usize },
    Kept(VecDeque<String>),
}

impl BuildLog {
    /// The next line; `None` once the build has ended and all lines were read. Cancel-safe.
    pub async fn next(&mut self) -> Option<String> {
        match &mut self.0 {
            Source::Kept(lines) => lines.pop_front(),
            Source::Active { lines, next } => {
                let more = |lines: &Lines| lines.ended || *next < lines.dropped + lines.kept.len();
                // The build going away without an end is the server's shutdown.
                let (line, following) = lines.wait_for(more).await.ok()?.get(*next)?;
                *next = following;
                Some(line)
            }
        }
    }
}

impl Builds {
    pub(crate) fn new() -> (Self, BuildRunner) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let builds = Self {
            queue,
            active: Mutex::default(),
        };
        (builds, BuildRunner(waiting))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BuildId, Arc<Build>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, workspace: WorkspaceId, wanted: impl Fn(&Build) -> bool) -> Option<Arc<Build>> {
        let active = self.lock();
        let found = active
            .values()
            .find(|build| build.workspace == workspace && wanted(build));
        found.cloned()
    }
}

impl Control {
    /// Builds a template of this host anew from its recipe, root directory included; what is in force stays so until the new
    /// one has passed its tests. A build of it that waits or runs is returned as it is. Needs the scope admin.
    ///
    /// # Errors
    /// `Forbidden`, `TemplateUnknown`, `TooMany` with `retry_after`.
    pub async fn build_start(&self, caller: &Caller, template: &str) -> Result<BuildView, Refusal> {
        caller.require(Scope::Admin)?;
        let template = self.template_name(template)?;
        if let Some(build) = self
            .inner
            .builds
            .find(caller.workspace, |build| build.template == template)
        {
            return self.build_get(caller, build.id).await;
        }
        let (control, workspace) = (self.clone(), caller.workspace);
        self.in_task(async move { control.build_queue(workspace, template).await })
            .await
    }

    /// Records a build and queues it.
    async fn build_queue(&self, workspace: WorkspaceId, template: TemplateName) -> Result<BuildView, Refusal> {
        let full = || Refusal::new(ErrorCode::TooMany, format!("{QUEUE} builds wait already")).retry_after(30);
        let place = self.inner.builds.queue.try_reserve().map_err(|_| full())?;
        let row = BuildRow {
            id: BuildId::random(),
            workspace,
            template: template.clone(),
            status: BuildStatus::Queued,
            error: None,
            started_at: OffsetDateTime::now_utc(),
            ended_at: None,
        };
        let build = Arc::new(Build {
            id: row.id,
            workspace: row.workspace,
            template,
            lines: watch::Sender::default(),
        });
        let inserted = self.inner.store.build_insert(&row).await;
        inserted.map_err(|error| refusal::of_store(&error))?;
        self.inner.builds.lock().insert(row.id, Arc::clone(&build));
        place.send(build);
        Ok(view::build(row))
    }

    /// The workspace's newest builds, newest first, at most 200.
    ///
    /// # Errors
    /// The store does not work.
    pub async fn build_list(&self, caller: &Caller) -> Result<Vec<BuildView>, Refusal> {
        caller.require(Scope::ReadOnly)?;
        let rows = self.inner.store.build_list(caller.workspace).await;
        Ok(rows
            .map_err(|error| refusal::of_store(&error))?
            .into_iter()
            .map(view::build)
            .collect())
    }

    /// One build.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn build_get(&self, caller: &Caller, id: BuildId) -> Result<BuildView, Refusal> {
        caller.require(Scope::ReadOnly)?;
        let row = self.inner.store.build_get(caller.workspace, id).await;
        let row = row.map_err(|error| refusal::of_store(&error))?;
        row.map(view::build).ok_or_else(|| Refusal::not_found("build"))
    }

    /// What a build prints, from its start on; of a long one the newest 256 KiB.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn build_log(&self, caller: &Caller, id: BuildId) -> Result<BuildLog, Refusal> {
        caller.require(Scope::ReadOnly)?;
        if let Some(build) = self.inner.builds.find(caller.workspace, |build| build.id == id) {
            let lines = build.lines.subscribe();
            return Ok(BuildLog(Source::Active { lines, next: 0 }));
        }
        let text = self.inner.store.build_log(caller.workspace, id).await;
        let text = text
            .map_err(|error| refusal::of_store(&error))?
            .ok_or_else(|| Refusal::not_found("build"))?;
        Ok(BuildLog(Source::Kept(text.lines().map(str::to_owned).collect())))
    }
}

/// Runs builds one after the other: each takes all of a host's disk and most of its cores.
pub(crate) struct BuildRunner(mpsc::Receiver<Arc<Build>>);

impl BuildRunner {
    pub(crate) async fn run(mut self, control: Control) {
        let stopping = control.inner.stopping.clone();
        loop {
            let build = tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                build = self.0.recv() => match build {
                    Some(build) => build,
                    None => return,
                },
            };
            control.run_build(&build).await;
        }
    }
}

impl Control {
    async fn run_build(&self, build: &Arc<Build>) {
        let store = &self.inner.store;
        if let Err(error) = store.build_begin(build.id).await {
            tracing::error!(error = refusal::chain(&error), "a build's begin was not kept");
        }
        let listener = Arc::clone(build);
        let tell = move |event: &BuildEvent| listener.lines.send_modify(|lines| lines.push(line_of(event)));
        // Cancelled with the server; the template crate then removes what it made.
        let progress = Progress::new(tell, self.inner.stopping.child_token());
        let built = self
            .inner
            .templates
            .build(build.template.as_str(), &self.inner.engine, &progress)
            .await;
        let error = built.err().map(|error| refusal::chain(&error));
        if let Some(error) = &error {
            tracing::warn!(template = %build.template, error, "a build failed");
            build.lines.send_modify(|lines| lines.push(format!("failed: {error}")));
        }
        let log = build.lines.borrow().text();
        let ended = store
            .build_end(build.id, error.as_deref(), &log, OffsetDateTime::now_utc())
            .await;
        if let Err(error) = ended {
            tracing::error!(error = refusal::chain(&error), "a build's end was not kept");
        }
        // First the store has the log, then the live one goes: whoever asks finds one of them.
        self.inner.builds.lock().remove(&build.id);
        build.lines.send_modify(|lines| lines.ended = true);
    }
}

fn line_of(event: &BuildEvent) -> String {
    match event {
        BuildEvent::Phase { phase } => format!("== {}", phase.label()),
        BuildEvent::Line { text, .. } => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_gets_every_line_and_the_end() {
        let lines = watch::Sender::<Lines>::default();
        lines.send_modify(|lines| lines.push("one".to_owned()));
        let mut log = BuildLog(Source::Active {
            lines: lines.subscribe(),
            next: 0,
        });
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            while let Some(line) = log.next().await {
                all.push(line);
            }
            all
        });
        lines.send_modify(|lines| lines.push("two".to_owned()));
        lines.send_modify(|lines| lines.ended = true);
        assert_eq!(reader.await.unwrap(), ["one", "two"]);
    }

    #[test]
    fn a_long_log_loses_its_oldest_lines_and_says_so() {
        let mut lines = Lines::default();
        for _ in 0..MAX_LOG / 100 + 10 {
            lines.push("x".repeat(99));
        }
        assert!(lines.text().len() <= MAX_LOG);
        let (note, next) = lines.get(0).unwrap();
        assert_eq!((note.as_str(), next), ("[10 lines not kept]", 10));
        assert!(lines.get(next).is_some());
    }
}
