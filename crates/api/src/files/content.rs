//! A file's bytes, in and out. Neither way is a body held: each chunk goes on as it comes.

use std::io;

use atoll_model::{ErrorCode, SandboxId, limits::MAX_FILE_BODY};
use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::{HeaderValue, header};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    app::{App, Authenticated},
    body::{announced_length, chunks},
    error::{ApiError, ApiResult, ErrorBody},
    extract::{Id, Query},
};

/// A file's bytes, as they are.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[allow(dead_code)]
pub(crate) struct FileBytes(String);

/// Which bytes to read.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReadQuery {
    /// Absolute path inside the sandbox.
    #[param(example = "/work/data.csv")]
    path: String,
    /// The first byte; 0 when absent.
    offset: Option<u64>,
    /// How many bytes at most; to the end when absent.
    length: Option<u64>,
}

/// Reads a file, streamed.
#[utoipa::path(
    get, path = "/sandboxes/{id}/fs", tag = "files", operation_id = "file_read", params(ReadQuery),
    responses(
        (status = 200, description = "Its bytes.", body = FileBytes, content_type = "application/octet-stream"),
    )
)]
pub(crate) async fn read(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Query(query): Query<ReadQuery>,
) -> ApiResult<Response> {
    let offset = query.offset.unwrap_or_default();
    let file = app
        .control
        .file_read(&caller, id, &query.path, offset, query.length)
        .await?;
    let length = file.length;
    // An error after the head can only be told by breaking off: the announced length is then not reached, or the last
    // chunk is missing, and every client sees that.
    let mut response = Response::new(Body::from_stream(file));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    Ok(response)
}

/// Where to write.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WriteQuery {
    /// Absolute path inside the sandbox; missing parents are made.
    #[param(example = "/work/data.csv")]
    path: String,
    /// Permission bits in octal, as in `755`; `644` for a new file when absent.
    #[param(pattern = "^[0-7]{1,4}$")]
    mode: Option<String>,
}

/// A file that was written.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Written {
    /// The path as it was given.
    path: String,
    /// Bytes written.
    bytes: u64,
}

/// Writes a file, streamed. It appears complete under its name, or not at all.
#[utoipa::path(
    put, path = "/sandboxes/{id}/fs", tag = "files", operation_id = "file_write", params(WriteQuery),
    request_body(content = Option<FileBytes>, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "It is complete.", body = Written),
        (status = 507, description = "The sandbox's disk is full.", body = ErrorBody),
    )
)]
pub(crate) async fn write(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(id): Id<SandboxId>,
    Query(query): Query<WriteQuery>,
    request: Request,
) -> ApiResult<axum::Json<Written>> {
    let mode = query.mode.as_deref().map(parse_mode).transpose()?;
    if announced_length(request.headers()).is_some_and(|length| length > MAX_FILE_BODY) {
        return Err(too_large());
    }
    let bytes = bounded(chunks(request.into_body()), MAX_FILE_BODY);
    let written = app.control.file_write(&caller, id, &query.path, mode, bytes).await?;
    Ok(axum::Json(Written {
        path: query.path,
        bytes: written.bytes,
    }))
}

fn parse_mode(text: &str) -> ApiResult<u32> {
    let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777);
    bits.filter(|_| text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit()))
        .ok_or_else(|| ApiError::field("mode", "mode must be permission bits in octal, as in 755"))
}

fn too_large() -> ApiError {
    ApiError::new(
        ErrorCode::TooLarge,
        format!("a file written in one call may have at most {MAX_FILE_BODY} bytes"),
    )
}

/// The same chunks, ending with an error once they pass `most` bytes.
fn bounded<S>(chunks: S, most: u64) -> impl Stream<Item = io::Result<Bytes>> + Send
where
    S: Stream<Item = io::Result<Bytes>> + Send,
{
    chunks.scan(Some(0_u64), move |total, chunk| {
        let so_far = total.take();
        let next = so_far.map(|so_far| {
            let chunk = chunk?;
            let sum = so_far + chunk.len() as u64;
            if sum > most {
                return Err(io::Error::other(too_large()));
            }
            *total = Some(sum);
            Ok(chunk)
        });
        std::future::ready(next)
    })
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[test]
    fn a_mode_is_octal() {
        assert_eq!(parse_mode("755").unwrap(), 0o755);
        for wrong in ["", "+755", "9", "17777", "rwx", "00000755"] {
            assert!(parse_mode(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_file_without_end_is_cut_off_with_an_error() {
        let endless = stream::repeat_with(|| Ok(Bytes::from_static(b"four")));
        let taken: Vec<_> = bounded(endless, 8).collect().await;
        assert_eq!(taken.len(), 3);
        assert!(taken[2].is_err());
    }
}
