//! The zygote: the warm interpreter that contexts are forked from.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashSet},
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
    sync::{Notify, mpsc, oneshot},
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
    /// It was ended by us, even if somebody else holds its socket.
    ended: Rc<Notify>,
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
    answer: oneshot::Sender<Answer>,
}

/// What came of an order: the context of a fork, nothing of any other.
type Answer = Result<Option<Forked>, Failure>;

/// Why an order was not carried out.
#[derive(Debug)]
pub(super) enum Failure {
    /// The zygote has ended, does not answer, or says what none would: another one may do it.
    Lost(String),
    /// It will not be done.
    Refused(GuestRefusal),
}

impl From<GuestRefusal> for Failure {
    fn from(refusal: GuestRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Failure> for GuestRefusal {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Lost(why) => refuse(GuestCode::Internal, format!("the warm interpreter: {why}")),
            Failure::Refused(refusal) => refusal,
        }
    }
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
        let ended: Rc<Notify> = Rc::default();
        let dialogue = Dialogue {
            agent: Rc::clone(agent),
            mark,
            channel,
            children: HashSet::new(),
        };
        agent.spawn(dialogue.run(pid, received, Rc::clone(&ended)));
        let zygote = Rc::new(Self {
            pid,
            mark,
            orders,
            ended,
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
        let late = |_| Err(Failure::Lost(format!("not done after {} ms", recipe.timeout_ms)));
        warmed.unwrap_or_else(late).map(drop).map_err(|failure| {
            let message = match failure {
                Failure::Lost(why) => why,
                Failure::Refused(refusal) => refusal.message,
            };
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
    pub(super) async fn thaw(&self, entropy: String, env: BTreeMap<String, String>) -> Result<(), Failure> {
        self.order_soon(Work::Thaw { entropy, env }).await.map(drop)
    }

    /// Forks a context.
    pub(super) async fn fork(&self, order: ForkOrder) -> Result<Forked, Failure> {
        let work = Work::Fork {
            context: order.context,
            cwd: order.cwd,
            env: order.env,
            entropy: order.entropy,
            descriptors: order.descriptors,
        };
        let forked = self.order_soon(work).await?;
        forked.ok_or_else(|| Failure::Lost("it answered something else than a fork".to_owned()))
    }

    async fn order_soon(&self, work: Work) -> Answer {
        let done = timeout(PATIENCE, self.order(work)).await;
        done.unwrap_or_else(|_| Err(Failure::Lost(format!("it did not answer within {PATIENCE:?}"))))
    }

    async fn order(&self, work: Work) -> Answer {
        let (answer, told) = oneshot::channel();
        let gone = || Failure::Lost("it has ended".to_owned());
        self.orders.send(Order { work, answer }).await.map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }

    /// Ends it with everything that it started for itself; its contexts live on.
    pub(super) async fn end(&self) {
        tree::kill_tree(self.mark, self.pid).await;
        self.ended.notify_one();
    }
}

/// The agent's side of the talk with a zygote. Whatever runs in the machine may have got hold of the other side.
struct Dialogue {
    agent: Rc<Agent>,
    mark: Mark,
    channel: Channel,
    /// What it forked, and has not told the end of.
    children: HashSet<Pid>,
}

impl Dialogue {
    /// Speaks with the zygote until it ends.
    async fn run(mut self, pid: Pid, orders: mpsc::Receiver<Order>, ended: Rc<Notify>) {
        tokio::select! {
            () = self.serve(orders) => {}
            () = ended.notified() => {}
        }
        self.agent.guard.remove_resident(pid);
    }

    async fn serve(&mut self, mut orders: mpsc::Receiver<Order>) {
        // Who waits, and whether for a fork.
        let mut waiting: Option<(oneshot::Sender<Answer>, bool)> = None;
        loop {
            tokio::select! {
                order = orders.recv(), if waiting.is_none() => {
                    let Some(Order { work, answer }) = order else {
                        break;
                    };
                    let is_fork = matches!(work, Work::Fork { .. });
                    if let Err(error) = send(&mut self.channel, work).await {
                        // Nobody waits: fine.
                        let _ = answer.send(Err(Failure::Lost(error.to_string())));
                        break;
                    }
                    waiting = Some((answer, is_fork));
                }
                incoming = self.channel.receive(&self.agent.spill) => {
                    let Ok(Some(incoming)) = incoming else {
                        break;
                    };
                    let is_fork = waiting.as_ref().is_some_and(|(_, is_fork)| *is_fork);
                    if let Some(answer) = self.take(&incoming, is_fork)
                        && let Some((waiting, _)) = waiting.take()
                    {
                        let _ = waiting.send(answer);
                    }
                }
            }
        }
    }

    /// What an event answers, if a fork or something else is waited for; `None` for one that answers nothing.
    fn take(&mut self, incoming: &Incoming, is_fork: bool) -> Option<Answer> {
        let lost = |why: &str| Some(Err(Failure::Lost(why.to_owned())));
        let Incoming::Whole(message) = incoming else {
            return lost("it said something too long");
        };
        match serde_json::from_slice(message) {
            Ok(ZygoteEvent::Exited { pid, status }) => {
                // The end of anything else is not the zygote's to tell.
                if self.children.remove(&Pid::from_raw(pid)) {
                    self.agent.reaper.deliver(Pid::from_raw(pid), Exit::from_raw(status));
                }
                None
            }
            Ok(ZygoteEvent::Forked { pid }) => {
                let pid = Pid::from_raw(pid);
                if !is_fork || !tree::may_be_child(pid, self.mark) {
                    return lost("it told of a child that is none");
                }
                self.children.insert(pid);
                // Watched before the next message is looked at, which may tell of its death.
                let exited = self.agent.reaper.watch(pid);
                Some(Ok(Some(Forked { pid, exited })))
            }
            Ok(ZygoteEvent::Ready | ZygoteEvent::Warmed | ZygoteEvent::Thawed) => Some(Ok(None)),
            Ok(ZygoteEvent::Failed { message, code }) => Some(Err(Failure::Refused(refuse(code, message)))),
            Err(error) => lost(&format!("it said something that is no event: {error}")),
        }
    }
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

/// Keeps the last bytes of what the zygote prints, and its pipe empty.
async fn keep_output(agent: Rc<Agent>, output: Descriptor, printed: Rc<RefCell<Vec<u8>>>) {
    while let Ok(count @ 1..) = output.read(&agent.scratch).await {
        let mut printed = printed.borrow_mut();
        printed.extend_from_slice(&agent.scratch.borrow()[..count]);
        let excess = printed.len().saturating_sub(KEPT_OUTPUT);
        printed.drain(..excess);
    }
}
