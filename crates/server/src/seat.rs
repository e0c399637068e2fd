//! A connection that holds its place among all connections until it is closed, a WebSocket that came out of it included.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use nix::sys::socket::{setsockopt, sockopt};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// How long what was sent may stay unacknowledged before the client counts as gone.
const UNACKNOWLEDGED: Duration = Duration::from_secs(120);
/// A client that is silent for so long is asked whether it is there, and so often after that.
const ASKED_AFTER: Duration = Duration::from_secs(60);
const ASKED_EVERY: Duration = Duration::from_secs(15);

/// Places for connections.
#[derive(Debug)]
pub(crate) struct Seats {
    free: Arc<Semaphore>,
    all: u32,
    /// Ends every connection.
    cut: CancellationToken,
}

impl Seats {
    pub(crate) fn new(all: u32) -> Self {
        Self {
            free: Arc::new(Semaphore::new(all as usize)),
            all,
            cut: CancellationToken::new(),
        }
    }

    /// The next connection, once there is a place for it. Others wait in the kernel's queue.
    pub(crate) async fn accept(&self, listener: &TcpListener) -> io::Result<Seated> {
        let seat = Arc::clone(&self.free).acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        notice_vanished_client(&stream)?;
        Ok(Seated {
            stream,
            cut: Box::pin(self.cut.clone().cancelled_owned()),
            _seat: seat,
        })
    }

    /// Ends every connection; whoever reads or writes it sees it broken.
    pub(crate) fn cut_off(&self) {
        self.cut.cancel();
    }

    /// Connections that are open.
    pub(crate) fn taken(&self) -> usize {
        self.all as usize - self.free.available_permits()
    }

    /// Resolves once every connection is closed.
    pub(crate) async fn all_free(&self) {
        // Fails only when the semaphore is closed, which nobody does.
        let _all = self.free.acquire_many(self.all).await;
    }
}

/// A client that vanished without a word must not keep its calls: its silence is noticed by the kernel.
fn notice_vanished_client(stream: &TcpStream) -> io::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &whole_seconds(ASKED_AFTER))?;
    setsockopt(stream, sockopt::TcpKeepInterval, &whole_seconds(ASKED_EVERY))?;
    let millis = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
    setsockopt(stream, sockopt::TcpUserTimeout, &millis)?;
    Ok(())
}

fn whole_seconds(period: Duration) -> u32 {
    u32::try_from(period.as_secs()).unwrap_or(u32::MAX)
}

/// A connection on its seat.
#[derive(Debug)]
pub(crate) struct Seated {
    stream: TcpStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    _seat: OwnedSemaphorePermit,
}

impl Seated {
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Seated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Seated {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_seat_is_free_again_when_its_connection_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seats = Seats::new(2);
        let _client = TcpStream::connect(address).await.unwrap();
        let seated = seats.accept(&listener).await.unwrap();
        assert_eq!(seats.taken(), 1);
        let patience = nix::sys::socket::getsockopt(&seated.stream, sockopt::TcpUserTimeout).unwrap();
        assert_eq!(patience, 120_000);
        drop(seated);
        seats.all_free().await;
        assert_eq!(seats.taken(), 0);
    }
}
