//! From what a caller names to a process: user, environment, working directory, search path.

use std::{
    collections::BTreeMap,
    ffi::CString,
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd, RawFd},
        unix::{ffi::OsStrExt, fs::PermissionsExt},
    },
    path::Path,
};

use atoll_protocol::types::{GuestCode, GuestRefusal, Program};
use nix::{
    sys::memfd::{MFdFlags, memfd_create},
    unistd::Pid,
};

use crate::{
    group::Group,
    refusal::{from_io, refuse},
    sys::{self, SpawnPlan, Step},
    tree::Mark,
    users::User,
};

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const SHELL: &str = "/bin/sh";
/// The kernel takes no argument longer than 128 KiB; a longer script is handed over as a file.
const LONGEST_SCRIPT_ARGUMENT: usize = 96 * 1024;
/// Where the shell finds such a script.
const SCRIPT_DESCRIPTOR: RawFd = 9;

/// A program, resolved and ready to start.
#[derive(Debug)]
pub(crate) struct Launch {
    path: CString,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
    script: Option<OwnedFd>,
    user: User,
}

/// Descriptors 0, 1 and 2 of a new process.
#[derive(Debug)]
pub(crate) struct Stdio<'a> {
    pub(crate) descriptors: [BorrowedFd<'a>; 3],
    /// Whether they are a terminal.
    pub(crate) terminal: bool,
}

impl Launch {
    /// Resolves a program for a user. `env` goes on top of the user's own variables.
    pub(crate) fn resolve(
        program: &Program,
        user: User,
        cwd: Option<&str>,
        env: BTreeMap<String, String>,
    ) -> Result<Self, GuestRefusal> {
        let cwd = working_directory(cwd, &user)?;
        let mut script = None;
        let argv = match program {
            Program::Argv(argv) => argv.clone(),
            Program::Shell(text) => {
                let text = if text.len() > LONGEST_SCRIPT_ARGUMENT {
                    script = Some(script_file(text)?);
                    format!(". /proc/self/fd/{SCRIPT_DESCRIPTOR}")
                } else {
                    text.clone()
                };
                vec![SHELL.to_owned(), "-c".to_owned(), text]
            }
        };
        let Some(name) = argv.first().filter(|name| !name.is_empty()) else {
            return Err(refuse(GuestCode::Invalid, "argv must name a program"));
        };
        let search = env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
        let path = find_program(name, search, Path::new(&cwd))?;
        let pairs = env.iter().map(|(name, value)| format!("{name}={value}"));
        Ok(Self {
            path: c_string(path, "the program's path")?,
            argv: argv
                .into_iter()
                .map(|part| c_string(part, "an argument"))
                .collect::<Result<_, _>>()?,
            env: pairs
                .map(|pair| c_string(pair, "an environment variable"))
                .collect::<Result<_, _>>()?,
            cwd: c_string(cwd, "cwd")?,
            script,
            user,
        })
    }

    /// Starts it. `extra` becomes the descriptor of that number.
    pub(crate) fn start(
        &self,
        stdio: &Stdio<'_>,
        extra: Option<(BorrowedFd<'_>, RawFd)>,
        mark: Mark,
        group: &Group,
    ) -> Result<Pid, GuestRefusal> {
        let script = self.script.as_ref().map(|script| (script.as_fd(), SCRIPT_DESCRIPTOR));
        let plan = SpawnPlan {
            path: &self.path,
            argv: &self.argv,
            env: &self.env,
            cwd: &self.cwd,
            stdio: stdio.descriptors,
            extra: extra.or(script),
            terminal: stdio.terminal,
            credentials: &self.user.credentials,
            mark: mark.value(),
            group: group.members(),
        };
        sys::spawn(&plan).map_err(|failure| self.explain(failure.step, &failure.error))
    }

    fn explain(&self, step: Step, error: &io::Error) -> GuestRefusal {
        let program = self.path.to_string_lossy();
        let cwd = self.cwd.to_string_lossy();
        match (step, error.raw_os_error()) {
            // gVisor says of a long argument that a name is too long; a path that is was refused before.
            (Step::Program, Some(nix::libc::E2BIG | nix::libc::ENAMETOOLONG)) => refuse(
                GuestCode::ArgumentTooLong,
                "an argument or the environment is longer than the kernel takes; pass it by standard input or a file",
            ),
            // The file itself was found: what is missing is its interpreter.
            (Step::Program, Some(nix::libc::ENOENT)) => refuse(
                GuestCode::NotExecutable,
                format!("{program}: the interpreter that it names does not exist"),
            ),
            (Step::Program, Some(nix::libc::EAGAIN | nix::libc::ENOMEM)) | (Step::Process, _) => refuse(
                GuestCode::TooMany,
                "the machine has no room for another process now; end one, or give it more memory",
            ),
            (Step::Program, _) => refuse(GuestCode::NotExecutable, from_io(&program, error).message),
            (Step::Directory, _) => refuse(GuestCode::Invalid, from_io(&format!("cwd: {cwd}"), error).message),
            (Step::Credentials, _) => from_io(&format!("user: {}", self.user.name), error),
            (Step::Surroundings, _) => from_io("starting the process", error),
        }
    }
}

/// The environment of a user: `base` (the template's), who it is, then the machine's and the call's own variables.
pub(crate) fn environment(
    base: &BTreeMap<String, String>,
    user: &User,
    layers: [&BTreeMap<String, String>; 2],
) -> Result<BTreeMap<String, String>, GuestRefusal> {
    let mut env = base.clone();
    let own = [
        ("HOME", &user.home),
        ("USER", &user.name),
        ("LOGNAME", &user.name),
        ("SHELL", &user.shell),
    ];
    env.extend(own.map(|(name, value)| (name.to_owned(), value.clone())));
    for layer in layers {
        check_variables(layer)?;
        env.extend(layer.clone());
    }
    env.entry("PATH".to_owned()).or_insert_with(|| DEFAULT_PATH.to_owned());
    env.entry("LANG".to_owned()).or_insert_with(|| "C.UTF-8".to_owned());
    Ok(env)
}

/// Refuses what the kernel would not take as environment.
pub(crate) fn check_variables(env: &BTreeMap<String, String>) -> Result<(), GuestRefusal> {
    let is_bad =
        |(name, value): &(&String, &String)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
    match env.iter().find(is_bad) {
        None => Ok(()),
        Some((name, _)) => Err(refuse(
            GuestCode::Invalid,
            format!("env: {name:?} is no variable; names hold no \"=\", and nothing holds a NUL byte"),
        )),
    }
}

/// The folder to start in; the user's home by default, or the root when that is not there.
pub(crate) fn working_directory(cwd: Option<&str>, user: &User) -> Result<String, GuestRefusal> {
    let Some(cwd) = cwd else {
        let home = &user.home;
        return Ok(if Path::new(home).is_dir() {
            home.clone()
        } else {
            "/".to_owned()
        });
    };
    if !cwd.starts_with('/') || cwd.contains('\0') {
        return Err(refuse(GuestCode::Invalid, "cwd must be an absolute path"));
    }
    match fs::metadata(cwd) {
        Ok(found) if found.is_dir() => Ok(cwd.to_owned()),
        Ok(_) => Err(refuse(GuestCode::Invalid, format!("cwd: {cwd} is not a directory"))),
        Err(error) => Err(refuse(
            GuestCode::Invalid,
            from_io(&format!("cwd: {cwd}"), &error).message,
        )),
    }
}

fn c_string(text: String, what: &str) -> Result<CString, GuestRefusal> {
    CString::new(text).map_err(|_| refuse(GuestCode::Invalid, format!("{what} must not hold a NUL byte")))
}

/// As a shell searches: a name with a slash is a path, any other is looked for in each folder of `search`.
fn find_program(name: &str, search: &str, cwd: &Path) -> Result<String, GuestRefusal> {
    let candidates: Vec<String> = if name.contains('/') {
        vec![name.to_owned()]
    } else {
        search
            .split(':')
            .map(|folder| format!("{}/{name}", if folder.is_empty() { "." } else { folder }))
            .collect()
    };
    let mut barred = None;
    for candidate in candidates {
        match fs::metadata(cwd.join(&candidate)) {
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => return Ok(candidate),
            Ok(found) => {
                barred = Some(if found.is_dir() {
                    "is a directory"
                } else {
                    "is not executable"
                })
            }
            Err(_) => {}
        }
    }
    Err(match barred {
        Some(why) => refuse(GuestCode::NotExecutable, format!("{name} {why}")),
        None => refuse(GuestCode::CommandNotFound, format!("{name}: command not found")),
    })
}

/// A script in memory that a shell can read by path, whoever runs it. The shell's own descriptor is closed by the script's
/// first command, so that what the script starts does not inherit it.
fn script_file(text: &str) -> Result<OwnedFd, GuestRefusal> {
    if text.contains('\0') {
        return Err(refuse(GuestCode::Invalid, "the command must not hold a NUL byte"));
    }
    let failed = |error: io::Error| from_io("handing the script to the shell", &error);
    let file = memfd_create(c"script", MFdFlags::MFD_CLOEXEC).map_err(|error| failed(error.into()))?;
    let mut file = fs::File::from(file);
    let script = format!("exec {SCRIPT_DESCRIPTOR}<&-; {text}");
    io::Write::write_all(&mut file, script.as_bytes()).map_err(failed)?;
    file.set_permissions(fs::Permissions::from_mode(0o444))
        .map_err(failed)?;
    Ok(file.into())
}

/// The agent's own environment: what the template gives to all.
pub(crate) fn own_environment() -> BTreeMap<String, String> {
    let text = |value: std::ffi::OsString| String::from_utf8_lossy(value.as_bytes()).into_owned();
    std::env::vars_os()
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_searched_as_a_shell_does() {
        let root = Path::new("/");
        assert_eq!(find_program("sh", "/nowhere:/bin", root), Ok("/bin/sh".to_owned()));
        assert_eq!(find_program("/bin/sh", "", root), Ok("/bin/sh".to_owned()));
        let code = |name| find_program(name, "/bin", root).map_err(|refusal| refusal.code);
        assert_eq!(code("no-such-program"), Err(GuestCode::CommandNotFound));
        assert_eq!(code("/etc/passwd"), Err(GuestCode::NotExecutable));
        assert_eq!(code("/etc"), Err(GuestCode::NotExecutable));
    }
}
