//! Streaming request bodies with back-pressure, and records out of streaming answers.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use atoll_protocol::event::{Decoder, Record};
use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};

use crate::{GuestError, GuestLink, connection::MAX_HTTP_FRAME};

/// Bytes that a call may have in our memory whatever the agent takes.
const SHORT: usize = 16 << 10;

/// What failed in a body that the caller gave.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The request body of a call under way. Clones stand for the same body.
#[derive(Debug, Clone)]
pub(crate) struct Upload(Arc<Mutex<SendStream<Bytes>>>);

impl Upload {
    pub(crate) fn new(stream: SendStream<Bytes>) -> Self {
        Self(Arc::new(Mutex::new(stream)))
    }

    fn stream(&self) -> MutexGuard<'_, SendStream<Bytes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends as the agent takes it; returns when all of it is handed to the transport.
    pub(crate) async fn send(&self, mut data: Bytes) -> Result<(), h2::Error> {
        while !data.is_empty() {
            self.stream().reserve_capacity(data.len().min(MAX_HTTP_FRAME as usize));
            let granted = poll_fn(|context| self.stream().poll_capacity(context)).await;
            let capacity = granted.transpose()?.ok_or(h2::Error::from(Reason::CANCEL))?;
            let piece = data.split_to(capacity.min(data.len()));
            self.stream().send_data(piece, false)?;
        }
        Ok(())
    }

    /// Sends what a body begins with, right after the head. What is short is on its way with it: to wait for the window first
    /// would be one more write to the guest, and each wakes it.
    pub(crate) async fn send_first(&self, data: Bytes) -> Result<(), h2::Error> {
        if data.len() > SHORT {
            return self.send(data).await;
        }
        self.stream().send_data(data, false)
    }

    /// Ends the body; the call goes on.
    pub(crate) fn end(&self) -> Result<(), h2::Error> {
        self.stream().send_data(Bytes::new(), true)
    }
}

/// Cancels a call in the guest when it is dropped before the call was over.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(Option<Upload>);

impl CancelOnDrop {
    pub(crate) fn new(call: &Upload) -> Self {
        Self(Some(call.clone()))
    }

    /// The call is over.
    pub(crate) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(call) = &self.0 {
            call.stream().send_reset(Reason::CANCEL);
        }
    }
}

/// The records of a streaming answer.
#[derive(Debug)]
pub(crate) struct Records {
    link: GuestLink,
    body: RecvStream,
    decoder: Decoder,
}

impl Records {
    pub(crate) fn new(link: GuestLink, body: RecvStream) -> Self {
        Self {
            link,
            body,
            decoder: Decoder::default(),
        }
    }

    /// The next record. Cancel-safe. The end of the body is an error here: the caller stops at the record that is the last.
    pub(crate) async fn next(&mut self) -> Result<Record, GuestError> {
        loop {
            let record = self.decoder.next_record();
            if let Some(record) = record.map_err(|error| GuestError::protocol(error.to_string()))? {
                return Ok(record);
            }
            match self.link.next_chunk(&mut self.body).await? {
                Some(chunk) => self.decoder.push(chunk),
                None => return Err(GuestError::protocol("the stream ended before its last event")),
            }
        }
    }
}
