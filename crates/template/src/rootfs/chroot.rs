//! Programs of a half-made root directory, run inside it.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use atoll_host::{Enclosure, Finished, MountAction, Program};

use crate::{TemplateError, progress::PhaseLines};

use super::machine;

/// What one step may take: a slow network and hundreds of packages included.
pub(super) const DEADLINE: Duration = Duration::from_secs(3600);
/// Where the guest sees what is shared with it for the build.
const SHARED: &str = "/run/atoll-build";

/// A root directory, and a folder of the host that its programs see.
pub(super) struct Chroot {
    root: PathBuf,
    shared: PathBuf,
}

impl Chroot {
    pub(super) fn new(root: &Path, work: &Path) -> Self {
        Self {
            root: root.to_owned(),
            shared: work.join("shared"),
        }
    }

    /// A folder of the host that programs inside see as [`inside`](Self::inside) of the same name.
    pub(super) fn share(&self, name: &str) -> Result<PathBuf, TemplateError> {
        let folder = self.shared.join(name);
        std::fs::create_dir_all(&folder).map_err(TemplateError::host("make", &folder))?;
        Ok(folder)
    }

    /// Writes a file that programs inside see.
    pub(super) fn share_file(&self, name: &str, text: &str) -> Result<(), TemplateError> {
        let path = self.share("")?.join(name);
        std::fs::write(&path, text).map_err(TemplateError::host("write", path))
    }

    /// The path of something shared as programs inside see it.
    pub(super) fn inside(&self, name: &str) -> String {
        format!("{SHARED}/{name}")
    }

    /// A program to run inside. Its working directory is `/`.
    pub(super) fn step<'a>(&'a self, name: &'static str, argv: &[&str]) -> Step<'a> {
        Step {
            chroot: self,
            name,
            argv: argv.iter().map(OsString::from).collect(),
            env: vec![
                (
                    "PATH".into(),
                    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into(),
                ),
                ("HOME".into(), "/root".into()),
                ("LC_ALL".into(), "C.UTF-8".into()),
                ("DEBIAN_FRONTEND".into(), "noninteractive".into()),
            ],
        }
    }

    /// Removes the folders that were only there to be mounted on.
    pub(super) fn leave(&self) -> Result<(), TemplateError> {
        let folder = self.root.join(SHARED.trim_start_matches('/'));
        match std::fs::remove_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(TemplateError::host("remove", folder)(error)),
            _ => Ok(()),
        }
    }

    /// Mounts that only the step sees, and that end with it.
    fn enclosure(&self) -> io::Result<Enclosure> {
        let at = |path: &str| self.root.join(path);
        let mut enclosure = Enclosure::new();
        enclosure.mount(MountAction::New {
            kind: "proc",
            at: &at("proc"),
            options: "",
        })?;
        enclosure.mount(MountAction::Bind {
            from: Path::new("/dev"),
            at: &at("dev"),
            read_only: false,
        })?;
        enclosure.mount(MountAction::New {
            kind: "tmpfs",
            at: &at("tmp"),
            options: "mode=1777",
        })?;
        enclosure.mount(MountAction::Bind {
            from: &self.shared,
            at: &at(SHARED.trim_start_matches('/')),
            read_only: true,
        })?;
        enclosure.own_pids();
        enclosure.root(&self.root)?;
        Ok(enclosure)
    }
}

/// A program about to run inside a [`Chroot`].
pub(super) struct Step<'a> {
    chroot: &'a Chroot,
    name: &'static str,
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
}

impl Step<'_> {
    pub(super) fn arg(&mut self, argument: impl AsRef<OsStr>) -> &mut Self {
        self.argv.push(argument.as_ref().to_owned());
        self
    }

    pub(super) fn env(&mut self, name: &str, value: &str) -> &mut Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Runs it to its end; an exit status other than 0 is an error.
    pub(super) async fn run(&self, lines: &mut PhaseLines<'_>) -> Result<(), TemplateError> {
        let failed = TemplateError::program(self.name);
        self.chroot.share("")?;
        let enclosure = self
            .chroot
            .enclosure()
            .map_err(TemplateError::host("prepare", &self.chroot.root))?;
        let started = Program::new(&self.argv[0]);
        let mut program = match started {
            Ok(program) => program,
            Err(error) => return Err(failed(error)),
        };
        program.args(&self.argv[1..]).enclosure(enclosure);
        for (name, value) in machine::proxies() {
            program.env(name, value);
        }
        for (name, value) in &self.env {
            program.env(name, value);
        }
        let ran = program.run(DEADLINE, |line| lines.line(line.text.clone())).await;
        ran.and_then(Finished::success).map_err(failed).map(drop)
    }
}
