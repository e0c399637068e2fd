//! One cell, from its code to its end, whatever it does.

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use atoll_model::{Outcome, output::StreamSummary};
use atoll_protocol::{
    event::Kind,
    types::{CellEnd, CellError, CellEvent, CellRun, ContextInfo, GuestRefusal},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};

use super::{
    departure::Departure,
    kernel::Kernel,
    results::Results,
    wire::{ContextEvent, DoneEvent, DoneStatus, Incoming, Request},
};
use crate::{
    agent::Agent,
    guard::Verdict,
    output::{Hub, Keeper},
    reaper::Exit,
};

/// How long a cell may take to end after an interrupt, before its interpreter is killed; half way it is asked once more,
/// in case the interrupt came before the code had begun.
const GRACE: Duration = Duration::from_secs(1);

/// How long what a dead interpreter said may take to be read.
const LAST_WORDS: Duration = Duration::from_millis(10);

/// And all of that together, should somebody go on speaking in its place.
const ALL_LAST_WORDS: Duration = Duration::from_millis(200);

/// A cell that a caller wants to run.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) run: CellRun,
    pub(super) hub: Rc<Hub>,
    pub(super) departure: Rc<Departure>,
}

impl Job {
    /// Says how it ended, without having run.
    pub(super) fn end(&self, outcome: Outcome, number: u64) {
        let exit_code = exit_code_of(&outcome);
        self.finish(CellEnd {
            outcome,
            error: None,
            exit_code,
            execution_count: number,
            duration_ms: 0,
            stdout: StreamSummary::default(),
            stderr: StreamSummary::default(),
        });
    }

    fn finish(&self, end: CellEnd) {
        match serde_json::to_vec(&CellEvent::Done(end)) {
            Ok(json) => self.hub.push_json(json),
            Err(error) => eprintln!("atoll-agent: an end that is no JSON: {error}"),
        }
        self.hub.close();
    }
}

/// What can be asked of a context at any time.
#[derive(Debug)]
pub(super) enum Control {
    Interrupt(oneshot::Sender<()>),
    Restart(oneshot::Sender<Result<ContextInfo, GuestRefusal>>),
    Close(oneshot::Sender<()>),
    /// Re-seed and take this environment, before the next cell.
    Thaw {
        entropy: String,
        env: BTreeMap<String, String>,
    },
}

/// What a cell leaves of its kernel.
#[derive(Debug)]
pub(super) enum After {
    /// It lives, with all its state.
    Alive,
    /// It is dead, and its cell was told so.
    Dead,
    /// It is dead because of this request, which is yet to be answered.
    Asked(Control),
}

/// Why a cell shall end before it does by itself.
#[derive(Debug)]
enum Stop {
    Timeout,
    Interrupted,
    Cancelled,
    /// A restart or a close.
    Control(Control),
}

/// How the interpreter's part ended.
#[derive(Debug)]
enum Ending {
    Done(DoneEvent),
    /// It ended, or was killed by us.
    Gone(Option<Exit>),
}

/// A cell that runs.
pub(super) struct Running<'a> {
    agent: &'a Agent,
    kernel: &'a mut Kernel,
    job: &'a Job,
    number: u64,
    started: Instant,
    stdout: Keeper,
    stderr: Keeper,
    /// Which of the two streams may still say something.
    open: [bool; 2],
    results: Results,
    stop: Option<Stop>,
    /// When it was asked to stop.
    asked: Instant,
    nudged: bool,
    /// It said something that is no event, and the log was told.
    babbled: bool,
}

impl<'a> Running<'a> {
    pub(super) fn new(agent: &'a Agent, kernel: &'a mut Kernel, job: &'a Job, number: u64) -> Self {
        let keeper = |kind| Keeper::new(kind, job.run.keep, Rc::clone(&job.hub), Rc::clone(&agent.spill));
        let started = Instant::now();
        Self {
            agent,
            kernel,
            job,
            number,
            started,
            stdout: keeper(Kind::Stdout),
            stderr: keeper(Kind::Stderr),
            open: [true; 2],
            results: Results::new(Rc::clone(&job.hub)),
            stop: None,
            asked: started,
            nudged: false,
            babbled: false,
        }
    }

    /// Runs it and tells its end.
    pub(super) async fn run(mut self, controls: &mut mpsc::Receiver<Control>) -> After {
        let request = Request::Run {
            cell: self.number,
            code: &self.job.run.code,
            env: &self.job.run.env,
        };
        let ending = match self.kernel.channel.post(&request) {
            Ok(()) => self.until_done(controls).await,
            // It has taken nothing for long.
            Err(_) => self.kill().await,
        };
        self.drain();
        self.end(ending)
    }

    async fn until_done(&mut self, controls: &mut mpsc::Receiver<Control>) -> Ending {
        let deadline = self.started + Duration::from_millis(self.job.run.timeout_ms);
        loop {
            let has_room = self.job.hub.has_room();
            let stopping = self.stop.is_some();
            let scratch = &self.agent.scratch;
            tokio::select! {
                incoming = self.kernel.channel.receive(&self.agent.spill), if has_room || stopping => match incoming {
                    Ok(Some(incoming)) => {
                        if let Some(done) = self.take(incoming) {
                            return Ending::Done(done);
                        }
                    }
                    Ok(None) | Err(_) => return Ending::Gone(self.kernel.exited_soon().await),
                },
                exit = &mut self.kernel.exited => {
                    self.take_last().await;
                    return Ending::Gone(exit.ok());
                }
                count = self.kernel.stdout.read(scratch), if self.open[0] && has_room => self.keep(0, count.unwrap_or(0)),
                count = self.kernel.stderr.read(scratch), if self.open[1] && has_room => self.keep(1, count.unwrap_or(0)),
                () = self.job.hub.room(), if !has_room => {}
                () = sleep_until(deadline), if !stopping => self.ask(Stop::Timeout),
                () = self.job.departure.left(), if !stopping => self.ask(Stop::Cancelled),
                () = sleep_until(self.asked + GRACE / 2), if stopping && !self.nudged => {
                    self.nudged = true;
                    self.kernel.interrupt();
                }
                () = sleep_until(self.asked + GRACE), if stopping => return self.kill().await,
                Some(control) = controls.recv() => match control {
                    Control::Interrupt(done) => {
                        if !stopping {
                            self.ask(Stop::Interrupted);
                        }
                        // Who asked may have left.
                        let _ = done.send(());
                    }
                    Control::Thaw { entropy, env } => self.kernel.thaw(&entropy, &env),
                    Control::Restart(_) | Control::Close(_) => {
                        self.stop = Some(Stop::Control(control));
                        return self.kill().await;
                    }
                },
            }
        }
    }

    /// Takes what the interpreter said just before it ended. A process that it left behind may hold its socket open, so the
    /// end of the socket is not awaited.
    async fn take_last(&mut self) {
        let take_all = async {
            while let Ok(Ok(Some(incoming))) = timeout(LAST_WORDS, self.kernel.channel.receive(&self.agent.spill)).await
            {
                self.take(incoming);
            }
        };
        // That somebody speaks on is no fault: it is told nothing, and ends with the interpreter's tree.
        let _ = timeout(ALL_LAST_WORDS, take_all).await;
    }

    /// Interrupts the code, and begins to count.
    fn ask(&mut self, stop: Stop) {
        self.stop = Some(stop);
        self.asked = Instant::now();
        self.kernel.interrupt();
    }

    async fn kill(&mut self) -> Ending {
        self.kernel.end(self.agent).await;
        Ending::Gone(self.kernel.exited_soon().await)
    }

    /// Takes what the interpreter says. What was printed before a result is handed on before it.
    fn take(&mut self, incoming: Incoming) -> Option<DoneEvent> {
        self.drain();
        match incoming {
            Incoming::Whole(message) => match serde_json::from_slice(&message) {
                Ok(ContextEvent::Result(result)) if result.cell == self.number => self.results.add(result),
                Ok(ContextEvent::Done(done)) if done.cell == self.number => return Some(done),
                // Of an earlier cell: nobody waits for it.
                Ok(_) => {}
                // Once: the log is no place for whatever a cell writes to its control socket.
                Err(error) if !self.babbled => {
                    self.babbled = true;
                    eprintln!("atoll-agent: a context said something that is no event: {error}");
                }
                Err(_) => {}
            },
            Incoming::TooLong { length, start, path } => {
                if String::from_utf8_lossy(&start).contains("\"done\"") {
                    return Some(self.done_too_long(length));
                }
                self.results.add_too_long(length, path.as_deref());
            }
        }
        None
    }

    fn done_too_long(&self, length: u64) -> DoneEvent {
        DoneEvent {
            cell: self.number,
            status: DoneStatus::Error,
            exit_code: 1,
            error: Some(CellError {
                name: "Exception".to_owned(),
                value: format!("its text of {length} bytes is too long to show"),
                traceback: String::new(),
            }),
        }
    }

    fn keep(&mut self, stream: usize, count: usize) {
        self.open[stream] = count > 0;
        let scratch = self.agent.scratch.borrow();
        let keeper = if stream == 0 {
            &mut self.stdout
        } else {
            &mut self.stderr
        };
        keeper.write(&scratch[..count]);
    }

    /// Takes everything that was printed so far.
    fn drain(&mut self) {
        let [stdout, stderr] = &mut self.open;
        let streams = [
            (stdout, &self.kernel.stdout, &mut self.stdout),
            (stderr, &self.kernel.stderr, &mut self.stderr),
        ];
        for (open, source, keeper) in streams {
            *open = *open && source.drain(&self.agent.scratch, |data| keeper.write(data));
        }
    }

    fn end(mut self, ending: Ending) -> After {
        let verdict = self.agent.guard.take_verdict(self.kernel.mark);
        if let Some(verdict) = verdict {
            self.stderr.write(verdict.note().as_bytes());
        }
        self.results.finish();
        let restarted = matches!(ending, Ending::Gone(_));
        let outcome = outcome(&ending, self.stop.as_ref(), self.job.run.timeout_ms, verdict);
        let (exit_code, error) = match ending {
            Ending::Done(done) if matches!(outcome, Outcome::Ok | Outcome::Error) => (done.exit_code, done.error),
            Ending::Done(_) | Ending::Gone(_) => (exit_code_of(&outcome), None),
        };
        self.job.finish(CellEnd {
            outcome,
            error,
            exit_code,
            execution_count: self.number,
            duration_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            stdout: self.stdout.finish(),
            stderr: self.stderr.finish(),
        });
        match self.stop {
            Some(Stop::Control(control)) => After::Asked(control),
            _ if restarted => After::Dead,
            _ => After::Alive,
        }
    }
}

fn outcome(ending: &Ending, stop: Option<&Stop>, timeout_ms: u64, verdict: Option<Verdict>) -> Outcome {
    let context_restarted = matches!(ending, Ending::Gone(_));
    let oom = verdict.and_then(|verdict| verdict.outcome(context_restarted));
    match (ending, stop) {
        // It came to its end before the interrupt reached it.
        (Ending::Done(done), _) if done.status == DoneStatus::Ok => Outcome::Ok,
        (_, Some(Stop::Timeout)) => Outcome::Timeout {
            timeout_ms,
            context_restarted,
        },
        (_, Some(Stop::Cancelled | Stop::Control(Control::Close(_)))) => Outcome::Cancelled,
        (_, Some(Stop::Interrupted | Stop::Control(_))) => Outcome::Interrupted { context_restarted },
        (Ending::Done(done), None) => match (done.status, oom) {
            (DoneStatus::Exit, _) if done.exit_code == 0 => Outcome::Ok,
            (DoneStatus::Interrupted, _) => Outcome::Interrupted { context_restarted },
            (_, Some(oom)) => oom,
            _ => Outcome::Error,
        },
        (Ending::Gone(exit), None) => match oom {
            Some(oom) if exit.is_none_or(Exit::was_killed) => oom,
            _ => died(*exit),
        },
    }
}

/// The interpreter ended by itself.
pub(super) fn died(exit: Option<Exit>) -> Outcome {
    Outcome::ContextDied {
        signal: exit.and_then(Exit::signal),
        exit_code: exit.filter(|exit| exit.signal().is_none()).map(Exit::code),
    }
}

/// What a shell would show for a cell that did not come to its own end.
fn exit_code_of(outcome: &Outcome) -> i32 {
    match outcome {
        Outcome::Ok => 0,
        Outcome::Timeout { .. } => 124,
        Outcome::Interrupted { .. } | Outcome::Cancelled => 130,
        Outcome::Oom { .. } => 137,
        Outcome::ContextDied {
            signal: Some(signal), ..
        } => 128 + signal,
        Outcome::ContextDied {
            exit_code: Some(code), ..
        } => *code,
        Outcome::Error | Outcome::ContextDied { .. } | Outcome::AgentLost | Outcome::SandboxGone { .. } => 1,
    }
}
