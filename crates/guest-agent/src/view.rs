//! What programs see of the machine's size, where its kernel does not follow the ceilings of a restore by itself.
//!
//! gVisor's total memory follows each restore; its number of processors and the size of `/dev/shm` stay as they were at the
//! bake, and `runsc` puts a file system of memory on an empty `/tmp`, which then fills memory and not the disk.

use std::{fs, io, path::Path};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CpuSet, sched_setaffinity},
};

use crate::tree;

const TEMPORARY: &str = "/tmp";
const SHARED_MEMORY: &str = "/dev/shm";
/// What `os.cpu_count` and `sysconf` read (proc_sys documentation of the C library: `_SC_NPROCESSORS_ONLN`).
const PROCESSORS: &str = "/sys/devices/system/cpu/online";
const FOLDER: &str = "/run/atoll";
const SHOWN_PROCESSORS: &str = "/run/atoll/processors";

/// Puts `/tmp` on the machine's disk. To be called before anything uses it.
pub(crate) fn put_temporary_files_on_disk() -> io::Result<()> {
    if mounted("tmpfs", TEMPORARY)? {
        umount2(TEMPORARY, MntFlags::empty())?;
    }
    Ok(())
}

/// Shows so many processors and so much shared memory to everything that runs and will run.
pub(crate) fn show(processors: u32, memory_mb: u64) -> io::Result<()> {
    show_processors(processors)?;
    bind_to(processors)?;
    size_shared_memory(memory_mb)
}

fn show_processors(processors: u32) -> io::Result<()> {
    let last = processors.saturating_sub(1);
    let range = if last == 0 {
        "0\n".to_owned()
    } else {
        format!("0-{last}\n")
    };
    fs::create_dir_all(FOLDER)?;
    // Written in place: where a snapshot holds the mount already, it shows this file.
    fs::write(SHOWN_PROCESSORS, &range)?;
    if Path::new(PROCESSORS).exists() && fs::read_to_string(PROCESSORS)? != range {
        mount(
            Some(SHOWN_PROCESSORS),
            PROCESSORS,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )?;
    }
    Ok(())
}

fn bind_to(processors: u32) -> io::Result<()> {
    let mut set = CpuSet::new();
    for processor in 0..processors as usize {
        set.set(processor)?;
    }
    for pid in tree::all_pids() {
        match sched_setaffinity(pid, &set) {
            // It ended meanwhile.
            Ok(()) | Err(nix::Error::ESRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Only while it is empty: what somebody keeps there is worth more than its bound.
fn size_shared_memory(memory_mb: u64) -> io::Result<()> {
    if !mounted("tmpfs", SHARED_MEMORY)? || fs::read_dir(SHARED_MEMORY)?.next().is_some() {
        return Ok(());
    }
    umount2(SHARED_MEMORY, MntFlags::empty())?;
    let options = format!("mode=1777,size={memory_mb}m");
    mount(
        Some("shm"),
        SHARED_MEMORY,
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some(options.as_str()),
    )?;
    Ok(())
}

/// Whether the last mount at that place is of that kind.
fn mounted(kind: &str, at: &str) -> io::Result<bool> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    // The first field is the device (proc_pid_mounts(5)).
    let mut found = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        (fields.next()? == at).then(|| fields.next() == Some(kind))
    });
    Ok(found.next_back().unwrap_or(false))
}
