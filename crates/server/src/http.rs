//! The listening socket and the connections on it.

use std::{convert::Infallible, io, net::SocketAddr, time::Duration};

use axum::response::Response;
use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{gate::Gate, leftover::lend, seat::Seats};

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
                        async move { Ok::<_, Infallible>(answer(gate, request).await) }
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

async fn answer(gate: Gate, request: Request<Incoming>) -> Response {
    let (head, body) = request.into_parts();
    let (body, leftover) = lend(&head.headers, body);
    let response = gate.answer(Request::from_parts(head, body)).await;
    leftover.throw_away(response.status()).await;
    response
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

#[cfg(test)]
mod tests {
    use axum::{Router, routing::put};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use http::StatusCode;

    use super::*;

    /// What a client that first sends everything and only then reads is told.
    async fn told(head: &str, body: usize) -> String {
        let server = HttpServer::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = server.address().unwrap();
        let gate = Gate::closed("starting");
        gate.admit(Router::new().route("/full", put(|| async { StatusCode::INSUFFICIENT_STORAGE })));
        gate.ready();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(server.run(gate, stop.clone(), Duration::from_secs(1)));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(&vec![b'x'; body]).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        stop.cancel();
        serving.await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_refusal_reaches_a_client_that_sends_its_body_first() {
        let head = format!(
            "PUT /full HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            64 << 20
        );
        assert!(told(&head, 64 << 20).await.starts_with("HTTP/1.1 507"));
    }

    #[tokio::test]
    async fn a_body_that_never_comes_is_not_waited_for_long() {
        let head = "PUT /full HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: 100\r\n\r\n";
        assert!(told(head, 10).await.starts_with("HTTP/1.1 507"));
    }

    #[tokio::test]
    async fn who_waits_for_a_continue_is_refused_without_one() {
        let head = "PUT /full HTTP/1.1\r\nHost: here\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n";
        assert!(told(head, 0).await.starts_with("HTTP/1.1 507"));
    }
}
