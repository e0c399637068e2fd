//! Code contexts. One [`zygote`] a machine, one [`kernel`] process and one [`actor`] task a context, one [`cell`] at a time.

mod actor;
mod cell;
mod departure;
mod kernel;
mod results;
mod wire;
mod zygote;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::{SystemTime, UNIX_EPOCH},
};

use atoll_model::{ContextId, limits};
use atoll_protocol::types::{CellRun, ContextCreate, ContextInfo, GuestCode, GuestRefusal, WarmRequest};
use tokio::sync::{Mutex, mpsc, oneshot};

use self::{
    actor::{Actor, Ticket},
    cell::{Control, Job},
    departure::{Departure, Presence},
    kernel::{Kernel, Surroundings},
    zygote::{Failure, Zygote},
};
use crate::{
    agent::Agent,
    output::{Hub, Policy},
    program,
    refusal::refuse,
    server::{Body, Gone, Reply, send_hub},
    users::User,
};

/// Cells that may wait in one context.
const QUEUE: usize = 256;

/// A context.
#[derive(Debug)]
pub(crate) struct Context {
    id: ContextId,
    language: String,
    created_at: i64,
    cells: Cell<u64>,
    busy: Cell<bool>,
    restarts: Cell<u64>,
    tickets: mpsc::Sender<Ticket>,
    controls: mpsc::Sender<Control>,
}

impl Context {
    fn info(&self) -> ContextInfo {
        ContextInfo {
            id: self.id,
            language: self.language.clone(),
            cells: self.cells.get(),
            busy: self.busy.get(),
            restarts: self.restarts.get(),
            created_at: self.created_at,
        }
    }

    fn count_cell(&self) -> u64 {
        self.cells.set(self.cells.get() + 1);
        self.cells.get()
    }

    /// Interrupts the cell that runs; nothing when none does.
    pub(crate) async fn interrupt(&self) -> Result<(), GuestRefusal> {
        self.ask(Control::Interrupt).await
    }

    /// A fresh interpreter under the same id.
    pub(crate) async fn restart(&self) -> Result<ContextInfo, GuestRefusal> {
        self.ask(Control::Restart).await?
    }

    async fn ask<T>(&self, control: impl FnOnce(oneshot::Sender<T>) -> Control) -> Result<T, GuestRefusal> {
        let (done, told) = oneshot::channel();
        self.controls
            .send(control(done))
            .await
            .map_err(|_| no_context(self.id))?;
        told.await.map_err(|_| no_context(self.id))
    }
}

fn no_context(id: ContextId) -> GuestRefusal {
    refuse(GuestCode::NotFound, format!("there is no context {id} (any more)"))
}

/// The contexts of the machine.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    /// In the order in which they were made.
    all: RefCell<BTreeMap<u64, Rc<Context>>>,
    serial: Cell<u64>,
    /// Being made now.
    coming: Cell<usize>,
    recipe: RefCell<Option<WarmRequest>>,
    /// Locked while it is started, so that two who want it start one.
    zygote: Mutex<Option<Rc<Zygote>>>,
}

impl Contexts {
    pub(crate) fn list(&self) -> Vec<ContextInfo> {
        self.all.borrow().values().map(|context| context.info()).collect()
    }

    pub(crate) fn get(&self, id: ContextId) -> Result<Rc<Context>, GuestRefusal> {
        let all = self.all.borrow();
        let found = all.values().find(|context| context.id == id).cloned();
        found.ok_or_else(|| no_context(id))
    }

    /// The zygote; started anew if it has ended.
    async fn zygote(&self, agent: &Rc<Agent>) -> Result<Rc<Zygote>, GuestRefusal> {
        let mut slot = self.zygote.lock().await;
        if let Some(zygote) = slot.as_ref().filter(|zygote| zygote.is_alive()) {
            return Ok(Rc::clone(zygote));
        }
        let recipe = self.recipe.borrow().clone();
        let Some(recipe) = recipe else {
            return Err(refuse(
                GuestCode::NotFound,
                "this template has no code interpreter; use one that was built with a warm-up",
            ));
        };
        let zygote = Zygote::start(agent, &recipe).await?;
        *slot = Some(Rc::clone(&zygote));
        Ok(zygote)
    }

    /// Forks a context. A zygote that is lost, as after a program of the machine has stopped it, is replaced once.
    async fn fork(&self, agent: &Rc<Agent>, surroundings: &Surroundings) -> Result<Kernel, GuestRefusal> {
        let zygote = self.zygote(agent).await?;
        match Kernel::fork(agent, &zygote, surroundings).await {
            Err(Failure::Lost(why)) => eprintln!("atoll-agent: the warm interpreter is replaced: {why}"),
            forked => return Ok(forked?),
        }
        let mut slot = self.zygote.lock().await;
        if slot.as_ref().is_some_and(|current| Rc::ptr_eq(current, &zygote)) {
            *slot = None;
        }
        drop(slot);
        zygote.end().await;
        let zygote = self.zygote(agent).await?;
        Ok(Kernel::fork(agent, &zygote, surroundings).await?)
    }

    /// Makes the interpreter a new one. A zygote that has ended is none: it draws anew when it is started.
    pub(crate) async fn thaw(&self, agent: &Rc<Agent>) -> Result<(), GuestRefusal> {
        let mut slot = self.zygote.lock().await;
        if let Some(zygote) = slot.as_ref().filter(|zygote| zygote.is_alive()) {
            let env = agent.machine_env.borrow().clone();
            match zygote.thaw(agent.entropy.seed()?, env).await {
                Err(Failure::Lost(why)) => {
                    eprintln!("atoll-agent: the warm interpreter is given up: {why}");
                    zygote.end().await;
                    *slot = None;
                }
                thawed => thawed?,
            }
        }
        drop(slot);
        let all: Vec<Rc<Context>> = self.all.borrow().values().cloned().collect();
        for context in all {
            let thaw = Control::Thaw {
                entropy: agent.entropy.seed()?,
                env: agent.machine_env.borrow().clone(),
            };
            // One that is being closed needs none.
            let _ = context.controls.send(thaw).await;
        }
        Ok(())
    }

    /// Ends everything, when the agent itself ends.
    pub(crate) async fn end_all(&self) {
        let all: Vec<Rc<Context>> = self.all.borrow().values().cloned().collect();
        for context in all {
            // One that is gone already needs no end.
            let _ = context.ask(Control::Close).await;
        }
        if let Some(zygote) = self.zygote.lock().await.take() {
            zygote.end().await;
        }
    }
}

/// Starts and warms the interpreter; what was warm before ends.
pub(crate) async fn warm(agent: &Rc<Agent>, recipe: WarmRequest) -> Result<(), GuestRefusal> {
    let mut slot = agent.contexts.zygote.lock().await;
    if let Some(old) = slot.take() {
        old.end().await;
    }
    *slot = Some(Zygote::start(agent, &recipe).await?);
    agent.contexts.recipe.replace(Some(recipe));
    Ok(())
}

/// Makes a context.
pub(crate) async fn create(agent: &Rc<Agent>, request: ContextCreate) -> Result<ContextInfo, GuestRefusal> {
    let contexts = &agent.contexts;
    let recipe = contexts.recipe.borrow().clone();
    let user = match &recipe {
        Some(recipe) if recipe.language == request.language => User::find(&recipe.user)?,
        Some(recipe) => {
            let message = format!("language {:?} is not there; {:?} is", request.language, recipe.language);
            return Err(refuse(GuestCode::Invalid, message));
        }
        // Says so.
        None => return contexts.zygote(agent).await.and(Err(no_context(ContextId::random()))),
    };
    let cwd = program::working_directory(request.cwd.as_deref(), &user)?;
    program::check_variables(&request.env)?;
    if contexts.all.borrow().len() + contexts.coming.get() >= limits::MAX_CONTEXTS {
        let most = limits::MAX_CONTEXTS;
        return Err(refuse(
            GuestCode::TooMany,
            format!("a sandbox has at most {most} contexts; close one"),
        ));
    }
    let id = ContextId::random();
    let surroundings = Surroundings {
        context: id.to_string(),
        cwd,
        env: request.env,
    };
    contexts.coming.set(contexts.coming.get() + 1);
    let coming = Coming(contexts);
    // Its size says what another one needs.
    contexts.zygote(agent).await?;
    agent.guard.check_room()?;
    let kernel = contexts.fork(agent, &surroundings).await?;
    drop(coming);
    Ok(begin(agent, id, request.language, surroundings, kernel))
}

/// Counts a context that is being made, also when its caller leaves meanwhile.
struct Coming<'a>(&'a Contexts);

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.coming.set(self.0.coming.get() - 1);
    }
}

fn begin(
    agent: &Rc<Agent>,
    id: ContextId,
    language: String,
    surroundings: Surroundings,
    kernel: Kernel,
) -> ContextInfo {
    let contexts = &agent.contexts;
    let (tickets, taken) = mpsc::channel(QUEUE);
    let (controls, obeyed) = mpsc::channel(16);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let context = Rc::new(Context {
        id,
        language,
        created_at: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
        cells: Cell::new(0),
        busy: Cell::new(false),
        restarts: Cell::new(0),
        tickets,
        controls,
    });
    let info = context.info();
    agent.spawn(Actor::new(agent, Rc::clone(&context), surroundings, kernel, taken, obeyed).run());
    contexts.serial.set(contexts.serial.get() + 1);
    contexts.all.borrow_mut().insert(contexts.serial.get(), context);
    info
}

/// Ends a context; cells that run or wait end as cancelled.
pub(crate) async fn close(agent: &Rc<Agent>, context: &Context) -> Result<(), GuestRefusal> {
    // Gone for new calls at once, whoever else closes it too.
    agent
        .contexts
        .all
        .borrow_mut()
        .retain(|_, other| other.id != context.id);
    context.ask(Control::Close).await
}

/// Queues a cell and hands on what comes of it.
pub(crate) async fn run(context: &Context, mut body: Body, reply: Reply) -> Result<(), Gone> {
    // The place in the queue is that of the call, however long its body takes to arrive.
    let (job, ticket) = oneshot::channel();
    if let Err(error) = context.tickets.try_send(ticket) {
        let refusal = match error {
            mpsc::error::TrySendError::Full(_) => refuse(
                GuestCode::TooMany,
                format!("{QUEUE} cells wait in this context; wait for one to end"),
            ),
            mpsc::error::TrySendError::Closed(_) => no_context(context.id),
        };
        return reply.refuse(&refusal).await;
    }
    let run = match body.first_json().await?.and_then(checked) {
        Ok(run) => run,
        Err(refusal) => return reply.refuse(&refusal).await,
    };
    let hub = Rc::new(Hub::new(Policy::Wait));
    let departure = Rc::new(Departure::default());
    let presence = Presence(Rc::clone(&departure));
    let taken = job.send(Job {
        run,
        hub: Rc::clone(&hub),
        departure,
    });
    if taken.is_err() {
        return reply.refuse(&no_context(context.id)).await;
    }
    let mut stream = reply.stream(&[])?;
    let sent = send_hub(&mut stream, &hub).await;
    drop(presence);
    sent
}

fn checked(run: CellRun) -> Result<CellRun, GuestRefusal> {
    let longest = limits::MAX_TIMEOUT_SECONDS * 1000;
    if run.timeout_ms == 0 || run.timeout_ms > longest {
        return Err(refuse(GuestCode::Invalid, format!("timeout_ms must be 1 to {longest}")));
    }
    program::check_variables(&run.env)?;
    Ok(run)
}
