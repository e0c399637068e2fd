//! A connection that is read to its end even when the other side no longer takes what is written.
//!
//! The server ends a command's socket as soon as the command has ended. An answer to a ping, or input that nobody reads any
//! more, then cannot be written, and the WebSocket library would report that instead of the messages that have already
//! arrived. So what cannot be written is dropped here; whether the end came too early is told by what is read.

use std::{
    io::{self, ErrorKind},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Wraps a connection whose writes are dropped once its other side left.
#[derive(Debug)]
pub(crate) struct Transport<S>(pub(crate) S);

/// `done` in place of an error that says that the other side left.
fn unless_left<T>(written: Poll<io::Result<T>>, done: T) -> Poll<io::Result<T>> {
    match written {
        Poll::Ready(Err(error))
            if matches!(
                error.kind(),
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected
            ) =>
        {
            Poll::Ready(Ok(done))
        }
        other => other,
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Transport<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Transport<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        unless_left(Pin::new(&mut self.0).poll_write(context, bytes), bytes.len())
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        unless_left(Pin::new(&mut self.0).poll_flush(context), ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        unless_left(Pin::new(&mut self.0).poll_shutdown(context), ())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::{
        WebSocketStream,
        tungstenite::{Message, protocol::Role},
    };

    use super::*;

    #[tokio::test]
    async fn what_was_said_before_the_other_side_left_is_read_though_its_ping_cannot_be_answered() {
        let (here, there) = tokio::io::duplex(1024);
        let mut server = WebSocketStream::from_raw_socket(there, Role::Server, None).await;
        server.send(Message::Ping(bytes::Bytes::new())).await.unwrap();
        server.send(Message::text("the end")).await.unwrap();
        drop(server);

        let mut client = WebSocketStream::from_raw_socket(Transport(here), Role::Client, None).await;
        assert!(client.next().await.unwrap().unwrap().is_ping());
        assert_eq!(client.next().await.unwrap().unwrap(), Message::text("the end"));
        assert!(client.next().await.unwrap().is_err(), "an early end is told");
    }
}
