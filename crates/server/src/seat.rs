//! A connection that holds its place among all connections until it is closed, a WebSocket that came out of it included.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// Places for connections.
#[derive(Debug)]
pub(crate) struct Seats {
    free: Arc<Semaphore>,
    all: u32,
}

impl Seats {
    pub(crate) fn new(all: u32) -> Self {
        Self {
            free: Arc::new(Semaphore::new(all as usize)),
            all,
        }
    }

    /// The next connection, once there is a place for it. Others wait in the kernel's queue.
    pub(crate) async fn accept(&self, listener: &TcpListener) -> io::Result<Seated> {
        let seat = Arc::clone(&self.free).acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(Seated { stream, _seat: seat })
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

/// A connection on its seat.
#[derive(Debug)]
pub(crate) struct Seated {
    stream: TcpStream,
    _seat: OwnedSemaphorePermit,
}

impl AsyncRead for Seated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Seated {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
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
        drop(seated);
        seats.all_free().await;
        assert_eq!(seats.taken(), 0);
    }
}
