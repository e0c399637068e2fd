//! Framing of the link: `{epoch u32, length u32, bytes, epoch u32}`, big-endian, resettable at any byte.
//!
//! The link is one dumb duplex byte stream whose either end may be replaced at any moment: the server restarts and opens
//! the FIFOs again, a machine is restored from a snapshot taken in the middle of a frame. So:
//!
//! - An epoch always has its top bit set; a zero byte where a frame could start is padding and skipped.
//! - Who (re)opens a direction first sends [`PADDING`] zero bytes, as many as the longest frame has. Whatever frame the
//!   predecessor left unfinished ends inside the padding, and after it the reader stands at the start of a frame.
//! - A frame ends with its epoch once more, and its bytes are handed on only when that is there. A frame that its writer
//!   left unfinished ends in padding instead, so a body cut by a crash is never taken for a whole one.
//! - The first frame of an epoch carries the `OPEN` bit in `length`. A reader takes a new epoch from such a frame only and
//!   drops every frame of another epoch.
//! - A frame that cannot be (no top bit, longer than [`MAX_PAYLOAD`], wrong end) makes the reader drop one byte and look
//!   again.

use std::{io::IoSlice, ops::Range};

/// Bytes of a header.
pub const HEADER: usize = 8;
/// The longest payload of one frame, in bytes.
pub const MAX_PAYLOAD: usize = 64 * 1024;
/// Bytes after the payload.
pub const TRAILER: usize = 4;
/// Zero bytes sent when a direction is opened.
pub const PADDING: usize = HEADER + MAX_PAYLOAD + TRAILER;
/// In `length`: this frame opens its epoch.
pub const OPEN: u32 = 1 << 31;
/// In every epoch.
pub const EPOCH_BIT: u32 = 1 << 31;

/// Room for one whole frame while another is being read.
const BUFFER: usize = 2 * PADDING;
/// Payload slices that one write takes at most; the rest waits for the next.
const MAX_SLICES: usize = 24;
static ZEROS: [u8; 8192] = [0; 8192];

/// Makes an epoch out of random bits.
#[must_use]
pub fn epoch(random: u32) -> u32 {
    random | EPOCH_BIT
}

/// A frame that arrived whole. Its bytes are in [`Decoder::payload`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The epoch it belongs to.
    pub epoch: u32,
    /// Whether it opens that epoch.
    pub opens: bool,
}

/// Takes the bytes of one direction in pieces of any size and gives the frames in them.
///
/// Read into [`space`](Self::space), say how much with [`advance`](Self::advance), then call
/// [`next_frame`](Self::next_frame) until it gives none.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// What of the last frame's bytes was not yet consumed.
    payload: Range<usize>,
    /// Where the next frame may start.
    cursor: usize,
    /// How far the buffer is filled.
    end: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            buffer: vec![0; BUFFER],
            payload: 0..0,
            cursor: 0,
            end: 0,
        }
    }
}

impl Decoder {
    /// Room for more bytes; never empty once [`next_frame`](Self::next_frame) gave none and the payload was consumed.
    pub fn space(&mut self) -> &mut [u8] {
        let base = if self.payload.is_empty() {
            self.cursor
        } else {
            self.payload.start
        };
        if base == self.end {
            (self.cursor, self.end, self.payload) = (0, 0, 0..0);
        } else if base > 0 && self.buffer.len() - self.end < PADDING {
            self.buffer.copy_within(base..self.end, 0);
            self.cursor -= base;
            self.end -= base;
            self.payload = 0..self.payload.len();
        }
        &mut self.buffer[self.end..]
    }

    /// So many bytes were put into [`space`](Self::space).
    pub fn advance(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// The next whole frame; what was left of the last one's payload is dropped. `None`: more bytes are needed.
    pub fn next_frame(&mut self) -> Option<Frame> {
        self.payload = 0..0;
        loop {
            let ahead = &self.buffer[self.cursor..self.end];
            let zeros = ahead.iter().position(|byte| *byte != 0).unwrap_or(ahead.len());
            self.cursor += zeros;
            let header: [u8; HEADER] = *self.buffer[self.cursor..self.end].first_chunk()?;
            let [epoch, word] = words(header);
            let length = (word & !OPEN) as usize;
            if epoch & EPOCH_BIT == 0 || length > MAX_PAYLOAD {
                self.cursor += 1;
                continue;
            }
            let start = self.cursor + HEADER;
            let trailer: [u8; TRAILER] = *self.buffer[..self.end].get(start + length..)?.first_chunk()?;
            if u32::from_be_bytes(trailer) != epoch {
                self.cursor += 1;
                continue;
            }
            self.payload = start..start + length;
            self.cursor = start + length + TRAILER;
            return Some(Frame {
                epoch,
                opens: word & OPEN != 0,
            });
        }
    }

    /// What of the last frame's bytes was not yet consumed.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.buffer[self.payload.clone()]
    }

    /// The first so many bytes of the payload were used.
    pub fn consume(&mut self, count: usize) {
        self.payload.start = (self.payload.start + count).min(self.payload.end);
    }
}

fn words(header: [u8; HEADER]) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = header;
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

/// Puts the bytes of one epoch into frames, without copying them.
///
/// Hand [`slices`](Self::slices) to a vectored write and tell [`advance`](Self::advance) how much was taken. A frame that
/// was begun is finished by whatever bytes come next, so a write may stop anywhere.
#[derive(Debug)]
pub struct Encoder {
    epoch: u32,
    padding: usize,
    opened: bool,
    header: [u8; HEADER],
    trailer: [u8; TRAILER],
    /// What of the current frame was not yet written.
    header_left: usize,
    payload_left: usize,
    trailer_left: usize,
}

impl Encoder {
    /// Opens a direction: padding comes first, and the first frame opens the epoch.
    #[must_use]
    pub fn open(epoch: u32) -> Self {
        Self {
            epoch,
            padding: PADDING,
            opened: false,
            header: [0; HEADER],
            trailer: epoch.to_be_bytes(),
            header_left: 0,
            payload_left: 0,
            trailer_left: 0,
        }
    }

    fn is_flushed(&self) -> bool {
        self.padding == 0 && self.header_left == 0 && self.payload_left == 0 && self.trailer_left == 0
    }

    /// Whether [`slices`](Self::slices) gives something even when no payload is offered.
    #[must_use]
    pub fn owes_bytes(&self) -> bool {
        self.padding > 0 || self.header_left > 0 || (self.payload_left == 0 && self.trailer_left > 0)
    }

    /// What to write next: rest of the frame that is under way, or a frame around the first bytes of `payload`.
    /// With an empty `payload` only what needs no more bytes.
    pub fn slices<'a>(&'a mut self, payload: &'a [IoSlice<'_>], out: &mut Vec<IoSlice<'a>>) {
        out.clear();
        if self.padding > 0 {
            let mut left = self.padding;
            while left > 0 {
                let piece = left.min(ZEROS.len());
                out.push(IoSlice::new(&ZEROS[..piece]));
                left -= piece;
            }
            return;
        }
        let payload = &payload[..payload.len().min(MAX_SLICES)];
        let offered: usize = payload.iter().map(|slice| slice.len()).sum();
        if self.is_flushed() && offered > 0 {
            self.begin(offered.min(MAX_PAYLOAD));
        }
        if self.header_left > 0 {
            out.push(IoSlice::new(&self.header[HEADER - self.header_left..]));
        }
        let mut left = self.payload_left;
        for slice in payload {
            let piece = slice.len().min(left);
            if piece > 0 {
                out.push(IoSlice::new(&slice[..piece]));
                left -= piece;
            }
        }
        if left == 0 && self.trailer_left > 0 {
            out.push(IoSlice::new(&self.trailer[TRAILER - self.trailer_left..]));
        }
    }

    fn begin(&mut self, length: usize) {
        let opens = if self.opened { 0 } else { OPEN };
        self.opened = true;
        // `length` is at most MAX_PAYLOAD, which fits.
        let word = u32::try_from(length).unwrap_or(0) | opens;
        self.header[..4].copy_from_slice(&self.epoch.to_be_bytes());
        self.header[4..].copy_from_slice(&word.to_be_bytes());
        (self.header_left, self.payload_left, self.trailer_left) = (HEADER, length, TRAILER);
    }

    /// So many bytes of the slices were written. Gives how many of them were payload.
    pub fn advance(&mut self, mut written: usize) -> usize {
        let mut take = |left: &mut usize| {
            let piece = written.min(*left);
            *left -= piece;
            written -= piece;
            piece
        };
        take(&mut self.padding);
        take(&mut self.header_left);
        let payload = take(&mut self.payload_left);
        take(&mut self.trailer_left);
        payload
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OLD: u32 = EPOCH_BIT | 7;
    const NEW: u32 = EPOCH_BIT | 0x1234;

    fn encoded(encoder: &mut Encoder, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = payload;
        loop {
            let offered = [IoSlice::new(rest)];
            let mut slices = Vec::new();
            encoder.slices(&offered, &mut slices);
            if slices.is_empty() {
                return bytes;
            }
            let piece: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            let used = encoder.advance(piece.len());
            bytes.extend(piece);
            rest = &rest[used..];
        }
    }

    /// Feeds the bytes in pieces and gives what the reader of `epoch` would see.
    fn decoded(bytes: &[u8], pieces: &[usize], epoch: u32) -> Vec<u8> {
        let mut decoder = Decoder::default();
        let (mut seen, mut opened, mut rest, mut turn) = (Vec::new(), false, bytes, 0);
        while !rest.is_empty() {
            let space = decoder.space();
            let piece = pieces[turn % pieces.len()].max(1).min(rest.len()).min(space.len());
            space[..piece].copy_from_slice(&rest[..piece]);
            decoder.advance(piece);
            rest = &rest[piece..];
            turn += 1;
            while let Some(frame) = decoder.next_frame() {
                opened |= frame.epoch == epoch && frame.opens;
                if frame.epoch == epoch && opened {
                    seen.extend_from_slice(decoder.payload());
                }
            }
        }
        seen
    }

    #[test]
    fn the_bytes_on_the_wire_are_these() {
        let mut encoder = Encoder::open(NEW);
        let bytes = encoded(&mut encoder, b"hi");
        assert_eq!(bytes.len(), PADDING + HEADER + 2 + TRAILER);
        assert!(bytes[..PADDING].iter().all(|byte| *byte == 0));
        assert_eq!(
            hex(&bytes[PADDING..]),
            "80001234 80000002 6869 80001234".replace(' ', "")
        );
        assert_eq!(
            hex(&encoded(&mut encoder, b"!")),
            "80001234 00000001 21 80001234".replace(' ', "")
        );
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_body_cut_by_a_crash_is_never_taken_for_a_whole_one() {
        let mut old = Encoder::open(OLD);
        let mut bytes = encoded(&mut old, b"first");
        let cut = encoded(&mut old, &[b'x'; 1000]);
        bytes.extend_from_slice(&cut[..500]);
        bytes.extend(encoded(&mut Encoder::open(NEW), b"second"));
        assert_eq!(decoded(&bytes, &[4096], OLD), b"first");
        assert_eq!(decoded(&bytes, &[4096], NEW), b"second");
    }

    #[test]
    fn long_payloads_are_split() {
        let payload: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let bytes = encoded(&mut Encoder::open(NEW), &payload);
        assert_eq!(decoded(&bytes, &[70_001], NEW), payload);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_garbage_before_an_opening_is_survived(
            garbage in proptest::collection::vec(any::<u8>(), 0..3000),
            old in proptest::collection::vec(any::<u8>(), 0..3000),
            cut in any::<proptest::sample::Index>(),
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..5000), 1..6),
            pieces in proptest::collection::vec(1usize..9000, 1..8),
        ) {
            let mut bytes = garbage;
            let unfinished = encoded(&mut Encoder::open(OLD), &old);
            bytes.extend_from_slice(&unfinished[..cut.index(unfinished.len() + 1)]);
            let mut encoder = Encoder::open(NEW);
            for payload in &payloads {
                bytes.extend(encoded(&mut encoder, payload));
            }
            prop_assert_eq!(decoded(&bytes, &pieces, NEW), payloads.concat());
        }

        #[test]
        fn a_write_may_stop_at_any_byte(
            payload in proptest::collection::vec(any::<u8>(), 1..4000),
            stops in proptest::collection::vec(1usize..700, 1..8),
        ) {
            let mut encoder = Encoder::open(NEW);
            let (mut wire, mut rest, mut turn) = (Vec::new(), &payload[..], 0);
            loop {
                let (left, right) = rest.split_at(rest.len() / 2);
                let offered = [IoSlice::new(left), IoSlice::new(right)];
                let mut slices = Vec::new();
                encoder.slices(&offered, &mut slices);
                if slices.is_empty() {
                    break;
                }
                let piece: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(stops[turn % stops.len()]).collect();
                turn += 1;
                let used = encoder.advance(piece.len());
                wire.extend(piece);
                rest = &rest[used..];
            }
            prop_assert!(encoder.is_flushed());
            prop_assert_eq!(decoded(&wire, &[1000], NEW), payload);
        }
    }
}
