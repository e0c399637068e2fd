//! A root directory out of a recipe: Debian packages by `mmdebstrap`, Python packages by the new system's own pip, then
//! users, folders, files and steps.
//!
//! Mirrors and package index are the machine's own. They are used for the build and, credentials included, are not in the
//! result; neither are caches and package lists. Only root can build, because the files of a root directory are root's.

mod chroot;
mod machine;
mod mirror;
mod pip;

use std::path::{Path, PathBuf};

use atoll_host::{Enclosure, MountAction, Program, find_program};

use crate::{
    Phase, Progress, Recipe, TemplateError,
    progress::PhaseLines,
    recipe::{FileEntry, UserEntry},
};
use chroot::{Chroot, DEADLINE};

/// Where programs of the host are looked for.
const HOST_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What no program of a sandbox reads, and what is made anew by those that need it.
const LEFTOVERS: &[&str] = &[
    "/etc/apt/apt.conf.d/99mmdebstrap",
    "/etc/machine-id",
    "/root/.cache",
    "/var/cache/apt/pkgcache.bin",
    "/var/cache/apt/srcpkgcache.bin",
    "/var/log/apt",
    "/var/log/dpkg.log",
    "/var/log/alternatives.log",
    "/var/log/bootstrap.log",
    "/var/lib/dpkg/status-old",
];
/// Folders of packages that nobody reads in a sandbox.
const EXCLUDED: &[&str] = &[
    "/usr/share/doc/*",
    "/usr/share/doc-base/*",
    "/usr/share/info/*",
    "/usr/share/lintian/*",
    "/usr/share/locale/*",
    "/usr/share/man/*",
];

/// Builds the rootfs of a recipe at `rootfs`, which must not exist; `work` is a folder for its own use, removed at the end.
///
/// Dropping this kills what it started; the half-made folders are the caller's to remove.
///
/// # Errors
/// [`TemplateError`].
pub async fn build(recipe: &Recipe, rootfs: &Path, work: &Path, progress: &Progress) -> Result<(), TemplateError> {
    std::fs::create_dir_all(work).map_err(TemplateError::host("make", work))?;
    install_system(recipe, rootfs, work, &mut progress.phase(Phase::Packages)).await?;
    let chroot = Chroot::new(rootfs, work);
    if !recipe.python.packages.is_empty() {
        install_python(recipe, &chroot, &mut progress.phase(Phase::Python)).await?;
    }
    set_up(recipe, &chroot, &mut progress.phase(Phase::Setup)).await?;
    std::fs::remove_dir_all(work).map_err(TemplateError::host("remove", work))
}

/// Debian's packages.
async fn install_system(
    recipe: &Recipe,
    rootfs: &Path,
    work: &Path,
    lines: &mut PhaseLines<'_>,
) -> Result<(), TemplateError> {
    let mmdebstrap = host_program("mmdebstrap", "mmdebstrap")?;
    let suite = &recipe.base.suite;
    let sources = mirror::of_machine(suite)?;
    let sources_file = work.join("atoll.sources");
    std::fs::write(&sources_file, sources).map_err(TemplateError::host("write", &sources_file))?;
    let mut program = Program::new(mmdebstrap).map_err(TemplateError::program("installing system packages"))?;
    program
        .env("PATH", HOST_PATH)
        .env("HOME", "/root")
        .env("LC_ALL", "C.UTF-8");
    program.env("TMPDIR", work);
    for (name, value) in machine::proxies() {
        program.env(name, value);
    }
    program.args(["--verbose", "--mode=root", "--variant=minbase", "--format=directory"]);
    program.arg("--aptopt=Acquire::Languages \"none\"");
    for option in machine::apt_options().await? {
        program.arg(format!("--aptopt={option}"));
    }
    for pattern in EXCLUDED {
        program.arg(format!("--dpkgopt=path-exclude={pattern}"));
    }
    program.arg("--dpkgopt=path-include=/usr/share/doc/*/copyright");
    if !recipe.base.packages.is_empty() {
        program.arg(format!("--include={}", recipe.base.packages.join(",")));
    }
    program.arg(suite).arg(rootfs).arg(&sources_file);
    // Its own process numbers: whatever it starts ends with it, should it be killed.
    let mut enclosure = Enclosure::new();
    let proc = MountAction::New {
        kind: "proc",
        at: Path::new("/proc"),
        options: "",
    };
    enclosure.mount(proc).map_err(TemplateError::host("mount", "/proc"))?;
    enclosure.own_pids();
    program.enclosure(enclosure);
    let ran = program.run(DEADLINE, |line| lines.line(line.text.clone())).await;
    ran.and_then(atoll_host::Finished::success)
        .map_err(TemplateError::program("installing system packages"))?;
    Ok(())
}

/// Python's packages, by the new system's own pip.
async fn install_python(recipe: &Recipe, chroot: &Chroot, lines: &mut PhaseLines<'_>) -> Result<(), TemplateError> {
    let settings = pip::Settings::of_machine()?;
    settings.write(&chroot.share("pip")?)?;
    let requirements = recipe.python.packages.join("\n");
    chroot.share_file("requirements.txt", &requirements)?;
    let pip = [
        "/usr/bin/python3",
        "-m",
        "pip",
        "install",
        "--no-cache-dir",
        "--no-input",
        "--root-user-action=ignore",
    ];
    let mut step = chroot.step("installing Python packages", &pip);
    step.arg("--requirement").arg(chroot.inside("requirements.txt"));
    step.env("PIP_CONFIG_FILE", &chroot.inside("pip/pip.conf"));
    // Debian marks its Python as its own; this one is the template's.
    step.env("PIP_BREAK_SYSTEM_PACKAGES", "1")
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    step.run(lines).await
}

async fn set_up(recipe: &Recipe, chroot: &Chroot, lines: &mut PhaseLines<'_>) -> Result<(), TemplateError> {
    for user in &recipe.users {
        add_user(user, chroot, lines).await?;
    }
    for folder in &recipe.folders {
        let make = [
            "/usr/bin/install",
            "--directory",
            "--owner",
            &folder.owner,
            "--group",
            &folder.owner,
        ];
        let mut step = chroot.step("making folders", &make);
        step.arg("--mode").arg(&folder.mode).arg("--").arg(&folder.path);
        step.run(lines).await?;
    }
    for file in &recipe.files {
        add_file(file, chroot, lines).await?;
    }
    for (name, text) in [
        ("hostname", "sandbox\n"),
        ("hosts", "127.0.0.1 localhost\n::1 localhost\n"),
        ("resolv.conf", ""),
    ] {
        add_file(&system_file(&format!("/etc/{name}"), text), chroot, lines).await?;
    }
    if !recipe.env.is_empty() {
        // For programs that read it at a login; commands and contexts get the same from the agent.
        let assignments: String = recipe
            .env
            .iter()
            .map(|(name, value)| format!("{name}={value}\n"))
            .collect();
        add_file(&system_file("/etc/environment", &assignments), chroot, lines).await?;
    }
    for command in &recipe.run {
        chroot
            .step("the recipe's own step", &["/bin/sh", "-ec", command])
            .run(lines)
            .await?;
    }
    let mut clean = chroot.step("cleaning up", &["/bin/rm", "--recursive", "--force", "--"]);
    for path in LEFTOVERS {
        clean.arg(path);
    }
    clean.run(lines).await?;
    chroot.leave()
}

async fn add_user(user: &UserEntry, chroot: &Chroot, lines: &mut PhaseLines<'_>) -> Result<(), TemplateError> {
    let uid = user.uid.to_string();
    let mut step = chroot.step(
        "making users",
        &["/usr/sbin/useradd", "--create-home", "--user-group", "--uid", &uid],
    );
    step.arg("--home-dir")
        .arg(&user.home)
        .arg("--shell")
        .arg(&user.shell)
        .arg("--")
        .arg(&user.name);
    step.run(lines).await?;
    if user.sudo {
        let rule = format!("{} ALL=(ALL:ALL) NOPASSWD: ALL\n", user.name);
        let mut file = system_file(&format!("/etc/sudoers.d/{}", user.name), &rule);
        "0440".clone_into(&mut file.mode);
        add_file(&file, chroot, lines).await?;
    }
    Ok(())
}

fn system_file(path: &str, text: &str) -> FileEntry {
    FileEntry {
        path: path.to_owned(),
        text: text.to_owned(),
        owner: "root".to_owned(),
        mode: "0644".to_owned(),
    }
}

/// Writes a file from inside: a symbolic link on its way then means what it means there, not on the host.
async fn add_file(file: &FileEntry, chroot: &Chroot, lines: &mut PhaseLines<'_>) -> Result<(), TemplateError> {
    chroot.share_file("file", &file.text)?;
    let install = [
        "/usr/bin/install",
        "-D",
        "--owner",
        &file.owner,
        "--group",
        &file.owner,
        "--mode",
        &file.mode,
        "--",
    ];
    let mut step = chroot.step("writing files", &install);
    step.arg(chroot.inside("file")).arg(&file.path);
    step.run(lines).await
}

fn host_program(name: &'static str, package: &'static str) -> Result<PathBuf, TemplateError> {
    find_program(name, &HOST_PATH.into()).ok_or(TemplateError::Missing { program: name, package })
}
