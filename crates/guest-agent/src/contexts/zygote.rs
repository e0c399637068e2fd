//! The zygote: the warm interpreter that contexts are forked from.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs::OpenOptions,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream as StdStream,
    },
    rc::Rc,
    time::Duration,
};

use atoll_protocol::types::{GuestCode, GuestRefusal, Program, WarmRequest};
use nix::{
    fcntl::OFlag,
    unistd::{Pid, pipe2},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::wire::{Channel, Incoming, Request, ZygoteEvent};
use crate::{
    agent::Agent,
    descriptor::Descriptor,
    program::{self, Launch, Stdio},
    reaper::Exit,
    refusal::{from_io, refuse},
    tree::{self, Mark},
    users::User,
};

const CONTROL_DESCRIPTOR: i32 = 3;
/// How long a zygote may take for what is not the warm-up.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of what it printed is kept, to explain a failure.
const KEPT_OUTPUT: usize = 4096;

/// A zygote that lives, or did.
#[derive(Debug)]
pub(super) struct Zygote {
    pid: Pid,
    mark: Mark,
    orders: mpsc::Sender<Order>,
    printed: Rc<RefCell<Vec<u8>>>,
}

/// A context that was forked.
#[derive(Debug)]
pub(super) struct Forked {
    pub(super) pid: Pid,
    pub(super) exited: oneshot::Receiver<Exit>,
}

/// One request to the zygote. It does one thing at a time, so the next event that is no death is the answer.
#[derive(Debug)]
struct Order {
    work: Work,
    answer: oneshot::Sender<Result<Option<Forked>, String>>,
}

#[derive(Debug)]
enum Work {
    /// Only wait for it to be ready.
    Start,
    Warm {
        code: String,
    },
    Thaw {
        entropy: String,
        env: BTreeMap<String, String>,
    },
    Fork {
        context: String,
        cwd: String,
        env: BTreeMap<String, String>,
        entropy: String,
        descriptors: [OwnedFd; 3],
    },
}

/// What a fork needs.
#[derive(Debug)]
pub(super) struct ForkOrder {
    pub(super) context: String,
    pub(super) cwd: String,
    pub(super) env: BTreeMap<String, String>,
    pub(super) entropy: String,
    pub(super) descriptors: [OwnedFd; 3],
}

impl Zygote {
    /// Starts a driver and warms it.
    pub(super) async fn start(agent: &Rc<Agent>, recipe: &WarmRequest) -> Result<Rc<Self>, GuestRefusal> {
        let user = User::find(&recipe.user)?;
        let env = program::environment(&agent.base_env, &user, [&agent.machine_env.borrow(), &BTreeMap::new()])?;
        let launch = Launch::resolve(&Program::Argv(recipe.argv.clone()), user, None, env)?;
        let failed = |error: io::Error| from_io("starting the interpreter", &error);
        let (ours, theirs) = StdStream::pair().map_err(failed)?;
        let (output, child_output) = pipe2(OFlag::O_CLOEXEC).map_err(|error| failed(error.into()))?;
        let null = OpenOptions::new().read(true).open("/dev/null").map_err(failed)?;
        let channel = Channel::new(ours).map_err(failed)?;
        let output = Descriptor::reader(output).map_err(failed)?;
        let mark = agent.marks.next();
        let stdio = Stdio {
            descriptors: [null.as_fd(), child_output.as_fd(), child_output.as_fd()],
            terminal: false,
        };
        let pid = launch.start(&stdio, Some((theirs.as_fd(), CONTROL_DESCRIPTOR)), mark, &agent.group)?;
        agent.guard.add_resident(pid, mark, true);
        let printed: Rc<RefCell<Vec<u8>>> = Rc::default();
        agent.spawn(keep_output(Rc::clone(agent), output, Rc::clone(&printed)));
        let (orders, received) = mpsc::channel(64);
        agent.spawn(serve(Rc::clone(agent), pid, channel, received));
        let zygote = Rc::new(Self {
            pid,
            mark,
            orders,
            printed,
        });
        if let Err(refusal) = zygote.prepare(recipe).await {
            zygote.end().await;
            return Err(refusal);
        }
        Ok(zygote)
    }

    async fn prepare(&self, recipe: &WarmRequest) -> Result<(), GuestRefusal> {
        let patience = Duration::from_millis(recipe.timeout_ms);
        let code = recipe.code.clone();
        let warm = async {
            self.order(Work::Start).await?;
            self.order(Work::Warm { code }).await
        };
        let warmed = timeout(patience, warm).await;
        let warmed = warmed.unwrap_or_else(|_| Err(format!("not done after {} ms", recipe.timeout_ms)));
        warmed.map(drop).map_err(|message| {
            let printed = String::from_utf8_lossy(&self.printed.borrow()).trim_end().to_owned();
            let said = if printed.is_empty() {
                printed
            } else {
                format!("; it printed: {printed}")
            };
            refuse(GuestCode::Internal, format!("warm-up: {message}{said}"))
        })
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.orders.is_closed()
    }

    /// Re-seeds it and gives it the machine's environment.
    pub(super) async fn thaw(&self, entropy: String, env: BTreeMap<String, String>) -> Result<(), GuestRefusal> {
        self.order_soon(Work::Thaw { entropy, env }).await.map(drop)
    }

    /// Forks a context.
    pub(super) async fn fork(&self, order: ForkOrder) -> Result<Forked, GuestRefusal> {
        let work = Work::Fork {
            context: order.context,
            cwd: order.cwd,
            env: order.env,
            entropy: order.entropy,
            descriptors: order.descriptors,
        };
        let forked = self.order_soon(work).await?;
        forked.ok_or_else(|| {
            refuse(
                GuestCode::Internal,
                "the interpreter answered something else than a fork",
            )
        })
    }

    async fn order_soon(&self, work: Work) -> Result<Option<Forked>, GuestRefusal> {
        let done = timeout(PATIENCE, self.order(work)).await;
        let done = done.unwrap_or_else(|_| Err(format!("it did not answer within {PATIENCE:?}")));
        done.map_err(|message| refuse(GuestCode::Internal, format!("the warm interpreter: {message}")))
    }

    async fn order(&self, work: Work) -> Result<Option<Forked>, String> {
        let (answer, told) = oneshot::channel();
        let gone = || "it has ended".to_owned();
        self.orders.send(Order { work, answer }).await.map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }

    /// Ends it with everything that it started for itself; its contexts live on.
    pub(super) async fn end(&self) {
        tree::kill_tree(self.mark, self.pid).await;
    }
}

/// Speaks with the zygote until it ends.
async fn serve(agent: Rc<Agent>, pid: Pid, mut channel: Channel, mut orders: mpsc::Receiver<Order>) {
    let mut waiting: Option<oneshot::Sender<Result<Option<Forked>, String>>> = None;
    loop {
        tokio::select! {
            order = orders.recv(), if waiting.is_none() => {
                let Some(Order { work, answer }) = order else {
                    break;
                };
                if let Err(error) = send(&mut channel, work).await {
                    // Nobody waits: fine.
                    let _ = answer.send(Err(error.to_string()));
                    break;
                }
                waiting = Some(answer);
            }
            incoming = channel.receive(&agent.spill) => {
                let Ok(Some(incoming)) = incoming else {
                    break;
                };
                if let Some(answer) = take_event(&agent, &incoming)
                    && let Some(waiting) = waiting.take()
                {
                    let _ = waiting.send(answer);
                }
            }
        }
    }
    agent.guard.remove_resident(pid);
}

async fn send(channel: &mut Channel, work: Work) -> io::Result<()> {
    match &work {
        Work::Start => Ok(()),
        Work::Warm { code } => channel.send(&Request::Warm { code }, &[]).await,
        Work::Thaw { entropy, env } => channel.send(&Request::Thaw { entropy, env }, &[]).await,
        Work::Fork {
            context,
            cwd,
            env,
            entropy,
            descriptors: [control, stdout, stderr],
        } => {
            let request = Request::Fork {
                context,
                cwd,
                env,
                entropy,
            };
            channel
                .send(&request, &[control.as_fd(), stdout.as_fd(), stderr.as_fd()])
                .await
        }
    }
}

/// What an event answers; `None` for one that answers nothing.
fn take_event(agent: &Agent, incoming: &Incoming) -> Option<Result<Option<Forked>, String>> {
    let Incoming::Whole(message) = incoming else {
        return Some(Err("it said something too long".to_owned()));
    };
    match serde_json::from_slice(message) {
        Ok(ZygoteEvent::Exited { pid, status }) => {
            agent.reaper.deliver(Pid::from_raw(pid), Exit::from_raw(status));
            None
        }
        Ok(ZygoteEvent::Forked { pid }) => {
            // Watched before the next message is looked at, which may tell of its death.
            let pid = Pid::from_raw(pid);
            let exited = agent.reaper.watch(pid);
            Some(Ok(Some(Forked { pid, exited })))
        }
        Ok(ZygoteEvent::Ready | ZygoteEvent::Warmed | ZygoteEvent::Thawed) => Some(Ok(None)),
        Ok(ZygoteEvent::Failed { message }) => Some(Err(message)),
        Err(error) => Some(Err(format!("it said something that is no event: {error}"))),
    }
}

/// Keeps the last bytes of what the zygote prints, and its pipe empty.
async fn keep_output(agent: Rc<Agent>, output: Descriptor, printed: Rc<RefCell<Vec<u8>>>) {
    while let Ok(count @ 1..) = output.read(&agent.scratch).await {
        let mut printed = printed.borrow_mut();
        printed.extend_from_slice(&agent.scratch.borrow()[..count]);
        let excess = printed.len().saturating_sub(KEPT_OUTPUT);
        printed.drain(..excess);
    }
}
