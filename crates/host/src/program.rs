//! Starting programs: absolute path, nothing inherited that was not listed, never left unawaited.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::{Pid, setsid},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::Command,
    sync::mpsc,
};

use crate::{Cgroup, CpuSet, Enclosure, ProcessId, sys};

/// The longest line that is handed on whole, in bytes; the rest of a longer one comes as further lines.
const LINE_BYTES: usize = 8192;
/// Lines of its output that an error tells.
const TAIL_LINES: usize = 20;
/// Lines that wait between the program's streams and their reader.
const LINES_WAITING: usize = 64;

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It could not be started, or something around it failed.
    #[error("cannot run {}", program.display())]
    Start {
        /// Its path.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It said that it failed, or was killed.
    #[error("{} ended with {status}: {tail}", program.display())]
    Failed {
        /// Its path.
        program: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// The last lines that it printed.
        tail: String,
    },
    /// It was killed because it took too long.
    #[error("{} did not end within {seconds} s: {tail}", program.display())]
    TooSlow {
        /// Its path.
        program: PathBuf,
        /// Its deadline.
        seconds: u64,
        /// The last lines that it printed.
        tail: String,
    },
}

/// How long a program file may be busy before that counts as a failure.
const BUSY: Duration = Duration::from_millis(500);

/// A program about to be started.
///
/// It gets an empty environment, `/dev/null` for its three standard streams, no other descriptor, a session of its own,
/// and the root directory as its working directory, except where told otherwise.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    command: Command,
    before: Before,
}

/// What the child does before it becomes the program.
#[derive(Debug, Default)]
struct Before {
    entrances: Vec<File>,
    cpus: Option<CpuSet>,
    enclosure: Option<Enclosure>,
    descriptors: Vec<(OwnedFd, RawFd)>,
}

impl Program {
    /// The program at `path`.
    ///
    /// # Errors
    /// [`ProgramError::Start`] when the path is not absolute: what runs must not depend on a search path.
    #[expect(clippy::disallowed_methods, reason = "this is that one place")]
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, ProgramError> {
        let path = path.into();
        if !path.is_absolute() {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "the path is not absolute");
            return Err(ProgramError::Start { program: path, source });
        }
        let mut command = Command::new(&path);
        command.env_clear().current_dir("/").kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self {
            path,
            command,
            before: Before::default(),
        })
    }

    /// Adds an argument.
    pub fn arg(&mut self, argument: impl AsRef<OsStr>) -> &mut Self {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    pub fn args(&mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Self {
        self.command.args(arguments);
        self
    }

    /// Sets a variable of its environment.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.command.env(name, value);
        self
    }

    /// Its working directory, an absolute path of the host. An enclosure with a root of its own starts there instead.
    pub fn current_dir(&mut self, folder: &Path) -> &mut Self {
        self.command.current_dir(folder);
        self
    }

    /// Its standard input.
    pub fn stdin(&mut self, stream: impl Into<Stdio>) -> &mut Self {
        self.command.stdin(stream);
        self
    }

    /// Its standard output.
    pub fn stdout(&mut self, stream: impl Into<Stdio>) -> &mut Self {
        self.command.stdout(stream);
        self
    }

    /// Its standard error.
    pub fn stderr(&mut self, stream: impl Into<Stdio>) -> &mut Self {
        self.command.stderr(stream);
        self
    }

    /// Gives it `descriptor` as number `number` (3 or more).
    pub fn descriptor(&mut self, descriptor: OwnedFd, number: RawFd) -> &mut Self {
        self.before.descriptors.push((descriptor, number));
        self
    }

    /// Starts it inside `group`: it, and all that it starts, never runs outside.
    ///
    /// # Errors
    /// When there is no such group.
    pub fn cgroup(&mut self, group: &Cgroup) -> io::Result<&mut Self> {
        self.before.entrances = group.entrances()?;
        Ok(self)
    }

    /// Binds it to processors.
    pub fn cpus(&mut self, cpus: CpuSet) -> &mut Self {
        self.before.cpus = Some(cpus);
        self
    }

    /// Starts it inside `enclosure`. Its path is then looked up below the enclosure's root.
    pub fn enclosure(&mut self, enclosure: Enclosure) -> &mut Self {
        self.before.enclosure = Some(enclosure);
        self
    }

    /// Lets it live on when its [`Child`] is dropped. Whoever asks for that has another way to end it.
    pub fn outlive_us(&mut self) -> &mut Self {
        self.command.kill_on_drop(false);
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`ProgramError::Start`] when any preparation or the start itself fails.
    pub fn spawn(self) -> Result<Child, ProgramError> {
        let Self {
            path,
            mut command,
            before,
        } = self;
        let kills = command.get_kill_on_drop();
        install(&mut command, before);
        let started = spawn_unless_busy(&mut command).map(|inner| (inner.id(), inner));
        match started {
            Ok((Some(pid), inner)) => Ok(Child {
                inner,
                pid: pid.cast_signed(),
                path,
                kills,
                ended: false,
            }),
            Ok((None, _)) => Err(ProgramError::Start {
                program: path,
                source: io::Error::other("it ended before it had a number"),
            }),
            Err(source) => Err(ProgramError::Start { program: path, source }),
        }
    }

    /// Runs it to its end and hands each line that it prints to `on_line`, in order within each stream.
    ///
    /// When this is dropped, or `deadline` passes, it and its process group are killed.
    ///
    /// # Errors
    /// [`ProgramError::Start`] and [`ProgramError::TooSlow`]. That it failed is in [`Finished`].
    pub async fn run(mut self, deadline: Duration, mut on_line: impl FnMut(&Line)) -> Result<Finished, ProgramError> {
        self.stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = self.path.clone();
        let mut child = self.spawn()?;
        let mut tail = Tail::default();
        let work = child.drain(|line| {
            tail.push(&line.text);
            on_line(line);
        });
        match tokio::time::timeout(deadline, work).await {
            Ok(status) => Ok(Finished {
                program,
                status: status?,
                tail: tail.text(),
            }),
            Err(_) => Err(ProgramError::TooSlow {
                program,
                seconds: deadline.as_secs(),
                tail: tail.text(),
            }),
        }
    }
}

#[allow(unsafe_code)]
fn install(command: &mut Command, before: Before) {
    // SAFETY: the hook runs in a forked child of a process with threads. It makes system calls on values prepared here and
    // allocates nothing: descriptors are numbers, paths are C strings (see `Enclosure::enter`).
    unsafe {
        command.pre_exec(move || before.take_effect());
    }
}

impl Before {
    fn take_effect(&self) -> io::Result<()> {
        setsid()?;
        for entrance in &self.entrances {
            nix::unistd::write(entrance, b"0")?;
        }
        if let Some(cpus) = &self.cpus {
            cpus.bind_self()?;
        }
        if let Some(enclosure) = &self.enclosure {
            enclosure.enter()?;
        }
        sys::close_on_exec_from(3)?;
        for (descriptor, number) in &self.descriptors {
            sys::duplicate_onto(descriptor.as_raw_fd(), *number)?;
        }
        Ok(())
    }
}

/// A program that runs. Dropping it kills its process group, unless [`Program::outlive_us`] was asked for.
#[derive(Debug)]
pub struct Child {
    inner: tokio::process::Child,
    pid: i32,
    path: PathBuf,
    kills: bool,
    ended: bool,
}

impl Child {
    /// Its number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Kills it and its process group.
    pub fn kill(&mut self) {
        // Its number stays its own until `wait` has seen its end.
        if !self.ended {
            // It is gone already, or has become another user: nothing that we could do.
            let _ = killpg(Pid::from_raw(self.pid), Signal::SIGKILL);
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// [`ProgramError::Start`] when the kernel does not tell.
    pub async fn wait(&mut self) -> Result<ExitStatus, ProgramError> {
        let status = self.inner.wait().await.map_err(|source| ProgramError::Start {
            program: self.path.clone(),
            source,
        })?;
        self.ended = true;
        Ok(status)
    }

    /// Waits for its end; its streams are not read.
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub async fn finish(&mut self) -> Result<Finished, ProgramError> {
        Ok(Finished {
            program: self.path.clone(),
            status: self.wait().await?,
            tail: String::new(),
        })
    }

    /// Reads both piped streams to their end and waits for the program's.
    ///
    /// What it left running in its process group is killed then: it would hold the streams open.
    async fn drain(&mut self, mut on_line: impl FnMut(&Line)) -> Result<ExitStatus, ProgramError> {
        let at = |source| ProgramError::Start {
            program: self.path.clone(),
            source,
        };
        let watch = ProcessId::of(self.pid)
            .and_then(|id| id.map_or(Ok(None), |id| id.watch()))
            .map_err(at)?;
        let (send, mut receive) = mpsc::channel(LINES_WAITING);
        let stdout = forward(self.inner.stdout.take(), LineSource::Stdout, send.clone());
        let stderr = forward(self.inner.stderr.take(), LineSource::Stderr, send);
        let group = Pid::from_raw(self.pid);
        let sweep = async {
            if let Some(watch) = watch {
                watch.ended().await?;
            }
            // It has ended and was not waited for yet, so the number is still its own.
            let _ = killpg(group, Signal::SIGKILL);
            Ok(())
        };
        let read = async {
            while let Some(line) = receive.recv().await {
                on_line(&line);
            }
            Ok::<(), io::Error>(())
        };
        tokio::try_join!(stdout, stderr, sweep, read).map_err(at)?;
        self.wait().await
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.kills {
            self.kill();
        }
    }
}

/// Which stream a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineSource {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A line that a program printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// From where.
    pub source: LineSource,
    /// Without its end. Bytes that are no UTF-8 are replaced.
    pub text: String,
}

/// How a program ended.
#[derive(Debug)]
pub struct Finished {
    program: PathBuf,
    /// Its exit status.
    pub status: ExitStatus,
    /// The last lines that it printed.
    pub tail: String,
}

impl Finished {
    /// The same, if it succeeded.
    ///
    /// # Errors
    /// [`ProgramError::Failed`] with the last lines, if it did not.
    pub fn success(self) -> Result<Self, ProgramError> {
        if self.status.success() {
            return Ok(self);
        }
        Err(ProgramError::Failed {
            program: self.program,
            status: self.status,
            tail: self.tail,
        })
    }
}

async fn forward(
    stream: Option<impl AsyncRead + Unpin>,
    source: LineSource,
    send: mpsc::Sender<Line>,
) -> io::Result<()> {
    let Some(stream) = stream else { return Ok(()) };
    let mut reader = BufReader::with_capacity(LINE_BYTES, stream);
    let mut line = Vec::new();
    loop {
        let chunk = reader.fill_buf().await?;
        if chunk.is_empty() && line.is_empty() {
            return Ok(());
        }
        let end = chunk.iter().position(|&byte| byte == b'\n');
        let take = end.unwrap_or(chunk.len()).min(LINE_BYTES - line.len());
        let (at_end, whole) = (chunk.is_empty(), end == Some(take));
        line.extend_from_slice(&chunk[..take]);
        reader.consume(take + usize::from(whole));
        if whole || at_end || line.len() == LINE_BYTES {
            let text = String::from_utf8_lossy(&line).into_owned();
            line.clear();
            if send.send(Line { source, text }).await.is_err() {
                return Ok(());
            }
        }
    }
}

/// The last lines of a program's output.
#[derive(Debug, Default)]
struct Tail(VecDeque<String>);

impl Tail {
    fn push(&mut self, line: &str) {
        if self.0.len() == TAIL_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line.to_owned());
    }

    fn text(&self) -> String {
        let lines: Vec<&str> = self.0.iter().map(String::as_str).collect();
        lines.join("\n")
    }
}

/// A program file that this process has just written can be busy: a child that another thread forked meanwhile holds it open
/// for writing until it becomes its own program, which is a matter of milliseconds.
fn spawn_unless_busy(command: &mut Command) -> io::Result<tokio::process::Child> {
    let began = Instant::now();
    loop {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && began.elapsed() < BUSY => {
                std::thread::yield_now();
            }
            started => return started,
        }
    }
}

/// The first executable file named `name` in the folders of `search` (the form of `PATH`); relative folders are passed over.
#[must_use]
pub fn find_program(name: &str, search: &OsString) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let runs = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(search)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(runs)
}
