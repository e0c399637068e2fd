//! System calls that no library wraps: starting a process, and the mark that its descendants inherit.
//!
//! The only module of the agent with unsafe code.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

use nix::{
    libc,
    sys::{
        signal::{SigSet, SigmaskHow, pthread_sigmask},
        wait::waitpid,
    },
    unistd::Pid,
};
use tokio::io::{Interest, unix::AsyncFd};

/// What to start, and in which surroundings. Everything is prepared beforehand: between `clone` and `execve` the child
/// shares our memory and may do nothing but system calls.
#[derive(Debug)]
pub(crate) struct SpawnPlan<'a> {
    /// The program's file.
    pub(crate) path: &'a CStr,
    pub(crate) argv: &'a [CString],
    pub(crate) env: &'a [CString],
    pub(crate) cwd: &'a CStr,
    /// Becomes descriptors 0, 1 and 2.
    pub(crate) stdio: [BorrowedFd<'a>; 3],
    /// Becomes that descriptor as well.
    pub(crate) extra: Option<(BorrowedFd<'a>, RawFd)>,
    /// Whether descriptor 0 is a terminal that shall control the new session.
    pub(crate) terminal: bool,
    pub(crate) credentials: &'a Credentials,
    pub(crate) mark: u64,
    /// The list of members of a control group to enter.
    pub(crate) group: Option<BorrowedFd<'a>>,
}

/// Who a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

/// Which step of a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The process itself could not be made.
    Process,
    /// Session, terminal, descriptors or mark.
    Surroundings,
    /// Groups and ids.
    Credentials,
    /// The working directory.
    Directory,
    /// The program.
    Program,
}

/// A start that failed; no process is left of it.
#[derive(Debug)]
pub(crate) struct SpawnError {
    pub(crate) step: Step,
    pub(crate) error: io::Error,
}

/// What the child reads, and where it leaves why it failed.
struct ChildArgument<'a> {
    plan: &'a SpawnPlan<'a>,
    argv: *const *const c_char,
    env: *const *const c_char,
    mark: libc::rlimit,
    same_user: bool,
    failure: Option<(Step, c_int)>,
}

/// What the agent handles or ignores, or may have been told to ignore by who started it. `execve` resets the rest.
const RESET_SIGNALS: [c_int; 6] = [
    libc::SIGCHLD,
    libc::SIGPIPE,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGHUP,
    libc::SIGTERM,
];
const STACK: usize = 64 * 1024;

/// Starts a process as leader of a new session and group, with default signal handling and none blocked.
///
/// `clone(CLONE_VM | CLONE_VFORK)` as `posix_spawn` does: the address space is not copied, and this thread stands still
/// until the child runs its program or gave up.
pub(crate) fn spawn(plan: &SpawnPlan<'_>) -> Result<Pid, SpawnError> {
    let argv = pointers(plan.argv);
    let env = pointers(plan.env);
    let us = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let mut argument = ChildArgument {
        plan,
        argv: argv.as_ptr(),
        env: env.as_ptr(),
        mark: libc::rlimit {
            rlim_cur: plan.mark,
            rlim_max: libc::RLIM_INFINITY,
        },
        // An agent that is not root (tests only) cannot change groups and need not.
        same_user: us.0 != 0 && us == (plan.credentials.uid, plan.credentials.gid),
        failure: None,
    };
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let process_failed = |error: nix::Error| SpawnError {
        step: Step::Process,
        error: error.into(),
    };
    let mut before = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut before)).map_err(process_failed)?;
    // SAFETY: the child runs `child` on its own stack, which grows down from the end of `stack` (u128 keeps it aligned to
    // 16 bytes), with a pointer to `argument`. Both outlive it: CLONE_VFORK holds this thread until the child has left
    // our memory by execve or _exit. All signals are blocked, so none of our handlers can run in the child.
    let pid = unsafe {
        libc::clone(
            child,
            stack.as_mut_ptr().add(stack.len()).cast::<c_void>(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw mut argument).cast::<c_void>(),
        )
    };
    let cloned = nix::errno::Errno::result(pid).map(Pid::from_raw);
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None).map_err(process_failed)?;
    let pid = cloned.map_err(process_failed)?;
    // SAFETY: the child is gone from our memory; a volatile read, since the compiler does not know that it wrote there.
    let failure = unsafe { ptr::read_volatile(&raw const argument.failure) };
    match failure {
        None => Ok(pid),
        Some((step, errno)) => {
            // It has exited; its status is of no use.
            let _ = waitpid(pid, None);
            Err(SpawnError {
                step,
                error: io::Error::from_raw_os_error(errno),
            })
        }
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings
        .iter()
        .map(|string| string.as_ptr())
        .chain([ptr::null()])
        .collect()
}

extern "C" fn child(argument: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a pointer to a `ChildArgument` that nobody else touches while this runs.
    let argument = unsafe { &mut *argument.cast::<ChildArgument<'_>>() };
    let step = become_program(argument);
    // SAFETY: errno is this thread's; `spawn` stands still and does not use it.
    let errno = unsafe { *libc::__errno_location() };
    argument.failure = Some((step, errno));
    // SAFETY: ends the child without running anything of ours.
    unsafe { libc::_exit(127) }
}

/// A number in decimal digits, without allocating.
fn decimal(mut number: u32, digits: &mut [u8; 12]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[start..];
        }
    }
}

/// Returns only if a step failed, with errno set.
fn become_program(argument: &ChildArgument<'_>) -> Step {
    let plan = argument.plan;
    // SAFETY: system calls on values that live in `argument`. The raw calls for ids are deliberate: the C library's own
    // would change the ids of every thread of the agent.
    unsafe {
        for signal in RESET_SIGNALS {
            libc::signal(signal, libc::SIG_DFL);
        }
        if let Some(group) = &plan.group {
            let mut digits = [0; 12];
            let text = decimal(libc::getpid().unsigned_abs(), &mut digits);
            if libc::write(group.as_raw_fd(), text.as_ptr().cast(), text.len()) < 0 {
                return Step::Surroundings;
            }
        }
        if libc::setsid() < 0 {
            return Step::Surroundings;
        }
        if plan.terminal && libc::ioctl(plan.stdio[0].as_raw_fd(), libc::TIOCSCTTY, 0) < 0 {
            return Step::Surroundings;
        }
        for (target, source) in (0..).zip(&plan.stdio) {
            if libc::dup2(source.as_raw_fd(), target) < 0 {
                return Step::Surroundings;
            }
        }
        if let Some((source, target)) = &plan.extra {
            let source = source.as_raw_fd();
            // A dup2 onto itself would leave it close-on-exec.
            let done = if source == *target {
                libc::fcntl(source, libc::F_SETFD, 0)
            } else {
                libc::dup2(source, *target)
            };
            if done < 0 {
                return Step::Surroundings;
            }
        }
        if libc::setrlimit(libc::RLIMIT_RSS, &raw const argument.mark) < 0 {
            return Step::Surroundings;
        }
        let who = plan.credentials;
        let (uid, gid) = (who.uid, who.gid);
        if !argument.same_user
            && (libc::syscall(libc::SYS_setgroups, who.groups.len(), who.groups.as_ptr()) < 0
                || libc::syscall(libc::SYS_setresgid, gid, gid, gid) < 0
                || libc::syscall(libc::SYS_setresuid, uid, uid, uid) < 0)
        {
            return Step::Credentials;
        }
        if libc::chdir(plan.cwd.as_ptr()) < 0 {
            return Step::Directory;
        }
        libc::umask(0o022);
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        libc::execve(plan.path.as_ptr(), argument.argv, argument.env);
    }
    Step::Program
}

/// The mark that a process has inherited or was given: its soft limit of RLIMIT_RSS, which no kernel enforces and no
/// program sets. `None` when there is no such process.
pub(crate) fn mark_of(pid: Pid) -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes one rlimit through a valid pointer.
    let result = unsafe { libc::prlimit(pid.as_raw(), libc::RLIMIT_RSS, ptr::null(), &raw mut limit) };
    (result == 0).then_some(limit.rlim_cur)
}

/// Marks a process; what it starts from now on inherits the mark.
pub(crate) fn set_mark(pid: Pid, mark: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: mark,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: reads one rlimit through a valid pointer.
    let result = unsafe { libc::prlimit(pid.as_raw(), libc::RLIMIT_RSS, &raw const limit, ptr::null_mut()) };
    nix::errno::Errno::result(result).map(drop).map_err(io::Error::from)
}

/// Signals a process group. Takes any number, the real-time signals included, which no type of the library names.
pub(crate) fn signal_group(leader: Pid, signal: c_int) -> io::Result<()> {
    // SAFETY: sends a signal; touches no memory.
    let result = unsafe { libc::killpg(leader.as_raw(), signal) };
    nix::errno::Errno::result(result).map(drop).map_err(io::Error::from)
}

/// Sets the size of a terminal.
pub(crate) fn set_window_size(terminal: BorrowedFd<'_>, rows: u16, cols: u16) -> io::Result<()> {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: reads one winsize through a valid pointer.
    let result = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    nix::errno::Errno::result(result).map(drop).map_err(io::Error::from)
}

/// Keeps whatever else whoever started the agent left open from being inherited by what the agent starts.
pub(crate) fn keep_descriptors_to_ourselves() {
    // SAFETY: sets flags of descriptors; touches no memory. A kernel that does not know the call has left none open:
    // it is of a machine, where the agent is started with standard streams only.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

/// Takes over descriptors 0 and 1, which are the link. Call it once, before anything else uses them.
pub(crate) fn take_link_descriptors() -> (OwnedFd, OwnedFd) {
    // SAFETY: whoever started the agent left both open for it, and nothing else of the agent touches standard input and
    // output. Were one closed, its first use would be an error and no more.
    unsafe { (OwnedFd::from_raw_fd(0), OwnedFd::from_raw_fd(1)) }
}

/// Lets the runtime wait for a descriptor.
pub(crate) fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names the same open descriptor until it is dropped, which `AsyncFd` does after deregistering;
    // nobody gets it out of there to close it.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, interest)? })
}
