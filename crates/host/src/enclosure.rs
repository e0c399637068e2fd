//! Namespaces, mounts and root of a program, made in the child between `fork` and `exec`.
//!
//! Everything here is prepared beforehand: in a forked child of a process with threads nothing may allocate or lock.

use std::{
    ffi::{CString, OsStr},
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::stat::Mode,
    unistd::{chdir, chroot, mkdir},
};

use crate::sys;

/// One mount of an [`Enclosure`].
#[derive(Debug, Clone)]
pub enum MountAction<'a> {
    /// Shows `from` (a file or a directory) at `at`.
    Bind {
        /// What.
        from: &'a Path,
        /// Where; must exist when it is a file, is made when it is a directory.
        at: &'a Path,
        /// Whether it can be written there.
        read_only: bool,
    },
    /// A new file system, as in `tmpfs`, `proc` or `overlay`.
    New {
        /// Its type.
        kind: &'a str,
        /// Where; made when missing.
        at: &'a Path,
        /// Its options, as in `size=64m`.
        options: &'a str,
    },
    /// Makes a directory and its parents.
    Folder(&'a Path),
}

/// The world a program wakes up in: private mounts always, the rest as asked.
///
/// Mounts live in the program's own mount namespace: nobody else sees them, and they are gone when its last process is.
#[derive(Debug, Default)]
pub struct Enclosure {
    steps: Vec<Step>,
    own_pids: bool,
    own_hostname: bool,
    lost_rights: Vec<Right>,
    root: Option<CString>,
}

/// What root may do to the whole host, namespaces or not; see capabilities(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// Loading kernel modules.
    Module,
    /// Rebooting.
    Boot,
    /// Setting the clock.
    Time,
}

impl Right {
    pub(crate) fn number(self) -> i32 {
        match self {
            Self::Module => 16,
            Self::Boot => 22,
            Self::Time => 25,
        }
    }
}

#[derive(Debug)]
enum Step {
    Folder(CString),
    Mount {
        source: CString,
        target: CString,
        kind: Option<CString>,
        flags: MsFlags,
        options: Option<CString>,
    },
}

impl Enclosure {
    /// A world that differs from ours in nothing but that its mounts are its own.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a mount, done after those added before. Paths are the host's, those below the later root included.
    ///
    /// # Errors
    /// When a path holds a NUL byte.
    pub fn mount(&mut self, action: MountAction<'_>) -> io::Result<&mut Self> {
        match action {
            MountAction::Bind { from, at, read_only } => {
                if from.is_dir() {
                    self.folder(at)?;
                }
                let (source, target) = (text(from.as_os_str())?, text(at.as_os_str())?);
                let bind = |flags| Step::Mount {
                    source: source.clone(),
                    target: target.clone(),
                    kind: None,
                    flags,
                    options: None,
                };
                self.steps.push(bind(MsFlags::MS_BIND | MsFlags::MS_REC));
                if read_only {
                    // The kernel takes "read-only" for a bind only when it is changed afterwards.
                    self.steps
                        .push(bind(MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY));
                }
            }
            MountAction::New { kind, at, options } => {
                self.folder(at)?;
                self.steps.push(Step::Mount {
                    source: text(OsStr::new(kind))?,
                    target: text(at.as_os_str())?,
                    kind: Some(text(OsStr::new(kind))?),
                    flags: MsFlags::empty(),
                    options: Some(text(OsStr::new(options))?),
                });
            }
            MountAction::Folder(path) => self.folder(path)?,
        }
        Ok(self)
    }

    fn folder(&mut self, path: &Path) -> io::Result<()> {
        let mut ancestors: Vec<&Path> = path.ancestors().filter(|part| part.parent().is_some()).collect();
        ancestors.reverse();
        for part in ancestors {
            self.steps.push(Step::Folder(text(part.as_os_str())?));
        }
        Ok(())
    }

    /// Gives it process numbers of its own: it is number 1, and when it ends everything that it started is killed.
    pub fn own_pids(&mut self) -> &mut Self {
        self.own_pids = true;
        self
    }

    /// Gives it a host name of its own: it starts with ours, and what it sets there is not ours.
    pub fn own_hostname(&mut self) -> &mut Self {
        self.own_hostname = true;
        self
    }

    /// Takes a right away, from it and all that it starts.
    pub fn without(&mut self, right: Right) -> &mut Self {
        self.lost_rights.push(right);
        self
    }

    /// Makes `folder` its root directory, after the mounts.
    ///
    /// # Errors
    /// When the path holds a NUL byte.
    pub fn root(&mut self, folder: &Path) -> io::Result<&mut Self> {
        self.root = Some(text(folder.as_os_str())?);
        Ok(self)
    }

    /// Enters it. Only in a forked child; makes no allocation.
    pub(crate) fn enter(&self) -> io::Result<()> {
        let mut apart = CloneFlags::CLONE_NEWNS;
        if self.own_pids {
            apart |= CloneFlags::CLONE_NEWPID;
        }
        if self.own_hostname {
            apart |= CloneFlags::CLONE_NEWUTS;
        }
        unshare(apart)?;
        if self.own_pids {
            sys::fork_into_pid_namespace()?;
        }
        let none: Option<&str> = None;
        // Without this our mounts would appear in the parent's namespace, where `/` is shared.
        mount(none, c"/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        for step in &self.steps {
            step.take()?;
        }
        if let Some(root) = &self.root {
            chroot(root.as_c_str())?;
            chdir(c"/")?;
        }
        for right in &self.lost_rights {
            sys::drop_right(right.number())?;
        }
        Ok(())
    }
}

impl Step {
    fn take(&self) -> io::Result<()> {
        match self {
            Self::Folder(path) => match mkdir(path.as_c_str(), Mode::from_bits_truncate(0o755)) {
                // EROFS: the kernel may say it of a directory that exists on a read-only mount.
                Ok(()) | Err(nix::errno::Errno::EEXIST | nix::errno::Errno::EROFS) => Ok(()),
                Err(error) => Err(error.into()),
            },
            Self::Mount {
                source,
                target,
                kind,
                flags,
                options,
            } => Ok(mount(
                Some(source.as_c_str()),
                target.as_c_str(),
                kind.as_deref(),
                *flags,
                options.as_deref(),
            )?),
        }
    }
}

fn text(value: &OsStr) -> io::Result<CString> {
    CString::new(value.as_bytes()).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path holds a NUL byte"))
}
