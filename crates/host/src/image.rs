//! A file as a small file system of its own: the one way to bound what a program writes that needs no quota support of the
//! host's file systems.
//!
//! An image is sparse: it takes the room of what was written to it. It is mounted through a loop device that the kernel
//! releases by itself when the mount goes.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    mount::{MsFlags, mount},
    unistd::Whence,
};

use crate::{Program, ProgramError, sys};

/// Where Debian's e2fsprogs has it.
const MKFS: &str = "/usr/sbin/mkfs.ext4";
/// How often somebody else may take the loop device that was just free.
const ATTEMPTS: usize = 64;

/// Whether [`format()`] can work here.
#[must_use]
pub fn is_formatter_installed() -> bool {
    Path::new(MKFS).exists()
}

/// Makes an empty image of `mib` MiB at `path`, for a handful of large files.
///
/// No journal and no reserve: a machine's disk need not survive the host's crash, and all of it is for its owner.
///
/// # Errors
/// When `mkfs.ext4` is missing or fails, or the file cannot be made.
pub async fn format(path: &Path, mib: u64) -> Result<(), ProgramError> {
    let make = || File::create(path)?.set_len(mib << 20);
    make().map_err(|source| ProgramError::Start {
        program: PathBuf::from(MKFS),
        source,
    })?;
    let mut mkfs = Program::new(MKFS)?;
    mkfs.args(["-q", "-F", "-m", "0", "-N", "16", "-E", "nodiscard,lazy_itable_init=1"]);
    mkfs.args([
        "-O",
        "^has_journal,^resize_inode,^metadata_csum,extent,flex_bg,uninit_bg",
    ]);
    mkfs.arg(path);
    mkfs.run(Duration::from_secs(60), |_| {}).await?.success()?;
    Ok(())
}

/// Copies an image's written parts; the holes stay holes.
///
/// # Errors
/// When `from` cannot be read or `to` exists already.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let source = File::open(from)?;
    let target = OpenOptions::new().write(true).create_new(true).open(to)?;
    let length = source.metadata()?.len();
    target.set_len(length)?;
    let mut buffer = vec![0; 64 << 10];
    let mut end = 0;
    while let Some((start, stop)) = next_extent(&source, end)? {
        let mut at = start;
        while at < stop {
            let want = buffer.len().min(usize::try_from(stop - at).unwrap_or(usize::MAX));
            let count = source.read_at(&mut buffer[..want], at)?;
            if count == 0 {
                break;
            }
            target.write_all_at(&buffer[..count], at)?;
            at += count as u64;
        }
        end = stop;
    }
    Ok(())
}

/// The next written part at or after `from`.
fn next_extent(file: &File, from: u64) -> io::Result<Option<(u64, u64)>> {
    let offset = i64::try_from(from).map_err(io::Error::other)?;
    let start = match nix::unistd::lseek(file, offset, Whence::SeekData) {
        Ok(start) => start,
        Err(nix::errno::Errno::ENXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let stop = nix::unistd::lseek(file, start, Whence::SeekHole)?;
    let unsigned = |value: i64| u64::try_from(value).map_err(io::Error::other);
    Ok(Some((unsigned(start)?, unsigned(stop)?)))
}

/// Mounts the image at `path` on the directory `at`. What is deleted in it is given back to the host.
///
/// # Errors
/// When the host has no loop devices, or we may not mount.
pub fn mount_image(path: &Path, at: &Path) -> io::Result<()> {
    let image = OpenOptions::new().read(true).write(true).open(path)?;
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    for _ in 0..ATTEMPTS {
        let name = format!("/dev/loop{}", sys::loop_find_free(&control)?);
        let device = OpenOptions::new().read(true).write(true).open(&name)?;
        match sys::loop_attach(&device, &image) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(nix::libc::EBUSY) => continue,
            Err(error) => return Err(error),
        }
        let flags = MsFlags::MS_NOATIME | MsFlags::MS_NODEV | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
        // `device` is closed only after the mount holds the loop device, or the kernel would release it at once.
        return Ok(mount(
            Some(name.as_str()),
            at,
            Some("ext4"),
            flags,
            Some("discard,noinit_itable"),
        )?);
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "no loop device is free"))
}
