//! System calls that have no safe wrapper elsewhere, each behind a safe function.
#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    process::exit,
};

use nix::{
    libc,
    sys::wait::{WaitStatus, waitpid},
    unistd::{ForkResult, Pid, fork},
};
use tokio::io::{Interest, unix::AsyncFd};

/// A descriptor that refers to the process, and to no later one with the same number.
pub(crate) fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes two plain integers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = RawFd::try_from(result).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal through a descriptor of [`pidfd_open`].
pub(crate) fn pidfd_send_signal(pidfd: &OwnedFd, signal: i32) -> io::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the third argument is a pointer that the kernel takes as "none" when it is null.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, no_info, 0) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Hands a descriptor to the runtime, to await what happens on it.
pub(crate) fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, is the only one to close its descriptor, and names the same one for as long as it lives.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}

/// Marks every descriptor from `first` on as closed at `exec`. Safe between `fork` and `exec`.
pub(crate) fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    // SAFETY: takes plain integers; descriptors stay open until `exec`, so no owner in this process loses one.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Makes `target` refer to what `source` refers to, and keeps it open over `exec`. Safe between `fork` and `exec`.
pub(crate) fn duplicate_onto(source: RawFd, target: RawFd) -> io::Result<()> {
    // SAFETY: only called in a forked child that is about to `exec`, where `target` has no owner any more.
    let result = unsafe { libc::dup2(source, target) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Forks once more, so that the caller becomes process 1 of the PID namespace that was unshared before.
///
/// The parent in between waits for it and ends with its status; it dies with it and takes it along. Only for a forked child
/// that is about to `exec`.
pub(crate) fn fork_into_pid_namespace() -> io::Result<()> {
    // SAFETY: this process is a forked child of one thread. The new child goes on to `exec`; the parent below only makes
    // system calls and ends by `_exit`.
    match unsafe { fork() }? {
        ForkResult::Child => {
            nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
            Ok(())
        }
        ForkResult::Parent { child } => wait_and_exit(child),
    }
}

fn wait_and_exit(child: Pid) -> ! {
    // SAFETY: this process does nothing from here on but wait, and owns none of these descriptors. Among them is the pipe on
    // which the grandparent waits for the `exec`, so keeping it open would block that.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
    loop {
        match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, code)) => immediate_exit(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => immediate_exit(128 + signal as i32),
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(_) => immediate_exit(127),
        }
    }
}

fn immediate_exit(code: i32) -> ! {
    // SAFETY: ends the process without running any handler of the parent's copy of the program.
    unsafe { libc::_exit(code) };
    #[allow(unreachable_code)]
    exit(code)
}

/// Takes a capability out of what this process and its children can ever have. Safe between `fork` and `exec`.
pub(crate) fn drop_right(number: i32) -> io::Result<()> {
    // SAFETY: takes plain integers.
    let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// The number of a loop device that nobody uses at this moment.
pub(crate) fn loop_find_free(control: &impl AsRawFd) -> io::Result<u32> {
    // SAFETY: the request takes no argument.
    let result = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Ties a loop device to a file. The kernel unties it when its last user is gone. `EBUSY` when somebody was faster.
pub(crate) fn loop_attach(device: &impl AsRawFd, file: &impl AsRawFd) -> io::Result<()> {
    let config = LoopConfig {
        fd: u32::try_from(file.as_raw_fd()).map_err(io::Error::other)?,
        block_size: 0,
        info: LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: LO_FLAGS_AUTOCLEAR,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: the request reads one `struct loop_config` from the pointer, which is valid for the whole call; the layout is
    // the kernel's (checked below).
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);
