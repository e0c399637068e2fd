//! Process 1 of a sandbox.
//!
//! A small HTTP/2 service on the link (descriptors 0 and 1): it runs commands, moves files, keeps code contexts, and makes
//! a restored machine a new one. One thread does everything but file system calls, which may take long and have a few
//! threads of their own. With no call open and no process running it does nothing at all: no timer, no poll.
//!
//! Read [`server`] first, then [`exec`] and [`contexts`].

mod agent;
mod contexts;
mod descriptor;
mod exec;
mod files;
mod group;
mod guard;
mod memory;
mod output;
mod port;
mod program;
mod reaper;
mod refusal;
mod server;
mod stats;
mod sys;
mod thaw;
mod tree;
mod users;
mod view;

use std::{io, process::ExitCode, time::Duration};

use tokio::{runtime, task::LocalSet};

use crate::{agent::Agent, port::Port};

/// Threads for file system calls. They end when idle, so that a snapshot holds none.
const FILE_THREADS: usize = 4;
const FILE_THREAD_IDLE: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    sys::keep_descriptors_to_ourselves();
    // Orphans come to us also where we are not process 1.
    nix::sys::prctl::set_child_subreaper(true)?;
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(FILE_THREADS)
        .thread_keep_alive(FILE_THREAD_IDLE)
        .build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let agent = Agent::new();
        let served = server::serve(&agent, Port::take()?).await;
        agent.execs.end_all().await;
        agent.contexts.end_all().await;
        served
    })
}
