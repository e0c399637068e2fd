//! What all parts of the agent share. The agent has one thread; nothing here is locked.

use std::{cell::RefCell, collections::BTreeMap, path::PathBuf, rc::Rc};

use tokio::task::JoinSet;

use crate::{
    contexts::Contexts,
    descriptor::{SCRATCH, Scratch},
    exec::Execs,
    group::Group,
    guard::Guard,
    output::Spill,
    program,
    reaper::Reaper,
    thaw::Entropy,
    tree::{self, Marks},
    view,
};

const SPILL: &str = "/tmp/.atoll/spill";

/// The agent.
#[derive(Debug)]
pub(crate) struct Agent {
    /// Environment that the template gives to all.
    pub(crate) base_env: BTreeMap<String, String>,
    /// Environment of this machine, since its last thaw.
    pub(crate) machine_env: RefCell<BTreeMap<String, String>>,
    /// How often the machine was thawed.
    pub(crate) generation: RefCell<u64>,
    pub(crate) reaper: Rc<Reaper>,
    pub(crate) marks: Marks,
    pub(crate) entropy: Entropy,
    pub(crate) group: Group,
    pub(crate) guard: Rc<Guard>,
    pub(crate) spill: Rc<Spill>,
    pub(crate) scratch: Scratch,
    pub(crate) execs: Execs,
    pub(crate) contexts: Contexts,
    tasks: RefCell<JoinSet<()>>,
}

impl Agent {
    pub(crate) fn new() -> Rc<Self> {
        let kernel_is_ours = tree::kernel_is_ours();
        let group = Group::make(kernel_is_ours);
        if group.is_ours()
            && let Err(error) = view::put_temporary_files_on_disk()
        {
            eprintln!("atoll-agent: /tmp stays in memory: {error}");
        }
        let agent = Rc::new(Self {
            base_env: program::own_environment(),
            machine_env: RefCell::default(),
            generation: RefCell::default(),
            reaper: Rc::default(),
            marks: Marks::default(),
            entropy: Entropy::default(),
            group,
            guard: Rc::new(Guard::new(kernel_is_ours)),
            spill: Rc::new(Spill::new(PathBuf::from(SPILL))),
            scratch: RefCell::new(vec![0; SCRATCH].into_boxed_slice()),
            execs: Execs::default(),
            contexts: Contexts::default(),
            tasks: RefCell::default(),
        });
        let reaper = Rc::clone(&agent.reaper);
        agent.spawn(async move {
            if let Err(error) = reaper.run().await {
                eprintln!("atoll-agent: ended processes cannot be awaited: {error}");
            }
        });
        let guard = Rc::clone(&agent.guard);
        agent.spawn(guard.run());
        agent
    }

    /// Starts a task that the agent owns: it ends with the agent at the latest, whatever becomes of the call that wanted it.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let mut tasks = self.tasks.borrow_mut();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(task);
    }
}
