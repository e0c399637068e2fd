//! The listening socket and the connections on it.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::gate::Gate;

/// How long a connection may take to send the head of a request, idle time between two requests included.
const HEAD: Duration = Duration::from_secs(75);
/// Bytes read at once, and with that the most that the head of a request may have.
const READ_BUFFER: usize = 256 * 1024;
/// Headers of one request.
const MAX_HEADERS: usize = 100;
/// Connections at once; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 4096;
/// How long to wait when the machine has no descriptor or memory left for another connection.
const BREATHER: Duration = Duration::from_millis(50);

/// A bound socket that nobody was accepted on yet.
#[derive(Debug)]
pub(crate) struct HttpServer {
    listener: TcpListener,
}

impl HttpServer {
    /// Binds, so that a taken port is found before anything else was done.
    pub(crate) async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address).await?,
        })
    }

    /// Where it listens; the port is the real one when 0 was asked for.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`, then gives open requests so much time to finish.
    pub(crate) async fn run(self, gate: Gate, stop: CancellationToken, grace: Duration) {
        let builder = connections();
        let open = GracefulShutdown::new();
        let seats = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                accepted = accept(&self.listener, &seats) => accepted,
                () = stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, seat)) => {
                    let gate = gate.clone();
                    let service = service_fn(move |request: Request<Incoming>| {
                        let gate = gate.clone();
                        async move { Ok::<_, Infallible>(gate.answer(request.map(Body::new)).await) }
                    });
                    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
                    let connection = open.watch(connection.into_owned());
                    // Watched by `open`, and bounded by `seats`.
                    tokio::spawn(async move {
                        if let Err(error) = connection.await {
                            tracing::debug!(%error, "a connection broke");
                        }
                        drop(seat);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(BREATHER).await;
                }
            }
        }
        drop(self.listener);
        if open.count() > 0 {
            tracing::info!(
                connections = open.count(),
                grace_seconds = grace.as_secs(),
                "finishing open requests"
            );
        }
        if tokio::time::timeout(grace, open.shutdown()).await.is_err() {
            tracing::warn!("requests were still open at the end of the grace period; they are cut off");
        }
    }
}

async fn accept(
    listener: &TcpListener,
    seats: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let seat = Arc::clone(seats).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, seat))
}

/// HTTP/1.1 connections, bounded; upgrades are for WebSockets.
fn connections() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(READ_BUFFER)
        .max_headers(MAX_HEADERS);
    builder
}
