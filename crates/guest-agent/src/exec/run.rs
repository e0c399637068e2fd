//! Drives one command from its start to its end, whoever listens.

use std::{rc::Rc, time::Duration};

use atoll_model::{Outcome, output::StreamSummary};
use atoll_protocol::{event::Kind, types::ExecEnd};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until, timeout},
};

use super::{Exec, input::Input};
use crate::{
    agent::Agent,
    descriptor::Descriptor,
    guard::{Busy, Verdict},
    output::{Hub, Keeper},
    reaper::Exit,
    tree,
};

/// How long output is awaited of processes that a command leaves behind, when they share its output. Long enough for a
/// `tee` at the end of a pipeline, and nothing that anybody notices who started a service.
const LEFTOVER_GRACE: Duration = Duration::from_millis(100);

/// One output stream.
#[derive(Debug)]
pub(super) struct Source {
    kind: Kind,
    /// `None` once it has ended.
    descriptor: Option<Rc<Descriptor>>,
    keeper: Option<Keeper>,
    total: u64,
}

impl Source {
    pub(super) fn new(kind: Kind, descriptor: Rc<Descriptor>, keeper: Option<Keeper>) -> Self {
        Self {
            kind,
            descriptor: Some(descriptor),
            keeper,
            total: 0,
        }
    }

    /// Waits for output; never resolves once the stream has ended. Cancel-safe.
    async fn ready(&self, agent: &Agent) -> usize {
        match &self.descriptor {
            // A stream that cannot be read has ended.
            Some(descriptor) => descriptor.read(&agent.scratch).await.unwrap_or(0),
            None => std::future::pending().await,
        }
    }

    /// Takes what was read into the scratch buffer; 0 is the end.
    fn take(&mut self, agent: &Agent, hub: &Hub, count: usize) {
        if count == 0 {
            self.descriptor = None;
            return;
        }
        self.add(hub, &agent.scratch.borrow()[..count]);
    }

    fn add(&mut self, hub: &Hub, data: &[u8]) {
        self.total += data.len() as u64;
        match &mut self.keeper {
            Some(keeper) => keeper.write(data),
            None => hub.push_bytes(self.kind, data),
        }
    }

    /// Takes everything that was written before now.
    fn drain(&mut self, agent: &Agent, hub: &Hub) {
        if let Some(descriptor) = self.descriptor.take()
            && descriptor.drain(&agent.scratch, |data| self.add(hub, data))
        {
            self.descriptor = Some(descriptor);
        }
    }

    fn summary(&mut self, dropped: u64) -> StreamSummary {
        match self.keeper.take() {
            Some(keeper) => keeper.finish(),
            None => StreamSummary {
                total_bytes: self.total,
                truncated: dropped > 0,
                spill_path: None,
            },
        }
    }
}

/// The task of one command.
pub(super) struct Runner {
    agent: Rc<Agent>,
    exec: Rc<Exec>,
    sources: Vec<Source>,
    exited: oneshot::Receiver<Exit>,
    timeout_ms: Option<u64>,
    timed_out: bool,
    _busy: Busy,
}

impl Runner {
    pub(super) fn new(
        agent: &Rc<Agent>,
        exec: &Rc<Exec>,
        sources: Vec<Source>,
        exited: oneshot::Receiver<Exit>,
        timeout_ms: Option<u64>,
    ) -> Self {
        Self {
            agent: Rc::clone(agent),
            exec: Rc::clone(exec),
            sources,
            exited,
            timeout_ms,
            timed_out: false,
            _busy: agent.guard.busy(),
        }
    }

    pub(super) async fn run(mut self) {
        let exit = self.until_exit().await;
        let killed = self.timed_out || self.exec.cancelled.get();
        for source in &mut self.sources {
            source.drain(&self.agent, &self.exec.hub);
        }
        if !killed && self.is_open() {
            self.leftovers().await;
        }
        self.end(exit);
    }

    /// Moves output until the process has ended.
    async fn until_exit(&mut self) -> Option<Exit> {
        let deadline = self
            .timeout_ms
            .map(|timeout| self.exec.started + Duration::from_millis(timeout));
        let far = self.exec.started + Duration::from_secs(365 * 86400);
        loop {
            let (agent, hub) = (&*self.agent, &*self.exec.hub);
            let has_room = hub.has_room();
            let (first, second) = (self.sources.first(), self.sources.get(1));
            tokio::select! {
                biased;
                exit = &mut self.exited => return exit.ok(),
                () = sleep_until(deadline.unwrap_or(far)), if !self.timed_out && deadline.is_some() => {
                    self.timed_out = true;
                    tree::kill_tree(self.exec.mark, self.exec.pid).await;
                }
                () = self.exec.cancel.notified() => {
                    tree::kill_tree(self.exec.mark, self.exec.pid).await;
                }
                count = ready(first, agent), if has_room => self.sources[0].take(agent, hub, count),
                count = ready(second, agent), if has_room => self.sources[1].take(agent, hub, count),
                () = hub.room(), if !has_room => {}
            }
        }
    }

    fn is_open(&self) -> bool {
        self.sources.iter().any(|source| source.descriptor.is_some())
    }

    /// Somebody else still holds the output. Waits a moment for what is finishing, then lets services go on: what they
    /// write from now on is read and dropped, since a pipe without a reader would end them.
    async fn leftovers(&mut self) {
        let exec = Rc::clone(&self.exec);
        let _ = timeout(LEFTOVER_GRACE, async {
            while self.is_open() {
                let agent = &*self.agent;
                let has_room = exec.hub.has_room();
                let (first, second) = (self.sources.first(), self.sources.get(1));
                tokio::select! {
                    count = ready(first, agent), if has_room => self.sources[0].take(agent, &exec.hub, count),
                    count = ready(second, agent), if has_room => self.sources[1].take(agent, &exec.hub, count),
                    () = exec.hub.room(), if !has_room => {}
                }
            }
        })
        .await;
        if matches!(exec.input, Input::Terminal(_)) {
            return;
        }
        for source in &mut self.sources {
            if let Some(descriptor) = source.descriptor.take() {
                let agent = Rc::clone(&self.agent);
                self.agent
                    .spawn(async move { while descriptor.read(&agent.scratch).await.is_ok_and(|count| count > 0) {} });
            }
        }
    }

    fn end(mut self, exit: Option<Exit>) {
        let exec = Rc::clone(&self.exec);
        let verdict = self.agent.guard.take_verdict(exec.mark);
        if let (Some(verdict), Some(last)) = (verdict, self.sources.last_mut()) {
            last.add(&exec.hub, verdict.note().as_bytes());
        }
        let dropped = exec.hub.dropped();
        let mut summaries = [StreamSummary::default(), StreamSummary::default()];
        for (summary, (source, dropped)) in summaries.iter_mut().zip(self.sources.iter_mut().zip(dropped)) {
            *summary = source.summary(dropped);
        }
        let [stdout, stderr] = summaries;
        let outcome = self.outcome(exit, verdict);
        let by_itself = outcome == Outcome::Ok;
        let end = ExecEnd {
            outcome,
            exit_code: exit.filter(|_| by_itself).map(Exit::code),
            signal: exit.filter(|_| by_itself).and_then(Exit::signal),
            duration_ms: u64::try_from(exec.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            stdout,
            stderr,
        };
        exec.input.close();
        match serde_json::to_vec(&end) {
            Ok(json) => exec.hub.push_json(json),
            Err(error) => eprintln!("atoll-agent: an end that is no JSON: {error}"),
        }
        exec.end.replace(Some((end, Instant::now())));
        exec.hub.close();
        self.agent.execs.prune();
    }

    fn outcome(&self, exit: Option<Exit>, verdict: Option<Verdict>) -> Outcome {
        match (self.timeout_ms, verdict) {
            (Some(timeout_ms), _) if self.timed_out => Outcome::Timeout {
                timeout_ms,
                context_restarted: false,
            },
            _ if self.exec.cancelled.get() => Outcome::Cancelled,
            (_, Some(verdict)) if exit != Some(Exit::Code(0)) => verdict.outcome(false).unwrap_or(Outcome::Ok),
            _ => Outcome::Ok,
        }
    }
}

async fn ready(source: Option<&Source>, agent: &Agent) -> usize {
    match source {
        Some(source) => source.ready(agent).await,
        None => std::future::pending().await,
    }
}
