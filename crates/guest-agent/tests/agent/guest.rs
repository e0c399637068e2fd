//! A guest for one test.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    time::Duration,
};

use atoll_guest_link::{CellOutput, CellSession, ExecEvent, ExecSession, GuestError, GuestLink};
use atoll_model::{ContextId, Outcome, OutputLimit};
use atoll_protocol::types::{
    CellEnd, CellEvent, CellRun, ContextCreate, ExecEnd, ExecStart, GuestCode, Program, ThawRequest, WarmRequest,
};
use tokio::net::UnixStream;

/// An agent and a link to it. The agent ends with it.
pub(crate) struct Guest {
    pub(crate) link: GuestLink,
    pub(crate) folder: tempfile::TempDir,
    agent: Child,
    port: Option<OwnedFd>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.link.close();
        drop(self.port.take());
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

impl Guest {
    /// Starts one, and thaws it.
    pub(crate) async fn boot() -> Self {
        Self::with_limits(1024, 1024).await
    }

    pub(crate) async fn with_limits(memory_mb: u64, pids: u32) -> Self {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
        let ours_again = ours.try_clone().expect("a second host end");
        ours.set_nonblocking(true).expect("non-blocking");
        let agent = agent_command()
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .stdin(OwnedFd::from(theirs.try_clone().expect("a copy")))
            .stdout(OwnedFd::from(theirs))
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the agent starts");
        let port = UnixStream::from_std(ours).expect("a port");
        let link = GuestLink::attach(port).await.expect("a link");
        let guest = Self {
            link,
            folder: tempfile::tempdir().expect("a folder"),
            agent,
            port: Some(ours_again.into()),
        };
        guest.thaw(memory_mb, pids).await;
        guest
    }

    pub(crate) async fn thaw(&self, memory_mb: u64, pids: u32) {
        let thaw = ThawRequest {
            unix_nanos: 0,
            entropy: "ab".repeat(32),
            hostname: "guest".to_owned(),
            env: BTreeMap::from([("MACHINE".to_owned(), "yes".to_owned())]),
            cpu: 1,
            memory_mb,
            pids,
        };
        self.link.thaw(&thaw).await.expect("a thaw");
    }

    /// A second host takes the port over, as a restarted server does.
    pub(crate) async fn attach_again(&self) -> GuestLink {
        let port = self.port.as_ref().expect("a port").try_clone().expect("a copy");
        let port = UnixStream::from_std(std::os::unix::net::UnixStream::from(port)).expect("a port");
        GuestLink::attach(port).await.expect("a second link")
    }

    /// A path in the guest's own folder.
    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    pub(crate) async fn sh(&self, script: &str) -> Ended {
        self.exec(shell(script)).await
    }

    pub(crate) async fn exec(&self, start: ExecStart) -> Ended {
        let session = self.link.exec(&start).await.expect("the command starts");
        Ended::of(session).await.expect("the command ends")
    }

    pub(crate) async fn refused(&self, start: ExecStart) -> GuestCode {
        match self.link.exec(&start).await {
            Err(GuestError::Refused(refusal)) => refusal.code,
            other => panic!("not refused: {other:?}"),
        }
    }

    pub(crate) async fn warm(&self) {
        let driver = self.path("driver.py");
        std::fs::write(&driver, include_str!("driver.py")).expect("the driver");
        let warm = WarmRequest {
            language: "python".to_owned(),
            argv: vec!["python3".to_owned(), driver],
            user: "0".to_owned(),
            code: "import json".to_owned(),
            timeout_ms: 20_000,
        };
        self.link.warm(&warm).await.expect("a warm interpreter");
    }

    pub(crate) async fn context(&self) -> ContextId {
        let create = ContextCreate {
            language: "python".to_owned(),
            cwd: None,
            env: BTreeMap::new(),
        };
        self.link.context_create(&create).await.expect("a context").id
    }

    pub(crate) async fn cell(&self, context: ContextId, code: &str) -> Cell {
        self.cell_within(context, code, 20_000).await
    }

    pub(crate) async fn cell_within(&self, context: ContextId, code: &str, timeout_ms: u64) -> Cell {
        let session = self.start_cell(context, code, timeout_ms).await;
        Cell::of(session).await.expect("the cell ends")
    }

    pub(crate) async fn start_cell(&self, context: ContextId, code: &str, timeout_ms: u64) -> CellSession {
        let run = CellRun {
            code: code.to_owned(),
            timeout_ms,
            env: BTreeMap::new(),
            keep: OutputLimit::default(),
        };
        self.link.context_run(context, &run).await.expect("the cell is queued")
    }
}

#[expect(clippy::disallowed_methods, reason = "the agent under test is a process")]
fn agent_command() -> Command {
    let agent = env!("CARGO_BIN_EXE_atoll-agent");
    if !nix_is_root() {
        return Command::new(agent);
    }
    let mut command = Command::new("/usr/bin/unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--uts", agent]);
    command
}

fn nix_is_root() -> bool {
    std::fs::read_to_string("/proc/self/loginuid").is_ok() && std::fs::metadata("/root/.").is_ok()
}

pub(crate) fn shell(script: &str) -> ExecStart {
    start(Program::Shell(script.to_owned()))
}

pub(crate) fn argv(argv: &[&str]) -> ExecStart {
    start(Program::Argv(argv.iter().map(|part| (*part).to_owned()).collect()))
}

fn start(program: Program) -> ExecStart {
    ExecStart {
        program,
        cwd: None,
        user: None,
        env: BTreeMap::new(),
        stdin: false,
        terminal: None,
        timeout_ms: None,
        keep: None,
        detach: false,
    }
}

/// A command and all that came of it.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) end: ExecEnd,
}

impl Ended {
    pub(crate) async fn of(mut session: ExecSession) -> Result<Self, GuestError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            match session.next().await? {
                Some(ExecEvent::Stdout(data)) => stdout.extend_from_slice(&data),
                Some(ExecEvent::Stderr(data)) => stderr.extend_from_slice(&data),
                Some(ExecEvent::End(end)) => return Ok(Self { stdout, stderr, end }),
                None => panic!("no end"),
            }
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn ok(&self) -> bool {
        self.end.outcome == Outcome::Ok && self.end.exit_code == Some(0)
    }
}

/// A cell and all that came of it.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) results: Vec<BTreeMap<String, serde_json::Value>>,
    pub(crate) end: CellEnd,
}

impl Cell {
    pub(crate) async fn of(mut session: CellSession) -> Result<Self, GuestError> {
        let (mut stdout, mut stderr, mut results) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            match session.next().await? {
                Some(CellOutput::Stdout(data)) => stdout.extend_from_slice(&data),
                Some(CellOutput::Stderr(data)) => stderr.extend_from_slice(&data),
                Some(CellOutput::Event(CellEvent::Result { bundle, .. })) => results.push(bundle),
                Some(CellOutput::Event(CellEvent::Done(end))) => {
                    let text = |bytes| String::from_utf8(bytes).expect("text");
                    return Ok(Self {
                        stdout: text(stdout),
                        stderr: text(stderr),
                        results,
                        end,
                    });
                }
                None => panic!("no end"),
            }
        }
    }
}

/// Waits until something holds; the test fails if it never does.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}
