//! From a caller's wish to a running process.

use std::{
    cell::{Cell, RefCell},
    fs::OpenOptions,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    rc::Rc,
};

use atoll_model::{ExecId, limits};
use atoll_protocol::{
    event::Kind,
    types::{ExecStart, GuestCode, GuestRefusal, Program, TerminalSize},
};
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt},
    unistd::{Uid, fchown, pipe2},
};
use tokio::{sync::Notify, time::Instant};

use super::{
    Exec,
    input::{Input, check_size},
    run::{self, Source},
};
use crate::{
    agent::Agent,
    descriptor::Descriptor,
    output::{Hub, Keeper, Policy},
    program::{self, Launch, Stdio},
    refusal::{from_io, refuse},
    sys,
    users::User,
};

/// How much a command may write ahead of the agent, in bytes.
const OUTPUT_PIPE: i32 = 256 * 1024;
const TERMINAL_TYPE: &str = "xterm-256color";

/// The user that commands run as when none is named: root, or whoever runs the agent where that is not root.
pub(crate) fn default_user() -> String {
    Uid::effective().as_raw().to_string()
}

/// What the process gets, and what we keep of it.
struct Ends {
    child: [OwnedFd; 3],
    terminal: bool,
    input: Input,
    output: Vec<(Kind, Rc<Descriptor>)>,
}

/// Starts a command and the task that drives it.
pub(crate) fn start(agent: &Rc<Agent>, start: &ExecStart) -> Result<Rc<Exec>, GuestRefusal> {
    check(start)?;
    if agent.execs.running() >= limits::MAX_EXECS {
        let most = limits::MAX_EXECS;
        return Err(refuse(
            GuestCode::TooMany,
            format!("{most} commands run already; wait for one to end"),
        ));
    }
    let launch = resolve(agent, start)?;
    let ends = match start.terminal {
        Some(size) => terminal_ends(size, launch_user(start)?.credentials.uid),
        None => pipe_ends(start.stdin),
    };
    let ends = ends.map_err(|error| from_io("standard streams", &error))?;
    let mark = agent.marks.next();
    let [stdin, stdout, stderr] = &ends.child;
    let stdio = Stdio {
        descriptors: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
        terminal: ends.terminal,
    };
    let pid = launch.start(&stdio, None, mark, &agent.group)?;
    let exited = agent.reaper.watch(pid);
    let policy = if start.detach { Policy::DropOldest } else { Policy::Wait };
    let exec = Rc::new(Exec {
        id: ExecId::random(),
        pid,
        mark,
        command: describe(&start.program),
        detached: start.detach,
        started: Instant::now(),
        hub: Rc::new(Hub::new(policy)),
        input: ends.input,
        cancelled: Cell::new(false),
        cancel: Notify::new(),
        end: RefCell::new(None),
    });
    agent.execs.add(Rc::clone(&exec));
    let sources = ends.output.into_iter().map(|(kind, descriptor)| {
        let keeper = start
            .keep
            .map(|keep| Keeper::new(kind, keep, Rc::clone(&exec.hub), Rc::clone(&agent.spill)));
        Source::new(kind, descriptor, keeper)
    });
    let runner = run::Runner::new(agent, &exec, sources.collect(), exited, start.timeout_ms);
    agent.spawn(runner.run());
    Ok(exec)
}

fn check(start: &ExecStart) -> Result<(), GuestRefusal> {
    if let Some(size) = start.terminal {
        check_size(size)?;
    }
    let longest = limits::MAX_TIMEOUT_SECONDS * 1000;
    match start.timeout_ms {
        Some(timeout) if timeout == 0 || timeout > longest => {
            Err(refuse(GuestCode::Invalid, format!("timeout_ms must be 1 to {longest}")))
        }
        _ => Ok(()),
    }
}

fn launch_user(start: &ExecStart) -> Result<User, GuestRefusal> {
    match &start.user {
        Some(name) => User::find(name),
        None => User::find(&default_user()),
    }
}

fn resolve(agent: &Agent, start: &ExecStart) -> Result<Launch, GuestRefusal> {
    let user = launch_user(start)?;
    let mut env = program::environment(&agent.base_env, &user, [&agent.machine_env.borrow(), &start.env])?;
    if start.terminal.is_some() && !start.env.contains_key("TERM") {
        env.insert("TERM".to_owned(), TERMINAL_TYPE.to_owned());
    }
    Launch::resolve(&start.program, user, start.cwd.as_deref(), env)
}

fn describe(program: &Program) -> String {
    let whole = match program {
        Program::Shell(text) => text.clone(),
        Program::Argv(argv) => argv.join(" "),
    };
    whole.chars().take(200).collect()
}

fn pipe_ends(stdin: bool) -> io::Result<Ends> {
    let (child_in, input) = if stdin {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        (
            read,
            Input::Pipe(RefCell::new(Some(Rc::new(Descriptor::writer(write)?)))),
        )
    } else {
        (OpenOptions::new().read(true).open("/dev/null")?.into(), Input::Null)
    };
    let (read_out, child_out) = pipe2(OFlag::O_CLOEXEC)?;
    let (read_err, child_err) = pipe2(OFlag::O_CLOEXEC)?;
    // Fewer turns between command and agent; where it is not allowed the default does.
    let _ = fcntl(&child_out, FcntlArg::F_SETPIPE_SZ(OUTPUT_PIPE));
    Ok(Ends {
        child: [child_in, child_out, child_err],
        terminal: false,
        input,
        output: vec![
            (Kind::Stdout, Rc::new(Descriptor::reader(read_out)?)),
            (Kind::Stderr, Rc::new(Descriptor::reader(read_err)?)),
        ],
    })
}

fn terminal_ends(size: TerminalSize, owner: u32) -> io::Result<Ends> {
    let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(nix::libc::O_NOCTTY);
    let slave: OwnedFd = options.open(ptsname_r(&master)?)?.into();
    if Uid::effective().is_root() {
        // Programs open /dev/tty and the terminal's own name, which is their user's.
        fchown(&slave, Some(Uid::from_raw(owner)), None)?;
    }
    sys::set_window_size(slave.as_fd(), size.rows, size.cols)?;
    let master = Rc::new(Descriptor::terminal(owned(master))?);
    Ok(Ends {
        child: [slave.try_clone()?, slave.try_clone()?, slave],
        terminal: true,
        input: Input::Terminal(Rc::clone(&master)),
        output: vec![(Kind::Stdout, master)],
    })
}

fn owned(master: PtyMaster) -> OwnedFd {
    master.into()
}
