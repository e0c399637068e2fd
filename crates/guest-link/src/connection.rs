//! One epoch of the link, and the task that drives it.

use std::{sync::Arc, time::Duration};

use atoll_protocol::{frame, route, types::GuestRefusal};
use bytes::{Bytes, BytesMut};
use h2::{
    RecvStream, SendStream,
    client::{Builder, Connection, SendRequest},
};
use http::{Method, Request, Response, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    task::JoinHandle,
};

use crate::{GuestError, LinkError};

/// Bytes that may be on the way to us, for all calls together and for one. A gigabyte a second at 4 ms needs 4 MiB.
const CONNECTION_WINDOW: u32 = 16 << 20;
const STREAM_WINDOW: u32 = 4 << 20;
/// With HTTP/2's own header of 9 bytes exactly one frame of the link.
pub(crate) const MAX_HTTP_FRAME: u32 = (frame::MAX_PAYLOAD - 9) as u32;
/// Calls at once; the agent has bounds of its own (execs, contexts) far below.
const MAX_CALLS: usize = 4096;
/// Small frames cost us more memory than flow control counts. The agent paces them; this bounds one that does not.
const SMALL_FRAME_BUDGET: usize = 32 << 20;
/// The longest body of a JSON answer that is taken, in bytes.
const MAX_ANSWER: usize = 16 << 20;

/// A live link to one agent. Clones share it; the last one to go closes it.
#[derive(Debug, Clone)]
pub struct GuestLink {
    requests: SendRequest<Bytes>,
    /// `Some(why)` once the link is dead.
    lost: watch::Receiver<Option<Arc<str>>>,
    driver: Arc<Driver>,
}

/// Owns the task that moves the bytes; it ends with this.
#[derive(Debug)]
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl GuestLink {
    /// Opens a new epoch on `port`. Whatever an earlier host had open is cancelled by the agent when it reads of it.
    ///
    /// The agent need not run yet: nothing is awaited from it here. Use [`ping`](Self::ping) or
    /// [`thaw`](Self::thaw) to know that it answers.
    ///
    /// # Errors
    /// [`LinkError`] when the port does not take the first bytes.
    pub async fn attach(port: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Self, LinkError> {
        let epoch = frame::epoch(getrandom::u32().map_err(LinkError::Random)?);
        let stream = atoll_link::open(port, epoch);
        let (requests, connection) = Builder::new()
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_window_size(STREAM_WINDOW)
            .max_frame_size(MAX_HTTP_FRAME)
            .max_send_buffer_size(1 << 20)
            .initial_max_send_streams(MAX_CALLS)
            .max_concurrent_reset_streams(MAX_CALLS)
            .data_frame_budget(SMALL_FRAME_BUDGET)
            .enable_push(false)
            .handshake(stream)
            .await
            .map_err(LinkError::Handshake)?;
        let (say_lost, lost) = watch::channel(None);
        let driver = tokio::spawn(drive(connection, say_lost));
        Ok(Self {
            requests,
            lost,
            driver: Arc::new(Driver(driver)),
        })
    }

    /// Resolves when the link is dead, with what the transport said. It never becomes alive again: attach anew.
    pub async fn lost(&self) -> String {
        let mut lost = self.lost.clone();
        match lost.wait_for(Option::is_some).await {
            Ok(why) => why.as_deref().unwrap_or_default().to_owned(),
            Err(_) => "the link was closed".to_owned(),
        }
    }

    /// Whether the link is known to be dead.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.borrow().is_some() || self.lost.has_changed().is_err()
    }

    /// Closes the link for all its clones; calls under way say [`GuestError::Lost`].
    pub fn close(&self) {
        self.driver.0.abort();
    }

    /// Asks the agent for the shortest answer there is.
    ///
    /// # Errors
    /// [`GuestError::Silent`] when none came within `deadline`.
    pub async fn ping(&self, deadline: Duration) -> Result<(), GuestError> {
        let call = self.call_for_nothing(Method::GET, route::PING, &[], None::<&()>);
        tokio::time::timeout(deadline, call)
            .await
            .unwrap_or(Err(GuestError::Silent { after: deadline }))
    }

    /// Starts a call whose request body follows (or not, with `ends`).
    pub(crate) async fn start(
        &self,
        request: Request<()>,
        ends: bool,
    ) -> Result<(h2::client::ResponseFuture, SendStream<Bytes>), GuestError> {
        let mut requests = self
            .requests
            .clone()
            .ready()
            .await
            .map_err(|error| self.broken(error))?;
        requests.send_request(request, ends).map_err(|error| self.broken(error))
    }

    /// The answer's head, once the agent gave it; a refusal becomes an error here.
    pub(crate) async fn answered(
        &self,
        response: h2::client::ResponseFuture,
    ) -> Result<Response<RecvStream>, GuestError> {
        let response = response.await.map_err(|error| self.broken(error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = self.whole_body(response.into_body()).await?;
        match serde_json::from_slice::<GuestRefusal>(&body) {
            Ok(refusal) => Err(GuestError::Refused(refusal)),
            Err(_) => Err(GuestError::protocol(format!("status {status} without a refusal"))),
        }
    }

    /// One JSON value there, one JSON value back.
    pub(crate) async fn call<Q: Serialize + ?Sized, A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Q>,
    ) -> Result<A, GuestError> {
        let (_, body) = self.exchange(method, path, query, body).await?;
        serde_json::from_slice(&body).map_err(|error| GuestError::protocol(format!("{path}: {error}")))
    }

    /// As [`call`](Self::call), for routes that answer with nothing.
    pub(crate) async fn call_for_nothing<Q: Serialize + ?Sized>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Q>,
    ) -> Result<(), GuestError> {
        match self.exchange(method, path, query, body).await? {
            (StatusCode::NO_CONTENT, _) => Ok(()),
            (status, _) => Err(GuestError::protocol(format!("{path}: status {status}"))),
        }
    }

    async fn exchange<Q: Serialize + ?Sized>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Q>,
    ) -> Result<(StatusCode, BytesMut), GuestError> {
        let request = request(method, path, query)?;
        let body = match body {
            Some(body) => serde_json::to_vec(body).map_err(|error| GuestError::protocol(error.to_string()))?,
            None => Vec::new(),
        };
        let (response, mut upload) = self.start(request, body.is_empty()).await?;
        if !body.is_empty() {
            // Buffered by the transport until the window allows it: JSON bodies are short.
            upload
                .send_data(body.into(), true)
                .map_err(|error| self.broken(error))?;
        }
        let response = self.answered(response).await?;
        let status = response.status();
        Ok((status, self.whole_body(response.into_body()).await?))
    }

    pub(crate) async fn whole_body(&self, mut body: RecvStream) -> Result<BytesMut, GuestError> {
        let mut whole = BytesMut::new();
        while let Some(chunk) = self.next_chunk(&mut body).await? {
            if whole.len() + chunk.len() > MAX_ANSWER {
                return Err(GuestError::protocol("an answer without end"));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole)
    }

    /// The next piece of an answer's body, accounted for; `None` at its proper end.
    pub(crate) async fn next_chunk(&self, body: &mut RecvStream) -> Result<Option<Bytes>, GuestError> {
        while let Some(chunk) = body.data().await {
            let chunk = chunk.map_err(|error| self.broken(error))?;
            let released = body.flow_control().release_capacity(chunk.len());
            released.map_err(|error| self.broken(error))?;
            // The frame that ends a body may hold nothing.
            if !chunk.is_empty() {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }

    /// What a transport error means: the agent reset this one call, or the link is dead.
    pub(crate) fn broken(&self, error: h2::Error) -> GuestError {
        if error.is_reset() && !self.is_lost() {
            return GuestError::protocol(format!("the agent broke the call off: {error}"));
        }
        let why = self.lost.borrow().as_deref().map(str::to_owned);
        GuestError::Lost {
            detail: why.unwrap_or_else(|| error.to_string()),
        }
    }
}

async fn drive<T>(connection: Connection<T, Bytes>, lost: watch::Sender<Option<Arc<str>>>)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let why = match connection.await {
        Ok(()) => "the agent's end closed".to_owned(),
        Err(error) => error.to_string(),
    };
    tracing::debug!(%why, "link ended");
    lost.send_replace(Some(why.into()));
}

/// A request without its body. The authority is a fixed word: there is one agent on a link.
pub(crate) fn request(method: Method, path: &str, query: &[(&str, &str)]) -> Result<Request<()>, GuestError> {
    let mut uri = format!("http://agent{path}");
    for (position, (name, value)) in query.iter().enumerate() {
        uri.push(if position == 0 { '?' } else { '&' });
        uri.push_str(name);
        uri.push('=');
        uri.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
    }
    Request::builder()
        .method(method)
        .uri(uri)
        .body(())
        .map_err(|error| GuestError::protocol(format!("{path}: {error}")))
}
