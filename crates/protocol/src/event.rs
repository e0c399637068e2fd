//! Records: what a streaming body is made of. `{kind u8, length u32 big-endian, payload}`.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The kinds of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Bytes that the program wrote to standard output (or to its terminal).
    Stdout = 1,
    /// Bytes that the program wrote to standard error.
    Stderr = 2,
    /// A JSON value whose type the route names.
    Json = 3,
    /// Bytes for the program's standard input.
    Stdin = 4,
    /// Standard input ends.
    StdinEnd = 5,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Stdout, Self::Stderr, Self::Json, Self::Stdin, Self::StdinEnd]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    /// The longest payload of this kind, in bytes.
    #[must_use]
    pub fn longest(self) -> usize {
        match self {
            Self::Stdout | Self::Stderr | Self::Stdin => MAX_BYTES,
            Self::Json => MAX_JSON,
            Self::StdinEnd => 0,
        }
    }
}

/// Bytes of a record's header.
pub const HEADER: usize = 5;
/// The longest `Stdout`, `Stderr` or `Stdin` payload, in bytes.
pub const MAX_BYTES: usize = 64 * 1024;
/// The longest `Json` payload, in bytes. A cell's result that is larger is cut or moved to a file by the agent.
pub const MAX_JSON: usize = 16 << 20;

/// A record that arrived whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is.
    pub kind: Kind,
    /// Its bytes.
    pub payload: Bytes,
}

/// A body that is no sequence of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A kind that this release does not know.
    #[error("record of unknown kind {0}")]
    UnknownKind(u8),
    /// A length that the kind does not allow.
    #[error("record of kind {kind:?} claims {length} bytes")]
    TooLong {
        /// The kind.
        kind: Kind,
        /// What its header says.
        length: usize,
    },
}

/// The header of a record.
#[must_use]
pub fn header(kind: Kind, length: u32) -> [u8; HEADER] {
    let [a, b, c, d] = length.to_be_bytes();
    [kind as u8, a, b, c, d]
}

/// Appends a record. A payload longer than its kind allows becomes several records (`Json` is never split; its caller
/// keeps to [`MAX_JSON`]).
pub fn append(out: &mut BytesMut, kind: Kind, payload: &[u8]) {
    let piece_length = kind.longest().max(1);
    if payload.is_empty() {
        out.put_slice(&header(kind, 0));
    }
    for piece in payload.chunks(piece_length) {
        out.reserve(HEADER + piece.len());
        // A piece is at most MAX_JSON long, which fits.
        out.put_slice(&header(kind, u32::try_from(piece.len()).unwrap_or(0)));
        out.put_slice(piece);
    }
}

/// One record as bytes; as [`append`].
#[must_use]
pub fn encode(kind: Kind, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(HEADER + payload.len());
    append(&mut out, kind, payload);
    out.freeze()
}

/// Takes a body in pieces of any size and gives the records in it. Copies only what a cut went through.
#[derive(Debug, Default)]
pub struct Decoder {
    chunk: Bytes,
    /// Start of a record whose rest has not come yet.
    partial: BytesMut,
}

impl Decoder {
    /// More of the body. Call [`next_record`](Self::next_record) until it gives none before the next.
    pub fn push(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            let mut joined = BytesMut::from(&self.chunk[..]);
            joined.extend_from_slice(&chunk);
            self.chunk = joined.freeze();
        }
    }

    /// Whether the body may end here.
    #[must_use]
    pub fn is_at_boundary(&self) -> bool {
        self.chunk.is_empty() && self.partial.is_empty()
    }

    /// The next whole record; `None`: more of the body is needed.
    ///
    /// # Errors
    /// [`RecordError`]; the body is of no use from there on.
    pub fn next_record(&mut self) -> Result<Option<Record>, RecordError> {
        if self.partial.is_empty()
            && let Some(first) = self.chunk.first_chunk()
        {
            let (kind, length) = parse(*first)?;
            if self.chunk.len() >= HEADER + length {
                self.chunk.advance(HEADER);
                let payload = self.chunk.split_to(length);
                return Ok(Some(Record { kind, payload }));
            }
        }
        self.fill(HEADER);
        let Some(first) = self.partial.first_chunk() else {
            return Ok(None);
        };
        let (kind, length) = parse(*first)?;
        self.fill(HEADER + length);
        if self.partial.len() < HEADER + length {
            return Ok(None);
        }
        let mut payload = std::mem::take(&mut self.partial).freeze();
        payload.advance(HEADER);
        Ok(Some(Record { kind, payload }))
    }

    fn fill(&mut self, wanted: usize) {
        let missing = wanted.saturating_sub(self.partial.len()).min(self.chunk.len());
        self.partial.extend_from_slice(&self.chunk.split_to(missing));
    }
}

fn parse([kind, a, b, c, d]: [u8; HEADER]) -> Result<(Kind, usize), RecordError> {
    let kind = Kind::from_byte(kind).ok_or(RecordError::UnknownKind(kind))?;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > kind.longest() {
        return Err(RecordError::TooLong { kind, length });
    }
    Ok((kind, length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(body: &[u8], pieces: &[usize]) -> Result<Vec<Record>, RecordError> {
        let (mut decoder, mut records, mut rest, mut turn) = (Decoder::default(), Vec::new(), body, 0);
        while !rest.is_empty() {
            let piece = pieces[turn % pieces.len()].min(rest.len());
            turn += 1;
            decoder.push(Bytes::copy_from_slice(&rest[..piece]));
            rest = &rest[piece..];
            while let Some(record) = decoder.next_record()? {
                records.push(record);
            }
        }
        assert!(decoder.is_at_boundary());
        Ok(records)
    }

    #[test]
    fn the_bytes_of_a_record_are_these() {
        assert_eq!(&encode(Kind::Stdout, b"ok")[..], b"\x01\0\0\0\x02ok");
        assert_eq!(&encode(Kind::Json, b"{}")[..], b"\x03\0\0\0\x02{}");
        assert_eq!(&encode(Kind::StdinEnd, b"")[..], b"\x05\0\0\0\0");
    }

    #[test]
    fn a_length_that_its_kind_forbids_is_refused_before_it_is_waited_for() {
        let body = header(Kind::Stdout, 65_537);
        assert_eq!(
            decoded(&body, &[9]),
            Err(RecordError::TooLong {
                kind: Kind::Stdout,
                length: 65_537
            })
        );
        assert_eq!(decoded(&[9, 0, 0, 0, 0], &[1]), Err(RecordError::UnknownKind(9)));
    }

    proptest! {
        #[test]
        fn records_survive_any_cut(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..20),
            pieces in proptest::collection::vec(1usize..200, 1..6),
        ) {
            let mut body = BytesMut::new();
            for payload in &payloads {
                append(&mut body, Kind::Stderr, payload);
            }
            let seen: Vec<Vec<u8>> = decoded(&body, &pieces)?.into_iter().map(|record| record.payload.to_vec()).collect();
            prop_assert_eq!(seen, payloads);
        }
    }
}
