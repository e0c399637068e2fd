//! Records between whoever makes them and whoever reads them.

use std::{cell::RefCell, collections::VecDeque};

use atoll_protocol::event::{self, Kind};
use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

/// Bytes that wait for a reader before the maker has to wait, or the oldest are dropped.
const ROOM: usize = 1 << 20;
/// The most that one reading gives.
const BATCH: usize = 256 * 1024;

/// What happens when nobody reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The maker waits. One reader, which takes what it reads.
    Wait,
    /// The oldest are dropped and counted. Any number of readers, each at its own place.
    DropOldest,
}

#[derive(Debug)]
struct Piece {
    kind: Kind,
    payload: BytesMut,
    /// A reader has seen it: nothing may be added any more.
    sealed: bool,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<Piece>,
    /// Number of the first piece, counted from the beginning.
    first: u64,
    bytes: usize,
    dropped: [u64; 2],
    closed: bool,
}

/// A bounded queue of records.
#[derive(Debug)]
pub(crate) struct Hub {
    policy: Policy,
    queue: RefCell<Queue>,
    changed: Notify,
    taken: Notify,
}

impl Hub {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            queue: RefCell::default(),
            changed: Notify::new(),
            taken: Notify::new(),
        }
    }

    /// Whether the maker may go on. It may always finish what it has begun: the bound is on when to stop, not on one push.
    pub(crate) fn has_room(&self) -> bool {
        self.policy == Policy::DropOldest || self.queue.borrow().bytes < ROOM
    }

    /// Resolves when the maker may go on.
    pub(crate) async fn room(&self) {
        while !self.has_room() {
            self.taken.notified().await;
        }
    }

    /// Adds output. Joins what was not read yet to one record, so that many small writes become few records.
    pub(crate) fn push_bytes(&self, kind: Kind, data: &[u8]) {
        let mut queue = self.queue.borrow_mut();
        for piece in data.chunks(event::MAX_BYTES) {
            match queue.pieces.back_mut() {
                Some(last)
                    if last.kind == kind && !last.sealed && last.payload.len() + piece.len() <= event::MAX_BYTES =>
                {
                    last.payload.extend_from_slice(piece);
                }
                _ => queue.pieces.push_back(Piece {
                    kind,
                    payload: BytesMut::from(piece),
                    sealed: false,
                }),
            }
            queue.bytes += piece.len();
        }
        if self.policy == Policy::DropOldest {
            queue.drop_oldest();
        }
        drop(queue);
        self.changed.notify_waiters();
    }

    /// Adds a value. It is kept whatever the bound says: values are few, and their makers bound them.
    pub(crate) fn push_json(&self, json: Vec<u8>) {
        let mut queue = self.queue.borrow_mut();
        queue.bytes += json.len();
        queue.pieces.push_back(Piece {
            kind: Kind::Json,
            payload: BytesMut::from(Bytes::from(json)),
            sealed: true,
        });
        drop(queue);
        self.changed.notify_waiters();
    }

    /// Nothing more comes.
    pub(crate) fn close(&self) {
        self.queue.borrow_mut().closed = true;
        self.changed.notify_waiters();
    }

    /// How many bytes of output were dropped unread: standard output, standard error.
    pub(crate) fn dropped(&self) -> [u64; 2] {
        self.queue.borrow().dropped
    }

    /// Bytes held.
    pub(crate) fn held(&self) -> usize {
        self.queue.borrow().bytes
    }

    /// Forgets the output that is held; what ended long ago need not keep it.
    pub(crate) fn forget_output(&self) {
        let mut queue = self.queue.borrow_mut();
        queue.pieces.retain(|piece| piece.kind == Kind::Json);
        queue.bytes = queue.pieces.iter().map(|piece| piece.payload.len()).sum();
    }

    /// The next records, encoded, for a reader that has seen everything before `position`; moves `position` on. `None` at
    /// the end. Cancel-safe.
    pub(crate) async fn next_batch(&self, position: &mut u64) -> Option<Bytes> {
        loop {
            let changed = self.changed.notified();
            if let Some(batch) = self.batch_now(position) {
                return Some(batch);
            }
            if self.queue.borrow().closed {
                return None;
            }
            changed.await;
        }
    }

    fn batch_now(&self, position: &mut u64) -> Option<Bytes> {
        let mut queue = self.queue.borrow_mut();
        *position = (*position).max(queue.first);
        let skip = usize::try_from(*position - queue.first).unwrap_or(usize::MAX);
        let mut batch = BytesMut::new();
        for piece in queue.pieces.iter_mut().skip(skip) {
            if !batch.is_empty() && batch.len() + piece.payload.len() > BATCH {
                break;
            }
            piece.sealed = true;
            event::append(&mut batch, piece.kind, &piece.payload);
            *position += 1;
        }
        if self.policy == Policy::Wait {
            queue.take_before(*position);
            self.taken.notify_waiters();
        }
        (!batch.is_empty()).then(|| batch.freeze())
    }
}

impl Queue {
    fn take_before(&mut self, position: u64) {
        while self.first < position
            && let Some(piece) = self.pieces.pop_front()
        {
            self.first += 1;
            self.bytes -= piece.payload.len();
        }
    }

    fn drop_oldest(&mut self) {
        while self.bytes > ROOM
            && let Some(piece) = self.pieces.pop_front()
        {
            self.first += 1;
            self.bytes -= piece.payload.len();
            match piece.kind {
                Kind::Stdout => self.dropped[0] += piece.payload.len() as u64,
                Kind::Stderr => self.dropped[1] += piece.payload.len() as u64,
                Kind::Json | Kind::Stdin | Kind::StdinEnd => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use atoll_protocol::event::Decoder;

    use super::*;

    fn text(batch: Bytes) -> String {
        let mut decoder = Decoder::default();
        decoder.push(batch);
        let mut text = String::new();
        while let Some(record) = decoder.next_record().expect("records") {
            text.push_str(&String::from_utf8_lossy(&record.payload));
        }
        text
    }

    #[tokio::test]
    async fn small_writes_join_and_are_given_once() {
        let hub = Hub::new(Policy::Wait);
        hub.push_bytes(Kind::Stdout, b"a");
        hub.push_bytes(Kind::Stdout, b"b");
        let mut position = 0;
        let batch = hub.next_batch(&mut position).await.expect("a batch");
        assert_eq!(batch.len(), event::HEADER + 2);
        hub.push_bytes(Kind::Stdout, b"c");
        hub.close();
        assert_eq!(hub.next_batch(&mut position).await.map(text), Some("c".to_owned()));
        assert_eq!(hub.next_batch(&mut position).await, None);
    }

    #[tokio::test]
    async fn a_ring_drops_the_oldest_and_counts_them() {
        let hub = Hub::new(Policy::DropOldest);
        for _ in 0..40 {
            hub.push_bytes(Kind::Stdout, &[b'x'; 64 * 1024]);
        }
        assert!(hub.held() <= ROOM);
        assert_eq!(hub.dropped()[0] + hub.held() as u64, 40 * 64 * 1024);
        let (mut first, mut second) = (0, 0);
        assert!(hub.next_batch(&mut first).await.is_some());
        assert!(
            hub.next_batch(&mut second).await.is_some(),
            "each reader has its own place"
        );
    }

    #[tokio::test]
    async fn a_maker_waits_for_its_reader() {
        let hub = Hub::new(Policy::Wait);
        while hub.has_room() {
            hub.push_bytes(Kind::Stdout, &[b'x'; 4096]);
        }
        let mut position = 0;
        let (_, batch) = tokio::join!(hub.room(), hub.next_batch(&mut position));
        assert!(batch.is_some());
        assert!(hub.has_room());
    }
}
