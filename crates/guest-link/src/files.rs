//! Files.

use atoll_protocol::{
    route,
    types::{FileInfo, FileList, FileMove, FileWritten},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use h2::RecvStream;
use http::Method;

use crate::{
    BodyError, GuestError, GuestLink,
    body::{CancelOnDrop, Upload},
    connection::request,
};

/// A file on its way out of the guest. Dropping it stops the transfer.
#[derive(Debug)]
pub struct FileRead {
    link: GuestLink,
    size: Option<u64>,
    left: Option<u64>,
    body: RecvStream,
}

impl FileRead {
    /// Bytes that will come, when that is known beforehand (not for the kernel's own files, which claim to be empty).
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// The next piece; `None` at the end. Cancel-safe.
    ///
    /// # Errors
    /// [`GuestError`] when the stream broke or the file shrank meanwhile: what came is not the whole.
    pub async fn next(&mut self) -> Result<Option<Bytes>, GuestError> {
        let chunk = self.link.next_chunk(&mut self.body).await?;
        let Some(left) = &mut self.left else {
            return Ok(chunk);
        };
        let length = chunk.as_ref().map_or(0, Bytes::len) as u64;
        match left.checked_sub(length) {
            Some(rest) if chunk.is_some() || rest == 0 => *left = rest,
            _ => return Err(GuestError::protocol("the file's length changed while it was read")),
        }
        Ok(chunk)
    }
}

impl GuestLink {
    /// Reads a file, or `length` bytes of it from `offset` on.
    ///
    /// # Errors
    /// [`GuestError::Refused`] for what is no plain file, does not exist, or may not be read.
    pub async fn file_read(&self, path: &str, offset: u64, length: Option<u64>) -> Result<FileRead, GuestError> {
        let (offset, length) = (offset.to_string(), length.map(|length| length.to_string()));
        let mut query = vec![("path", path), ("offset", &offset)];
        if let Some(length) = &length {
            query.push(("length", length));
        }
        let (response, _) = self
            .start(request(Method::GET, route::FILE_CONTENT, &query)?, true)
            .await?;
        let response = self.answered(response).await?;
        let size = match response.headers().get(route::SIZE_HEADER) {
            None => None,
            Some(value) => {
                let size = value.to_str().ok().and_then(|text| text.parse().ok());
                Some(size.ok_or_else(|| GuestError::protocol("a size that is no number"))?)
            }
        };
        Ok(FileRead {
            link: self.clone(),
            size,
            left: size,
            body: response.into_body(),
        })
    }

    /// Writes a file from a stream, as it comes. The file appears whole under its name or not at all; parents are made.
    /// `mode` are permission bits; absent, those of the file it replaces, or 0644.
    ///
    /// # Errors
    /// [`GuestError::Refused`] (disk full, a directory is there); [`GuestError::Body`] when `body` failed.
    pub async fn file_write<S, E>(&self, path: &str, mode: Option<u32>, body: S) -> Result<FileWritten, GuestError>
    where
        S: Stream<Item = Result<Bytes, E>>,
        E: Into<BodyError>,
    {
        let mut request = request(Method::PUT, route::FILE_CONTENT, &[("path", path)])?;
        if let Some(mode) = mode {
            let value = format!("{mode:o}").parse();
            let value = value.map_err(|_| GuestError::protocol("permission bits that are no header"))?;
            request.headers_mut().insert(route::MODE_HEADER, value);
        }
        let (response, upload) = self.start(request, false).await?;
        let upload = Upload::new(upload);
        let mut cancel = CancelOnDrop::new(&upload);
        let mut sent = Ok(());
        let mut body = std::pin::pin!(body);
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(|error| GuestError::Body(error.into()))?;
            sent = upload.send(chunk).await;
            if sent.is_err() {
                break;
            }
        }
        if sent.is_ok() {
            sent = upload.end();
        }
        // The agent may refuse before it has read all of the body; what it says goes before what the transport says.
        let response = match (self.answered(response).await, sent) {
            (Ok(response), Ok(())) => response,
            (Err(error), _) => return Err(error),
            (Ok(_), Err(error)) => return Err(self.broken(error)),
        };
        cancel.disarm();
        let body = self.whole_body(response.into_body()).await?;
        serde_json::from_slice(&body).map_err(|error| GuestError::protocol(error.to_string()))
    }

    /// One entry; a symbolic link is followed.
    ///
    /// # Errors
    /// [`GuestError::Refused`] when there is none.
    pub async fn file_stat(&self, path: &str) -> Result<FileInfo, GuestError> {
        self.call(Method::GET, route::FILE_STAT, &[("path", path)], None::<&()>)
            .await
    }

    /// A page of a directory: at most `limit` entries (1 to 10000) whose names come after `after`.
    ///
    /// # Errors
    /// [`GuestError::Refused`] for what is no directory.
    pub async fn file_list(&self, path: &str, after: Option<&str>, limit: u32) -> Result<FileList, GuestError> {
        let limit = limit.to_string();
        let mut query = vec![("path", path), ("limit", &limit)];
        if let Some(after) = after {
            query.push(("after", after));
        }
        self.call(Method::GET, route::FILE_LIST, &query, None::<&()>).await
    }

    /// Removes an entry, a directory with all it holds.
    ///
    /// # Errors
    /// [`GuestError::Refused`] when there is none.
    pub async fn file_remove(&self, path: &str) -> Result<(), GuestError> {
        self.call_for_nothing(Method::DELETE, route::FILES, &[("path", path)], None::<&()>)
            .await
    }

    /// Renames; replaces a file that is at the new path.
    ///
    /// # Errors
    /// [`GuestError::Refused`] when there is nothing at the old path or a directory at the new one.
    pub async fn file_move(&self, from: &str, to: &str) -> Result<(), GuestError> {
        let body = FileMove {
            from: from.to_owned(),
            to: to.to_owned(),
        };
        self.call_for_nothing(Method::POST, route::FILE_MOVE, &[], Some(&body))
            .await
    }

    /// Makes a directory and its parents; that it is there already is no error.
    ///
    /// # Errors
    /// [`GuestError::Refused`] when a file is in the way.
    pub async fn file_mkdir(&self, path: &str) -> Result<(), GuestError> {
        self.call_for_nothing(Method::POST, route::FILE_MKDIR, &[("path", path)], None::<&()>)
            .await
    }
}
