//! The link's two descriptors as one port.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    task::{Context, Poll, ready},
};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, unix::AsyncFd};

use crate::{descriptor::set_nonblocking, sys};

/// Standard input and output of the agent. Both may be one socket, or be replaced under us by a restore.
#[derive(Debug)]
pub(crate) struct Port {
    input: AsyncFd<OwnedFd>,
    output: AsyncFd<OwnedFd>,
}

impl Port {
    /// Takes descriptors 0 and 1; no child will inherit them.
    pub(crate) fn take() -> io::Result<Self> {
        let (input, output) = sys::take_link_descriptors();
        for descriptor in [&input, &output] {
            set_nonblocking(descriptor.as_fd())?;
            fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        }
        Ok(Self {
            input: sys::watch(input, Interest::READABLE)?,
            output: sys::watch(output, Interest::WRITABLE)?,
        })
    }

    fn poll_slices(&self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.output.poll_write_ready(context))?;
            let write = |output: &AsyncFd<OwnedFd>| Ok(nix::sys::uio::writev(output.get_ref(), slices)?);
            if let Ok(result) = ready.try_io(write) {
                return Poll::Ready(result);
            }
        }
    }
}

impl AsyncRead for Port {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.input.poll_read_ready(context))?;
            let space = buffer.initialize_unfilled();
            let read = |input: &AsyncFd<OwnedFd>| Ok(nix::unistd::read(input.get_ref(), space)?);
            if let Ok(result) = ready.try_io(read) {
                let count = result?;
                if count < buffer.remaining() {
                    // It is empty now: do not ask once more to be told so.
                    ready.clear_ready();
                }
                buffer.advance(count);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Port {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_slices(context, &[IoSlice::new(data)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_slices(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
