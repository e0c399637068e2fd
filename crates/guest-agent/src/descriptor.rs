//! A pipe or terminal that is waited for, never blocked on.

use std::{
    cell::RefCell,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::io::{Interest, unix::AsyncFd};

use crate::sys;

/// Where output is read into, by one reader after the other: a process that says nothing costs no buffer.
pub(crate) type Scratch = RefCell<Box<[u8]>>;

/// Bytes that one read takes at most.
pub(crate) const SCRATCH: usize = 64 * 1024;

/// Bytes that a pipe holds at most, unless root has raised the kernel's limit (pipe(7)).
const LARGEST_PIPE: usize = 1 << 20;

/// An owned descriptor in non-blocking mode.
#[derive(Debug)]
pub(crate) struct Descriptor(AsyncFd<OwnedFd>);

impl Descriptor {
    pub(crate) fn reader(descriptor: OwnedFd) -> io::Result<Self> {
        Self::new(descriptor, Interest::READABLE)
    }

    pub(crate) fn writer(descriptor: OwnedFd) -> io::Result<Self> {
        Self::new(descriptor, Interest::WRITABLE)
    }

    pub(crate) fn terminal(descriptor: OwnedFd) -> io::Result<Self> {
        Self::new(descriptor, Interest::READABLE | Interest::WRITABLE)
    }

    fn new(descriptor: OwnedFd, interest: Interest) -> io::Result<Self> {
        set_nonblocking(descriptor.as_fd())?;
        Ok(Self(sys::watch(descriptor, interest)?))
    }

    /// What is there, waiting for it if nothing is. 0 is the end; a terminal whose other side closed has ended, too.
    /// Cancel-safe. `scratch` is shared by all readers: use what was read before the next await.
    pub(crate) async fn read(&self, scratch: &Scratch) -> io::Result<usize> {
        let read = |descriptor: &OwnedFd| read_once(descriptor, &mut scratch.borrow_mut());
        self.0.async_io(Interest::READABLE, read).await
    }

    /// What is there now. `None`: nothing, and it has not ended.
    fn read_now(&self, scratch: &Scratch) -> io::Result<Option<usize>> {
        match read_once(self.0.get_ref(), &mut scratch.borrow_mut()) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes what was written before now, in pieces. `false`: it has ended. No more than a pipe holds: somebody may write as
    /// fast as this reads.
    pub(crate) fn drain(&self, scratch: &Scratch, mut take: impl FnMut(&[u8])) -> bool {
        let mut taken = 0;
        while taken < LARGEST_PIPE {
            match self.read_now(scratch) {
                Ok(Some(0)) | Err(_) => return false,
                Ok(Some(count)) => {
                    take(&scratch.borrow()[..count]);
                    taken += count;
                }
                Ok(None) => break,
            }
        }
        true
    }

    /// Writes all of it, waiting while the other side does not read.
    pub(crate) async fn write_all(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let write = |descriptor: &OwnedFd| Ok(nix::unistd::write(descriptor, data)?);
            let count = self.0.async_io(Interest::WRITABLE, write).await?;
            data = &data[count..];
        }
        Ok(())
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

fn read_once(descriptor: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    match nix::unistd::read(descriptor, buffer) {
        Ok(count) => Ok(count),
        Err(nix::Error::EIO) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn set_nonblocking(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(descriptor, FcntlArg::F_GETFL)?);
    if !flags.contains(OFlag::O_NONBLOCK) {
        fcntl(descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    }
    Ok(())
}
