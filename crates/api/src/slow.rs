//! Answers that may take longer than the known clients wait for a first byte (pandastack-v1 §1.6).
//!
//! They give up after 30 seconds without a byte, though the code still runs. JSON may begin with white space, so
//! after [`COMMIT_AFTER`] a 200 is begun and a space is sent every few seconds until the result is there. The price is
//! that the status is fixed by then: what would have been a 504 must be told inside the body.

use std::time::Duration;

use atoll_control::Share;
use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::header;
use http_body_util::BodyExt;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

/// How long an answer is waited for before a 200 is begun.
pub(crate) const COMMIT_AFTER: Duration = Duration::from_secs(20);
/// The same for calls whose own deadline is no longer than [`COMMIT_AFTER`]: their 504 must get its chance, and they
/// are silent longer than this only when they wait behind another cell.
const COMMIT_SHORT_AFTER: Duration = Duration::from_secs(25);
/// The time between two spaces.
const SPACE_EVERY: Duration = Duration::from_secs(5);

/// What a slow call came to: an answer for each of the two times at which it may be ready.
pub(crate) trait SlowAnswer: Send + 'static {
    /// The body of a 200 that was begun before this was known.
    type Body: Serialize;

    /// The whole response, when it is known in time.
    fn in_time(self) -> Response;

    /// What to put into the body of a 200 that is under way.
    fn late(self) -> Self::Body;
}

/// Awaits `work`, whose own deadline is `deadline`, in a way that no client gives up on. Dropping the response drops `work`. The
/// memory that the answer was given is held until it is sent.
pub(crate) async fn answer<A: SlowAnswer>(
    deadline: Option<Duration>,
    work: impl Future<Output = (A, Option<Share>)> + Send + 'static,
) -> Response {
    let commit_after = match deadline {
        Some(deadline) if deadline <= COMMIT_AFTER => COMMIT_SHORT_AFTER,
        _ => COMMIT_AFTER,
    };
    let mut work = Box::pin(work);
    tokio::select! {
        biased;
        (answer, share) = &mut work => return hold(answer.in_time(), share),
        () = tokio::time::sleep(commit_after) => {}
    }
    let result = work.map(|(answer, share)| {
        let body = encode(&answer.late());
        Bytes::from_owner(Sent { body, _share: share })
    });
    let result = result.shared();
    let spaces = stream::unfold(Instant::now(), |next| async move {
        sleep_until(next).await;
        Some((Bytes::from_static(b" "), next + SPACE_EVERY))
    });
    let body = spaces
        .take_until(result.clone())
        .chain(stream::once(result))
        .map(Ok::<_, std::convert::Infallible>);
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(body)).into_response()
}

/// The same response, which holds the share for as long as its body is being sent.
fn hold(response: Response, share: Option<Share>) -> Response {
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _held = &share;
            frame
        }))
    })
}

/// Bytes of a late answer, with the share that goes when they are sent.
struct Sent {
    body: Vec<u8>,
    _share: Option<Share>,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

fn encode<T: Serialize>(body: &T) -> Vec<u8> {
    serde_json::to_vec(body).unwrap_or_else(|error| {
        tracing::error!(%error, "a result could not be written as JSON");
        br#"{"error":"the server could not write this result","code":"internal"}"#.to_vec()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Json;
    use http::StatusCode;

    struct Told(&'static str);

    impl SlowAnswer for Told {
        type Body = serde_json::Value;
        fn in_time(self) -> Response {
            (StatusCode::GATEWAY_TIMEOUT, Json(self.0)).into_response()
        }
        fn late(self) -> serde_json::Value {
            serde_json::json!({ "late": self.0 })
        }
    }

    async fn after(seconds: u64, deadline: Option<u64>) -> (StatusCode, String) {
        let work = async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            (Told("x"), None)
        };
        let response = answer(deadline.map(Duration::from_secs), work).await;
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_in_time_has_its_own_status() {
        assert_eq!(after(3, None).await, (StatusCode::GATEWAY_TIMEOUT, "\"x\"".to_owned()));
        assert_eq!(after(21, Some(20)).await.0, StatusCode::GATEWAY_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_result_follows_spaces_in_a_200() {
        let (status, body) = after(60, Some(60)).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(body.trim_start(), "{\"late\":\"x\"}");
        assert!((8..=9).contains(&(body.len() - body.trim_start().len())), "{body:?}");
        assert_eq!(after(40, Some(5)).await.0, StatusCode::OK);
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_cancels_the_work() {
        let (witness, mut receiver) = tokio::sync::mpsc::channel::<()>(1);
        let work = async move {
            std::future::pending::<()>().await;
            drop(witness);
            (Told("never"), None)
        };
        let response = answer(None, work).await;
        drop(response);
        assert_eq!(receiver.recv().await, None);
    }
}
