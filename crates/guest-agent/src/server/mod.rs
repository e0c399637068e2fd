//! The service: one HTTP/2 connection per epoch of the link, one task per call.

mod reply;
mod routes;

use std::{io, rc::Rc};

use atoll_link::Listener;
use atoll_protocol::frame;
use bytes::Bytes;
use h2::server::{Builder, Connection};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
};

pub(crate) use self::reply::{Body, Gone, Reply, send, send_hub};
use crate::{agent::Agent, port::Port};

/// What the host may have on the way to us, for all calls and for one, in bytes.
const CONNECTION_WINDOW: u32 = 8 << 20;
const STREAM_WINDOW: u32 = 2 << 20;
/// With HTTP/2's own header of 9 bytes exactly one frame of the link.
const MAX_HTTP_FRAME: u32 = (frame::MAX_PAYLOAD - 9) as u32;
const MAX_CALLS: u32 = 4096;

/// Serves until the port ends, which it does only where the agent is not process 1 of a machine.
pub(crate) async fn serve(agent: &Rc<Agent>, port: Port) -> io::Result<()> {
    let mut listener = Listener::new(port);
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        // Calls of the old epoch end with the set: their commands and cells are cancelled by that.
        let mut calls = JoinSet::new();
        if let Err(error) = serve_epoch(agent, stream, &mut calls).await {
            eprintln!("atoll-agent: link: {error}");
        }
    }
}

async fn serve_epoch<T>(agent: &Rc<Agent>, stream: T, calls: &mut JoinSet<()>) -> Result<(), h2::Error>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection: Connection<T, Bytes> = Builder::new()
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_window_size(STREAM_WINDOW)
        .max_frame_size(MAX_HTTP_FRAME)
        .max_send_buffer_size(512 * 1024)
        .max_concurrent_streams(MAX_CALLS)
        .max_concurrent_reset_streams(MAX_CALLS as usize)
        .max_pending_accept_reset_streams(MAX_CALLS as usize)
        // The host is trusted: it may cancel as many calls as it likes.
        .max_local_error_reset_streams(None)
        .handshake(stream)
        .await?;
    loop {
        tokio::select! {
            call = connection.accept() => match call {
                Some(call) => {
                    let (request, respond) = call?;
                    calls.spawn_local(routes::handle(Rc::clone(agent), request, respond));
                }
                None => return Ok(()),
            },
            // Takes ended calls out of the set.
            Some(_) = calls.join_next() => {}
        }
    }
}
