//! What the guest sees: the rootfs with its own writes over it, in memory.

use std::{
    io,
    path::{Path, PathBuf},
};

use atoll_engine::{GUEST_DIR, MachinePlan};
use atoll_host::{Enclosure, MountAction, Right};

/// Where the guest's programs are.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The mount point of a machine's disk, in its own mount namespace.
fn disk(folder: &Path) -> PathBuf {
    folder.join("disk")
}

/// The same, as we can reach it: by way of the process whose mount namespace it is.
pub(crate) fn disk_seen_by(process: i32, folder: &Path) -> PathBuf {
    let inside = disk(folder);
    Path::new("/proc")
        .join(process.to_string())
        .join("root")
        .join(inside.strip_prefix("/").unwrap_or(&inside))
}

/// The world of one machine. Nothing of it exists outside of its processes.
pub(crate) fn around(plan: &MachinePlan, folder: &Path) -> io::Result<Enclosure> {
    let folder = folder.canonicalize()?;
    let disk = disk(&folder);
    // On a file system of its own, because the rootfs may be the host's root, and an overlay's upper folder may not be below
    // its lower one.
    let size = format!("size={}m,mode=755", plan.limits.disk_mb);
    let (upper, work, root) = (disk.join("upper"), disk.join("work"), disk.join("root"));
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        plan.rootfs.display(),
        upper.display(),
        work.display()
    );
    let mut world = Enclosure::new();
    world.mount(MountAction::New {
        kind: "tmpfs",
        at: &disk,
        options: &size,
    })?;
    world
        .mount(MountAction::Folder(&upper))?
        .mount(MountAction::Folder(&work))?;
    world.mount(MountAction::New {
        kind: "overlay",
        at: &root,
        options: &layers,
    })?;
    world.mount(MountAction::New {
        kind: "proc",
        at: &root.join("proc"),
        options: "",
    })?;
    world.mount(MountAction::New {
        kind: "sysfs",
        at: &root.join("sys"),
        options: "",
    })?;
    world.mount(MountAction::Bind {
        from: Path::new("/dev"),
        at: &root.join("dev"),
        read_only: false,
    })?;
    world.mount(MountAction::New {
        kind: "tmpfs",
        at: &root.join("dev/shm"),
        options: "mode=1777",
    })?;
    world.mount(MountAction::New {
        kind: "tmpfs",
        at: &root.join("tmp"),
        options: "mode=1777",
    })?;
    let agent = root.join(GUEST_DIR.trim_start_matches('/'));
    world.mount(MountAction::Bind {
        from: &plan.guest_dir,
        at: &agent,
        read_only: true,
    })?;
    world.root(&root)?.own_pids().own_hostname();
    for right in [Right::Module, Right::Boot, Right::Time] {
        world.without(right);
    }
    Ok(world)
}
