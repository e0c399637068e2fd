//! The end of a key ends its calls: those without an answer with a 401, streams and WebSockets by closing them.

use std::{io, pin::pin, sync::Arc};

use atoll_control::{Caller, KeyEnd};
use atoll_model::ErrorCode;
use axum::{
    body::{Body, HttpBody},
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures_util::{StreamExt, future::BoxFuture, stream};
use http::request::Parts;
use tokio::sync::SetOnce;

use crate::error::ApiError;

/// Where the extractor of the key leaves the key's end for the layers around it.
#[derive(Debug, Clone, Default)]
struct Seen(Arc<SetOnce<KeyEnd>>);

/// Notes whose request this is.
pub(crate) fn note(parts: &Parts, caller: &Caller) {
    if let Some(seen) = parts.extensions.get::<Seen>() {
        // Only the first counts; a request has one key.
        let _again = seen.0.set(caller.key_end.clone());
    }
}

/// Resolves when the key of this request ends; never when it has none.
pub(crate) fn of_request(parts: &Parts) -> BoxFuture<'static, ()> {
    match parts.extensions.get::<Seen>().cloned() {
        Some(seen) => Box::pin(seen.reached()),
        None => Box::pin(std::future::pending()),
    }
}

impl Seen {
    async fn reached(self) {
        self.0.wait().await.reached().await;
    }
}

/// Ends a call with its key.
pub(crate) async fn end_with_key(mut request: Request, next: Next) -> Response {
    let seen = Seen::default();
    request.extensions_mut().insert(seen.clone());
    let ended = seen.clone().reached();
    tokio::select! {
        biased;
        response = next.run(request) => response.map(|body| cut(body, seen.reached())),
        () = pin!(ended) => {
            ApiError::new(ErrorCode::Unauthorized, "the key was revoked or expired during the call").into_response()
        }
    }
}

/// The same body, broken off when `ended` resolves. One that is there as a whole is left alone.
fn cut(body: Body, ended: impl Future<Output = ()> + Send + 'static) -> Body {
    if body.size_hint().exact().is_some() {
        return body;
    }
    let both = Some((body.into_data_stream(), Box::pin(ended)));
    Body::from_stream(stream::unfold(both, |both| async move {
        let (mut data, mut ended) = both?;
        tokio::select! {
            biased;
            () = &mut ended => Some((Err(axum::Error::new(io::Error::other("the key ended"))), None)),
            piece = data.next() => piece.map(|piece| (piece, Some((data, ended)))),
        }
    }))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test]
    async fn a_stream_breaks_off_with_its_key_and_a_whole_answer_does_not() {
        let key = CancellationToken::new();
        let first = stream::once(std::future::ready(Ok::<_, io::Error>("first")));
        let endless = Body::from_stream(first.chain(stream::pending()));
        let mut body = cut(endless, key.clone().cancelled_owned());
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
        key.cancel();
        assert!(body.frame().await.unwrap().is_err());
        assert!(body.frame().await.is_none());
        let whole = cut(Body::from("whole"), key.cancelled_owned());
        assert_eq!(whole.collect().await.unwrap().to_bytes(), "whole");
    }
}
