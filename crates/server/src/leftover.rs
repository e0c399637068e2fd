//! What a client still sends of a request that was refused before it was read whole.
//!
//! A connection that is closed with unread bytes in it is reset, and the reset may overtake the answer: the client then sees
//! a broken connection in place of the refusal (RFC 9112 §9.6 calls for a lingering close). So what is on its way is read and
//! thrown away first, within bounds.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::{sync::oneshot, time::timeout};

/// Bytes thrown away at most; a client that announces more is not waited for.
const MOST: u64 = 256 << 20;
/// The same of somebody who showed no valid key, or whose body was refused for its size: that is refused early.
const LITTLE: u64 = 1 << 20;
/// How long it may take in all.
const WHOLE: Duration = Duration::from_secs(5);
/// How long it may stand still.
const STALL: Duration = Duration::from_millis(500);

/// A request's body that hands back what was not read of it.
#[derive(Debug)]
struct Lent {
    /// `None` once it was read to its end.
    body: Option<Incoming>,
    back: Option<oneshot::Sender<Incoming>>,
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let unread = self.body.take().filter(|body| !body.is_end_stream());
        if let (Some(body), Some(back)) = (unread, self.back.take()) {
            // Nobody waits for it when the request was answered well, or the connection ended.
            drop(back.send(body));
        }
    }
}

/// What may be left over of one request.
#[derive(Debug)]
pub(crate) struct Leftover(Option<oneshot::Receiver<Incoming>>);

/// The body to be handled, and what to ask for the rest.
pub(crate) fn lend(headers: &HeaderMap, body: Incoming) -> (Body, Leftover) {
    // A client that waits for "100 Continue" has sent nothing yet, and reading would make it.
    let held_back = headers.contains_key(header::EXPECT);
    if held_back || body.is_end_stream() || body.size_hint().lower() > MOST {
        return (Body::new(body), Leftover(None));
    }
    let (back, unread) = oneshot::channel();
    let lent = Lent {
        body: Some(body),
        back: Some(back),
    };
    (Body::new(lent), Leftover(Some(unread)))
}

impl Leftover {
    /// Reads the rest, when the answer is a refusal.
    pub(crate) async fn throw_away(self, answer: StatusCode) {
        let refused = answer.is_client_error() || answer.is_server_error();
        if let Some(unread) = self.0.filter(|_| refused) {
            let most = match answer {
                StatusCode::UNAUTHORIZED | StatusCode::PAYLOAD_TOO_LARGE => LITTLE,
                _ => MOST,
            };
            // Running out of time is one of the bounds.
            drop(timeout(WHOLE, read(unread, most)).await);
        }
    }
}

async fn read(unread: oneshot::Receiver<Incoming>, most: u64) {
    let Ok(mut body) = unread.await else {
        return;
    };
    let mut total = 0;
    while let Ok(Some(Ok(frame))) = timeout(STALL, body.frame()).await {
        total += frame.data_ref().map_or(0, Bytes::len) as u64;
        if total > most {
            break;
        }
    }
}
