//! The memory that collected answers may take, all together.
//!
//! A collected call keeps its output in the server until its answer is sent, and each alone is bounded; this bounds their sum. A
//! call takes what it needs as its output comes. When nothing is left it waits a moment, in which its program is not read either,
//! and is refused if no other call gives anything back.

use std::{ops::Deref, sync::Arc, time::Duration};

use atoll_model::Refusal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::refusal;

/// What is taken and given back at once, in bytes.
const PIECE: usize = 64 << 10;
/// How long a call waits for memory that other calls hold.
const PATIENCE: Duration = Duration::from_secs(5);

/// The memory of all collected answers.
#[derive(Debug)]
pub(crate) struct Answers {
    free: Arc<Semaphore>,
}

impl Answers {
    /// So many bytes, rounded up to whole pieces.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(bytes.div_ceil(PIECE))),
        }
    }

    /// The share of a call that begins.
    ///
    /// # Errors
    /// `NoCapacity` with `retry_after`; nothing was started.
    pub(crate) async fn begin(&self) -> Result<Share, Refusal> {
        let mut share = Share {
            free: Arc::clone(&self.free),
            taken: None,
        };
        share.cover(1).await?;
        Ok(share)
    }
}

/// One answer's part of the memory of all; given back when dropped.
#[derive(Debug)]
pub struct Share {
    free: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
}

impl Share {
    /// Grows to cover so many bytes.
    ///
    /// # Errors
    /// `NoCapacity` with `retry_after`.
    pub(crate) async fn cover(&mut self, bytes: usize) -> Result<(), Refusal> {
        let taken = self.taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = u32::try_from(bytes.div_ceil(PIECE).saturating_sub(taken)).unwrap_or(u32::MAX);
        if more == 0 {
            return Ok(());
        }
        let free = Arc::clone(&self.free).acquire_many_owned(more);
        let Ok(Ok(permit)) = tokio::time::timeout(PATIENCE, free).await else {
            return Err(refusal::no_capacity(
                "the answers of other calls fill the server's memory for them; keep less with max_output_bytes, use a stream or \
                 try again later; a command or cell that ran was ended",
            ));
        };
        match &mut self.taken {
            Some(taken) => taken.merge(permit),
            none => *none = Some(permit),
        }
        Ok(())
    }
}

/// A collected answer, with the memory that it takes.
#[derive(Debug)]
pub struct Held<T> {
    value: T,
    share: Share,
}

impl<T> Held<T> {
    pub(crate) fn new(value: T, share: Share) -> Self {
        Self { value, share }
    }

    /// The answer alone; for who does not keep it.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// The answer, and its share to be kept until the answer is sent.
    pub fn split(result: Result<Self, Refusal>) -> (Result<T, Refusal>, Option<Share>) {
        match result {
            Ok(Self { value, share }) => (Ok(value), Some(share)),
            Err(refusal) => (Err(refusal), None),
        }
    }
}

impl<T> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use atoll_model::ErrorCode;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_one_answer_holds_no_other_one_gets_until_it_is_sent() {
        let answers = Answers::new(4 * PIECE);
        let mut first = answers.begin().await.unwrap();
        first.cover(3 * PIECE).await.unwrap();
        // Covered already.
        first.cover(2 * PIECE).await.unwrap();
        let mut second = answers.begin().await.unwrap();
        let refusal = second.cover(PIECE + 1).await.unwrap_err();
        assert!(refusal.code == ErrorCode::NoCapacity && refusal.retry_after.is_some());
        assert_eq!(answers.begin().await.unwrap_err().code, ErrorCode::NoCapacity);
        let waiting = second.cover(2 * PIECE);
        let (grown, ()) = tokio::join!(waiting, async { drop(first) });
        grown.unwrap();
        drop(second);
        assert_eq!(answers.free.available_permits(), 4);
    }
}
