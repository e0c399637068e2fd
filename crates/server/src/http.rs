//! The listening socket and the connections on it.

use std::{convert::Infallible, io, net::SocketAddr, time::Duration};

use axum::body::Body;
use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{gate::Gate, seat::Seats};

/// How long a connection may take to send the head of a request, idle time between two requests included.
const HEAD: Duration = Duration::from_secs(75);
/// Bytes read at once, and with that the most that the head of a request may have.
const READ_BUFFER: usize = 256 * 1024;
/// Headers of one request.
const MAX_HEADERS: usize = 100;
/// Connections at once; more wait in the kernel's queue.
const MAX_CONNECTIONS: u32 = 4096;
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

    /// Serves until `stop`, then gives open requests and WebSockets so much time to finish.
    pub(crate) async fn run(self, gate: Gate, stop: CancellationToken, grace: Duration) {
        let builder = connections();
        let seats = Seats::new(MAX_CONNECTIONS);
        let open = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                accepted = seats.accept(&self.listener) => accepted,
                () = stop.cancelled() => break,
            };
            match accepted {
                Ok(seated) => {
                    let gate = gate.clone();
                    let service = service_fn(move |request: Request<Incoming>| {
                        let gate = gate.clone();
                        async move { Ok::<_, Infallible>(gate.answer(request.map(Body::new)).await) }
                    });
                    let connection = builder.serve_connection_with_upgrades(TokioIo::new(seated), service);
                    let connection = open.watch(connection.into_owned());
                    // Watched by `open`, and bounded by `seats`.
                    tokio::spawn(async move {
                        if let Err(error) = connection.await {
                            tracing::debug!(error, "a connection broke");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(BREATHER).await;
                }
            }
        }
        drop(self.listener);
        if seats.taken() > 0 {
            tracing::info!(
                connections = seats.taken(),
                grace_seconds = grace.as_secs(),
                "finishing open requests"
            );
        }
        let drained = async {
            open.shutdown().await;
            // What became a WebSocket is not among the requests.
            seats.all_free().await;
        };
        if tokio::time::timeout(grace, drained).await.is_err() {
            tracing::warn!(
                connections = seats.taken(),
                "still open at the end of the grace period; they are cut off"
            );
        }
    }
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
