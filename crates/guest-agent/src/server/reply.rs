//! Answers, and bodies of requests.

use std::{future::poll_fn, time::Duration};

use atoll_protocol::{
    event::{Decoder, Record},
    types::{GuestCode, GuestRefusal},
};
use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::{Response, StatusCode};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use crate::{
    output::Hub,
    refusal::{refuse, status},
};

/// The caller went away.
#[derive(Debug)]
pub(crate) struct Gone;

impl From<h2::Error> for Gone {
    fn from(_: h2::Error) -> Self {
        Self
    }
}

/// The longest JSON body of a request, in bytes.
const MAX_JSON: usize = 16 << 20;
/// A batch below this is small; a caller who does not read holds memory for each far above its length.
const SMALL_BATCH: usize = 1024;
/// How many small batches may go at once, and how often another may.
const SMALL_BURST: u32 = 256;
const SMALL_PERIOD: Duration = Duration::from_millis(5);

/// The answer to one call.
#[derive(Debug)]
pub(crate) struct Reply(pub(crate) SendResponse<Bytes>);

impl Reply {
    pub(crate) async fn json<T: Serialize>(self, value: &T) -> Result<(), Gone> {
        match serde_json::to_vec(value) {
            Ok(json) => self.body(StatusCode::OK, json).await,
            Err(error) => self.refuse(&refuse(GuestCode::Internal, error.to_string())).await,
        }
    }

    pub(crate) fn nothing(mut self) -> Result<(), Gone> {
        self.0.send_response(head(StatusCode::NO_CONTENT), true)?;
        Ok(())
    }

    pub(crate) async fn refuse(self, refusal: &GuestRefusal) -> Result<(), Gone> {
        let json = serde_json::to_vec(refusal).unwrap_or_default();
        self.body(status(refusal.code), json).await
    }

    async fn body(mut self, status: StatusCode, json: Vec<u8>) -> Result<(), Gone> {
        let mut stream = self.0.send_response(head(status), false)?;
        send(&mut stream, json.into()).await?;
        stream.send_data(Bytes::new(), true)?;
        Ok(())
    }

    /// Begins a streaming answer.
    pub(crate) fn stream(mut self, headers: &[(&'static str, String)]) -> Result<SendStream<Bytes>, Gone> {
        let mut response = head(StatusCode::OK);
        for (name, value) in headers {
            if let Ok(value) = value.parse() {
                response.headers_mut().insert(*name, value);
            }
        }
        Ok(self.0.send_response(response, false)?)
    }
}

fn head(status: StatusCode) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    response
}

/// Sends as the caller takes it.
pub(crate) async fn send(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), Gone> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let capacity = poll_fn(|context| stream.poll_capacity(context)).await.ok_or(Gone)??;
        stream.send_data(data.split_to(capacity.min(data.len())), false)?;
    }
    Ok(())
}

/// Sends what comes through a hub, to its end.
pub(crate) async fn send_hub(stream: &mut SendStream<Bytes>, hub: &Hub) -> Result<(), Gone> {
    let mut position = 0;
    let mut pace = Pace::default();
    loop {
        let batch = tokio::select! {
            batch = hub.next_batch(&mut position) => batch,
            _ = poll_fn(|context| stream.poll_reset(context)) => return Err(Gone),
        };
        let Some(batch) = batch else {
            break;
        };
        let small = batch.len() < SMALL_BATCH;
        send(stream, batch).await?;
        if small {
            pace.wait().await;
        }
    }
    stream.send_data(Bytes::new(), true)?;
    Ok(())
}

/// Lets a burst of small batches through, and then one per period: what comes meanwhile is joined by the hub.
#[derive(Debug, Default)]
struct Pace {
    /// When the batches sent so far would have gone at one per period.
    due: Option<Instant>,
}

impl Pace {
    async fn wait(&mut self) {
        let now = Instant::now();
        let due = self.due.map_or(now, |due| due.max(now)) + SMALL_PERIOD;
        self.due = Some(due);
        if let Some(until) = due.checked_sub(SMALL_PERIOD * SMALL_BURST)
            && until > now
        {
            tokio::time::sleep_until(until).await;
        }
    }
}

/// The body of a request.
#[derive(Debug)]
pub(crate) struct Body {
    stream: RecvStream,
    decoder: Decoder,
}

impl Body {
    pub(crate) fn new(stream: RecvStream) -> Self {
        Self {
            stream,
            decoder: Decoder::default(),
        }
    }

    /// The next piece; `None` at the end. Its room is given back to the caller at once. Cancel-safe.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Gone> {
        let Some(chunk) = self.stream.data().await else {
            return Ok(None);
        };
        self.account(chunk?).map(Some)
    }

    /// The next piece if it is here already.
    pub(crate) async fn chunk_now(&mut self) -> Result<Option<Bytes>, Gone> {
        let chunk = poll_fn(|context| match self.stream.poll_data(context) {
            std::task::Poll::Ready(Some(chunk)) => std::task::Poll::Ready(Some(chunk)),
            _ => std::task::Poll::Ready(None),
        });
        match chunk.await {
            Some(chunk) => self.account(chunk?).map(Some),
            None => Ok(None),
        }
    }

    fn account(&mut self, chunk: Bytes) -> Result<Bytes, Gone> {
        self.stream.flow_control().release_capacity(chunk.len())?;
        Ok(chunk)
    }

    /// All of it as JSON.
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<Result<T, GuestRefusal>, Gone> {
        let mut whole = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if whole.len() + chunk.len() > MAX_JSON {
                return Ok(Err(refuse(GuestCode::Invalid, "the request is longer than 16 MiB")));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(parse(&whole))
    }

    /// The next record; `None` at the end. Cancel-safe.
    pub(crate) async fn record(&mut self) -> Result<Option<Record>, Gone> {
        loop {
            if let Some(record) = self.decoder.next_record().map_err(|_| Gone)? {
                return Ok(Some(record));
            }
            match self.chunk().await? {
                Some(chunk) => self.decoder.push(chunk),
                None => return Ok(None),
            }
        }
    }

    /// The record that says what is wanted, as JSON.
    pub(crate) async fn first_json<T: DeserializeOwned>(&mut self) -> Result<Result<T, GuestRefusal>, Gone> {
        let record = self.record().await?;
        Ok(parse(record.as_ref().map_or(&[], |record| &record.payload)))
    }
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, GuestRefusal> {
    serde_json::from_slice(json).map_err(|error| refuse(GuestCode::Invalid, error.to_string()))
}

/// Ends a call that went wrong half way: its caller must not take what came for the whole.
pub(crate) fn break_off(stream: &mut SendStream<Bytes>) {
    stream.send_reset(Reason::INTERNAL_ERROR);
}
