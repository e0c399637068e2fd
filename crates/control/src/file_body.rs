//! A file on its way out of a sandbox.

use std::{fmt, pin::Pin, task};

use atoll_model::Refusal;
use bytes::Bytes;
use futures_util::Stream;

use crate::guest::Lent;

/// A file's bytes as they come.
pub struct FileBody {
    /// How many follow, when that is known beforehand.
    pub length: Option<u64>,
    bytes: Pin<Box<dyn Stream<Item = Result<Bytes, Refusal>> + Send>>,
}

impl FileBody {
    pub(crate) fn new(read: atoll_guest_link::FileRead, lent: Lent) -> Self {
        let length = read.size();
        // After an error there is nothing: a reader must see that the file is not whole.
        let bytes = futures_util::stream::unfold(Some((read, lent)), async |state| {
            let (mut read, lent) = state?;
            let next = lent.race(read.next()).await;
            match next.transpose()? {
                Ok(bytes) => Some((Ok(bytes), Some((read, lent)))),
                Err(refusal) => Some((Err(refusal), None)),
            }
        });
        Self {
            length,
            bytes: Box::pin(bytes),
        }
    }
}

impl fmt::Debug for FileBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileBody")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl Stream for FileBody {
    type Item = Result<Bytes, Refusal>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> task::Poll<Option<Self::Item>> {
        self.bytes.as_mut().poll_next(context)
    }
}
