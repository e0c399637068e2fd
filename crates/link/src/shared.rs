//! The port, and where both directions of it stand.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use atoll_protocol::frame::{Decoder, Encoder};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Who we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Chooses the epoch and keeps it.
    Host,
    /// Takes every new epoch that is opened.
    Agent,
}

#[derive(Debug)]
pub(crate) struct Shared<P> {
    port: P,
    side: Side,
    /// The epoch in force.
    epoch: u32,
    /// Whether the peer has opened it in its direction.
    opened: bool,
    /// A new epoch was opened and nobody has accepted it yet.
    unaccepted: bool,
    decoder: Decoder,
    encoder: Encoder,
}

impl<P: AsyncRead + AsyncWrite + Unpin> Shared<P> {
    pub(crate) fn new(port: P, side: Side, epoch: u32) -> Self {
        Self {
            port,
            side,
            epoch,
            opened: false,
            unaccepted: false,
            decoder: Decoder::default(),
            encoder: Encoder::open(epoch),
        }
    }

    pub(crate) fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<u32>> {
        while !self.unaccepted {
            if !ready!(self.poll_frame(context))? {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        self.unaccepted = false;
        Poll::Ready(Ok(self.epoch))
    }

    pub(crate) fn poll_read(
        &mut self,
        epoch: u32,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.epoch != epoch {
                return Poll::Ready(Ok(()));
            }
            let payload = self.decoder.payload();
            if !payload.is_empty() {
                let piece = payload.len().min(buffer.remaining());
                buffer.put_slice(&payload[..piece]);
                self.decoder.consume(piece);
                return Poll::Ready(Ok(()));
            }
            if !ready!(self.poll_frame(context))? {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads up to the next frame of the epoch in force, which may be a new one by then. `false`: the port ended.
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            while let Some(frame) = self.decoder.next_frame() {
                if frame.opens && frame.epoch == self.epoch {
                    self.opened = true;
                } else if frame.opens && self.side == Side::Agent {
                    self.epoch = frame.epoch;
                    self.opened = true;
                    self.unaccepted = true;
                    self.encoder = Encoder::open(frame.epoch);
                }
                if frame.epoch == self.epoch && self.opened {
                    return Poll::Ready(Ok(true));
                }
            }
            let mut space = ReadBuf::new(self.decoder.space());
            ready!(Pin::new(&mut self.port).poll_read(context, &mut space))?;
            let count = space.filled().len();
            if count == 0 {
                return Poll::Ready(Ok(false));
            }
            self.decoder.advance(count);
        }
    }

    pub(crate) fn poll_write(
        &mut self,
        epoch: u32,
        context: &mut Context<'_>,
        payload: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if payload.iter().all(|slice| slice.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        loop {
            let used = ready!(self.poll_slices(epoch, context, payload))?;
            if used > 0 {
                return Poll::Ready(Ok(used));
            }
        }
    }

    pub(crate) fn poll_flush(&mut self, epoch: u32, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A frame whose payload is not all here yet is finished by the next write; there is nothing to flush of it.
        while self.epoch == epoch && self.encoder.owes_bytes() {
            ready!(self.poll_slices(epoch, context, &[]))?;
        }
        Pin::new(&mut self.port).poll_flush(context)
    }

    fn poll_slices(
        &mut self,
        epoch: u32,
        context: &mut Context<'_>,
        payload: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.epoch != epoch {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut slices = Vec::with_capacity(32);
        self.encoder.slices(payload, &mut slices);
        let written = ready!(Pin::new(&mut self.port).poll_write_vectored(context, &slices))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        Poll::Ready(Ok(self.encoder.advance(written)))
    }
}
