//! The listening socket and the connections on it.

use std::{convert::Infallible, io, net::SocketAddr, pin::pin, time::Duration};

use axum::response::Response;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, task::JoinSet, time::sleep};
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
/// How long connections that were cut off may take to be closed.
const CUT_OFF: Duration = Duration::from_secs(1);
/// How long to wait when the machine has no descriptor or memory left for another connection.
const BREATHER: Duration = Duration::from_millis(50);

/// A bound socket that nobody was accepted on yet.
#[derive(Debug)]
pub(crate) struct HttpServer {
    listener: TcpListener,
    head: Duration,
}

impl HttpServer {
    /// Binds, so that a taken port is found before anything else was done.
    pub(crate) async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address).await?,
            head: HEAD,
        })
    }

    /// Where it listens; the port is the real one when 0 was asked for.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`, then gives open requests and WebSockets so much time to finish. No connection outlives it.
    pub(crate) async fn run(self, gate: Gate, stop: CancellationToken, grace: Duration) {
        let builder = connections(self.head);
        let mut tasks = JoinSet::new();
        let seats = Seats::new(MAX_CONNECTIONS);
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
                    let connection = builder.serve_connection(TokioIo::new(seated), service).with_upgrades();
                    let stopping = stop.clone();
                    while tasks.try_join_next().is_some() {}
                    tasks.spawn(async move {
                        let mut connection = pin!(connection);
                        let served = tokio::select! {
                            served = connection.as_mut() => served,
                            () = stopping.cancelled() => {
                                connection.as_mut().graceful_shutdown();
                                connection.await
                            }
                        };
                        if let Err(error) = served {
                            tracing::debug!(%error, "a connection broke");
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
        // Requests, and what became a WebSocket.
        if tokio::time::timeout(grace, seats.all_free()).await.is_err() {
            tracing::warn!(
                connections = seats.taken(),
                "still open at the end of the grace period; they are cut off"
            );
            seats.cut_off();
            tasks.shutdown().await;
            // What became a WebSocket has a task of its own, which sees its connection broken.
            if tokio::time::timeout(CUT_OFF, seats.all_free()).await.is_err() {
                tracing::error!(
                    connections = seats.taken(),
                    "connections that were cut off are still held"
                );
            }
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

/// HTTP/1.1 connections, bounded; upgrades are for WebSockets. Not the builder that tells HTTP/1 from HTTP/2: it waits for the
/// first bytes without any bound.
fn connections(head: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(head)
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

    /// A server whose only route never answers, or upgrades and then never says anything.
    async fn mute(head: Duration) -> (SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
        let mut server = HttpServer::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        server.head = head;
        let address = server.address().unwrap();
        let gate = Gate::closed("starting");
        let upgrade = async |request: axum::extract::Request| {
            tokio::spawn(async move {
                let upgraded = hyper::upgrade::on(request).await.unwrap();
                let mut byte = [0];
                let _broken = TokioIo::new(upgraded).read(&mut byte).await;
            });
            (
                StatusCode::SWITCHING_PROTOCOLS,
                [("connection", "upgrade"), ("upgrade", "websocket")],
            )
        };
        let routes = Router::new()
            .route("/never", axum::routing::get(std::future::pending::<StatusCode>))
            .route("/upgrade", axum::routing::get(upgrade));
        gate.admit(routes);
        gate.ready();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(server.run(gate, stop.clone(), Duration::from_millis(200)));
        (address, stop, serving)
    }

    #[tokio::test]
    async fn no_connection_outlives_the_grace_period() {
        let (address, stop, serving) = mute(HEAD).await;
        let mut called = TcpStream::connect(address).await.unwrap();
        called
            .write_all(b"GET /never HTTP/1.1\r\nHost: here\r\n\r\n")
            .await
            .unwrap();
        let mut upgraded = TcpStream::connect(address).await.unwrap();
        let head = b"GET /upgrade HTTP/1.1\r\nHost: here\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        upgraded.write_all(head).await.unwrap();
        let mut answer = [0; 12];
        upgraded.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 101");
        stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(10), serving).await;
        ended.expect("the server ends").unwrap();
        for mut client in [called, upgraded] {
            let mut rest = Vec::new();
            let closed = tokio::time::timeout(Duration::from_secs(10), client.read_to_end(&mut rest)).await;
            assert!(closed.is_ok(), "a connection is still open");
        }
    }

    #[tokio::test]
    async fn a_client_that_sends_no_whole_head_is_not_waited_for() {
        let (address, stop, serving) = mute(Duration::from_millis(200)).await;
        for begun in ["", "GET /never HTT", "GET /never HTTP/1.1\r\nHost: he"] {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(begun.as_bytes()).await.unwrap();
            let mut rest = Vec::new();
            let closed = tokio::time::timeout(Duration::from_secs(10), client.read_to_end(&mut rest)).await;
            assert!(closed.is_ok(), "{begun:?} is still waited for");
        }
        stop.cancel();
        serving.await.unwrap();
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
