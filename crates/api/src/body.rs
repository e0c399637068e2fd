//! Request bodies, bounded in size and in patience.

use std::time::Duration;

use atoll_model::{ErrorCode, limits::MAX_JSON_BODY};
use axum::body::{Body, BodyDataStream};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use http::{HeaderMap, StatusCode, header};

use crate::error::{ApiError, ApiResult};

/// How long a body may stand still. A client that sends a byte a minute holds no handler.
const STALL: Duration = Duration::from_secs(30);
/// How long a whole JSON body may take, however steadily it trickles.
const WHOLE_JSON: Duration = Duration::from_secs(60);

/// The length that the client announced.
pub(crate) fn announced_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reads a whole body of at most [`MAX_JSON_BODY`] bytes.
///
/// A body that announces more is refused before its first byte is read.
pub(crate) async fn read_small(headers: &HeaderMap, body: Body) -> ApiResult<Bytes> {
    if announced_length(headers).is_some_and(|length| length > MAX_JSON_BODY as u64) {
        return Err(too_large());
    }
    let read = collect(body.into_data_stream());
    tokio::time::timeout(WHOLE_JSON, read)
        .await
        .unwrap_or_else(|_| Err(stalled()))
}

async fn collect(mut chunks: BodyDataStream) -> ApiResult<Bytes> {
    let mut whole = BytesMut::new();
    while let Some(chunk) = next(&mut chunks).await? {
        if whole.len() + chunk.len() > MAX_JSON_BODY {
            return Err(too_large());
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.freeze())
}

/// The body's chunks as they come, ending with an error when it stalls or breaks off.
pub(crate) fn chunks(body: Body) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send + Unpin + 'static {
    let source = Some(body.into_data_stream());
    Box::pin(stream::unfold(source, |source| async move {
        let mut source = source?;
        match next(&mut source).await {
            Ok(chunk) => Some((Ok(chunk?), Some(source))),
            Err(error) => Some((Err(std::io::Error::other(error)), None)),
        }
    }))
}

async fn next(chunks: &mut BodyDataStream) -> ApiResult<Option<Bytes>> {
    match tokio::time::timeout(STALL, chunks.next()).await {
        Err(_) => Err(stalled()),
        Ok(None) => Ok(None),
        Ok(Some(Ok(chunk))) => Ok(Some(chunk)),
        Ok(Some(Err(_))) => Err(ApiError::new(ErrorCode::InvalidRequest, "the body broke off")),
    }
}

fn too_large() -> ApiError {
    ApiError::new(
        ErrorCode::TooLarge,
        format!("the body is larger than the {MAX_JSON_BODY} bytes that this route takes"),
    )
}

fn stalled() -> ApiError {
    ApiError::transport(
        StatusCode::REQUEST_TIMEOUT,
        ErrorCode::InvalidRequest,
        format!("the body came too slowly: no byte for {} seconds", STALL.as_secs()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(chunk: usize, count: usize) -> Body {
        Body::from_stream(stream::iter(
            (0..count).map(move |_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; chunk]))),
        ))
    }

    #[tokio::test]
    async fn a_body_that_announces_too_much_is_not_read() {
        let headers = HeaderMap::from_iter([(header::CONTENT_LENGTH, (100_u64 << 20).into())]);
        let endless = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let error = read_small(&headers, endless).await.unwrap_err();
        assert_eq!(error.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test]
    async fn a_chunked_body_is_cut_off_at_the_limit() {
        let fits = read_small(&HeaderMap::new(), sized(1 << 18, 4)).await;
        assert_eq!(fits.unwrap().len(), MAX_JSON_BODY);
        let error = read_small(&HeaderMap::new(), sized(1 << 18, 5)).await.unwrap_err();
        assert_eq!(error.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stands_still_is_given_up() {
        let endless = || Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let error = read_small(&HeaderMap::new(), endless()).await.unwrap_err();
        assert_eq!(error.status(), StatusCode::REQUEST_TIMEOUT);
        let mut file = chunks(endless());
        assert!(file.next().await.unwrap().is_err());
        assert!(file.next().await.is_none());
    }
}
