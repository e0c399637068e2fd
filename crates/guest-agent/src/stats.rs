//! How the agent and its machine are doing.

use atoll_protocol::types::Stats;
use nix::unistd::Pid;

use crate::{
    agent::Agent,
    memory::{resident_bytes, used_memory},
    tree,
};

/// Takes a look; nothing is kept up to date in between.
pub(crate) fn take(agent: &Agent) -> Stats {
    let pids = tree::all_pids();
    let own = Pid::this();
    let zombies = pids.iter().filter(|pid| **pid != own && tree::has_ended(**pid)).count();
    let limit = agent.guard.limit_bytes();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Stats {
        agent_rss_bytes: resident_bytes(own),
        memory_used_bytes: used_memory(limit),
        memory_limit_bytes: limit,
        processes: count(pids.len()),
        zombies: count(zombies),
        execs: count(agent.execs.running()),
        contexts: count(agent.contexts.list().len()),
    }
}
