//! Two FIFOs as one duplex byte stream.
//!
//! Both are opened for reading and writing, so that neither end ever sees the other one go: when the server dies the guest's
//! descriptors stay good, and the next server opens the same files and finds what was sent meanwhile.

use std::{
    fs::OpenOptions,
    io::{self, IoSlice},
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::Path,
    pin::Pin,
    process::Stdio,
    task::{Context, Poll, ready},
};

use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
    sys::stat::Mode,
    unistd::mkfifo,
};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, unix::AsyncFd};

use crate::{ProcessWatch, sys};

const TO_GUEST: &str = "in.fifo";
const FROM_GUEST: &str = "out.fifo";
/// Bytes that a FIFO holds before its writer waits; the most that the kernel gives without special rights.
const PIPE_BYTES: i32 = 1 << 20;

/// Makes the two FIFOs in `folder`, readable by us alone.
///
/// # Errors
/// When one exists already, or the folder cannot be written.
pub fn make_fifos(folder: &Path) -> io::Result<()> {
    for name in [TO_GUEST, FROM_GUEST] {
        mkfifo(&folder.join(name), Mode::S_IRUSR | Mode::S_IWUSR)?;
    }
    Ok(())
}

/// Our end of the two FIFOs.
///
/// As neither direction ever closes by itself, it reads as ended once the process behind it has: see [`FifoPort::until`].
#[derive(Debug)]
pub struct FifoPort {
    to_guest: AsyncFd<OwnedFd>,
    from_guest: AsyncFd<OwnedFd>,
    guest: Option<ProcessWatch>,
}

impl FifoPort {
    /// Opens what [`make_fifos`] made in `folder`.
    ///
    /// # Errors
    /// When they are not there.
    pub fn open(folder: &Path) -> io::Result<Self> {
        // Each is waited for in one direction only: being open for both, it would tell us of our own writes, too.
        let open = |name: &str, interest: Interest| -> io::Result<AsyncFd<OwnedFd>> {
            let mut options = OpenOptions::new();
            let file = options
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(folder.join(name))?;
            if let Err(error) = fcntl(&file, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES)) {
                // Only slower: the kernel refuses when this user's pipes hold too much already.
                tracing::debug!(%error, "the link keeps its small buffer");
            }
            sys::register(file.into(), interest)
        };
        Ok(Self {
            to_guest: open(TO_GUEST, Interest::WRITABLE)?,
            from_guest: open(FROM_GUEST, Interest::READABLE)?,
            guest: None,
        })
    }

    /// The other end's standard input and output. They are opened anew, so that its blocking mode is not ours.
    ///
    /// # Errors
    /// When the FIFOs in `folder` are not there.
    pub fn guest_end(folder: &Path) -> io::Result<(Stdio, Stdio)> {
        let open = |name: &str| OpenOptions::new().read(true).write(true).open(folder.join(name));
        Ok((open(TO_GUEST)?.into(), open(FROM_GUEST)?.into()))
    }

    /// Reads as ended, after all that it sent, when the process that `guest` watches has ended.
    #[must_use]
    pub fn until(mut self, guest: ProcessWatch) -> Self {
        self.guest = Some(guest);
        self
    }

    fn poll_slices(&self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.to_guest.poll_write_ready(context))?;
            match nix::sys::uio::writev(self.to_guest.get_ref(), slices) {
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(nix::errno::Errno::EAGAIN) => ready.clear_ready(),
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    fn read_now(&self, buffer: &mut ReadBuf<'_>) -> nix::Result<()> {
        let count = nix::unistd::read(self.from_guest.get_ref(), buffer.initialize_unfilled())?;
        buffer.advance(count);
        Ok(())
    }
}

impl AsyncRead for FifoPort {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let Poll::Ready(ready) = self.from_guest.poll_read_ready(context) else {
                let Some(guest) = &self.guest else { return Poll::Pending };
                ready!(guest.poll_ended(context));
                // It may have written between our look and its end.
                return Poll::Ready(match self.read_now(buffer) {
                    Ok(()) | Err(nix::errno::Errno::EAGAIN) => Ok(()),
                    Err(error) => Err(error.into()),
                });
            };
            let mut ready = ready?;
            match self.read_now(buffer) {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(nix::errno::Errno::EAGAIN) => ready.clear_ready(),
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

impl AsyncWrite for FifoPort {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_slices(context, &[IoSlice::new(bytes)])
    }

    /// Each write wakes the guest, so what belongs together goes in one.
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

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// There is nothing to shut down: the FIFOs stay for whoever opens them next.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::{ProcessId, Program};

    /// A child that copies its standard input to its standard output.
    fn echo(folder: &Path) -> crate::Child {
        let (input, output) = FifoPort::guest_end(folder).unwrap();
        let mut cat = Program::new("/usr/bin/cat").unwrap();
        cat.stdin(input).stdout(output);
        cat.spawn().unwrap()
    }

    async fn say(port: &mut FifoPort, word: &[u8; 5]) {
        port.write_all(word).await.unwrap();
        let mut answer = [0; 5];
        port.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, word);
    }

    #[tokio::test]
    async fn what_belongs_together_goes_in_one_write() {
        let folder = tempfile::tempdir().unwrap();
        make_fifos(folder.path()).unwrap();
        let mut port = FifoPort::open(folder.path()).unwrap();
        let slices = [b"head".as_slice(), b"body", b"end"].map(IoSlice::new);
        assert!(port.is_write_vectored());
        assert_eq!(port.write_vectored(&slices).await.unwrap(), 11);
    }

    #[tokio::test]
    async fn another_owner_takes_over_and_the_end_of_the_guest_is_the_end_of_the_stream() {
        let folder = tempfile::tempdir().unwrap();
        make_fifos(folder.path()).unwrap();
        let mut first = FifoPort::open(folder.path()).unwrap();
        let mut child = echo(folder.path());
        say(&mut first, b"first").await;
        drop(first);

        let guest = ProcessId::of(child.pid()).unwrap().unwrap();
        let mut second = FifoPort::open(folder.path())
            .unwrap()
            .until(guest.watch().unwrap().unwrap());
        say(&mut second, b"again").await;

        child.kill();
        child.wait().await.unwrap();
        let mut rest = Vec::new();
        second.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty());
    }
}
