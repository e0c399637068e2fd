//! The resettable byte stream between host and agent, both ends.
//!
//! The link is one dumb duplex byte stream (two FIFOs, a socket pair, a serial port) whose host end may be replaced at any
//! moment. [`atoll_protocol::frame`] says how. Here that becomes an ordinary `AsyncRead + AsyncWrite` that is one *epoch*
//! long:
//!
//! - the host calls [`open`] with a new random epoch and has its [`Stream`];
//! - the agent keeps a [`Listener`], which gives one [`Stream`] per epoch. When a host opens another, the stream of the old
//!   one ends: reads give the end, writes fail with `BrokenPipe`.

mod shared;

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::shared::{Shared, Side};

/// Opens the host's end. Nothing is sent before the first write.
pub fn open<P: AsyncRead + AsyncWrite + Unpin>(port: P, epoch: u32) -> Stream<P> {
    let shared = Shared::new(port, Side::Host, epoch);
    Stream {
        shared: Arc::new(Mutex::new(shared)),
        epoch,
    }
}

/// The agent's end: waits for hosts.
#[derive(Debug)]
pub struct Listener<P> {
    shared: Arc<Mutex<Shared<P>>>,
}

impl<P: AsyncRead + AsyncWrite + Unpin> Listener<P> {
    /// Listens on this port.
    pub fn new(port: P) -> Self {
        Self {
            shared: Arc::new(Mutex::new(Shared::new(port, Side::Agent, 0))),
        }
    }

    /// The stream of the next epoch. Call it when the last one has ended; its bytes are lost otherwise.
    ///
    /// # Errors
    /// `UnexpectedEof` when the port itself ended, which is final; what the port said otherwise.
    pub async fn accept(&mut self) -> io::Result<Stream<P>> {
        let epoch = poll_fn(|context| lock(&self.shared).poll_accept(context)).await?;
        Ok(Stream {
            shared: Arc::clone(&self.shared),
            epoch,
        })
    }
}

/// One epoch of the link.
#[derive(Debug)]
pub struct Stream<P> {
    shared: Arc<Mutex<Shared<P>>>,
    epoch: u32,
}

/// Nothing panics while it holds the lock; should it, the state is still a state.
fn lock<P>(shared: &Mutex<Shared<P>>) -> MutexGuard<'_, Shared<P>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<P> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        lock(&self.shared).poll_read(self.epoch, context, buffer)
    }
}

impl<P: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<P> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        lock(&self.shared).poll_write(self.epoch, context, &[io::IoSlice::new(buffer)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        lock(&self.shared).poll_write(self.epoch, context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.shared).poll_flush(self.epoch, context)
    }

    /// Ends nothing: the port belongs to the link, not to an epoch.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.shared).poll_flush(self.epoch, context)
    }
}
