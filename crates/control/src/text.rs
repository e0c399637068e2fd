//! Bytes to text, the same for commands and cells, streamed and collected.
//!
//! A character is never cut: a decoder keeps the bytes of an unfinished one until the rest comes. Bytes that are no UTF-8
//! become U+FFFD, one for each maximal invalid part, and the raw bytes stay available beside. NUL is a character like any other.

use atoll_model::output::StreamSummary;
use bytes::{Bytes, BytesMut};

/// Decodes a stream of bytes piece by piece.
#[derive(Debug, Default)]
pub struct TextDecoder {
    /// The start of a character whose end has not come: at most 3 bytes.
    unfinished: Vec<u8>,
    lossy: bool,
}

impl TextDecoder {
    /// The text of these bytes and of those kept back before, without the start of a character at the end.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        if self.unfinished.is_empty() {
            return self.decode(bytes);
        }
        let mut joined = std::mem::take(&mut self.unfinished);
        joined.extend_from_slice(bytes);
        self.decode(&joined)
    }

    /// What was kept back, now that nothing follows.
    pub fn finish(&mut self) -> String {
        if self.unfinished.is_empty() {
            return String::new();
        }
        self.lossy = true;
        self.unfinished.clear();
        char::REPLACEMENT_CHARACTER.to_string()
    }

    /// Whether any byte so far was not UTF-8.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.lossy
    }

    fn decode(&mut self, bytes: &[u8]) -> String {
        let mut text = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            // `utf8_chunks` ends an invalid part as soon as it cannot go on; at the very end of the input it may just
            // be a character whose rest is still to come.
            if chunks.peek().is_none() && may_go_on(invalid) {
                self.unfinished = invalid.to_vec();
            } else {
                self.lossy = true;
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        text
    }
}

/// Whether these bytes are the start of a character.
fn may_go_on(bytes: &[u8]) -> bool {
    matches!(std::str::from_utf8(bytes), Err(error) if error.error_len().is_none())
}

/// One output stream of a command or cell that ended, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputText {
    /// The text. When the stream was cut it holds head, a marker line and tail.
    pub text: String,
    /// The kept bytes, when they are not all UTF-8; an API sends them in base64 beside the text.
    pub raw: Option<Bytes>,
    /// Bytes that the program wrote, whether there was a cut, and where the whole stream lies then.
    pub summary: StreamSummary,
}

/// Collects one stream. The agent keeps to the limit that it was given; this holds even if it does not.
#[derive(Debug)]
pub struct TextCapture {
    bytes: BytesMut,
    limit: usize,
    received: u64,
}

/// What the agent may send beyond the kept bytes: its marker line.
const MARKER_ROOM: usize = 4096;

impl TextCapture {
    /// A capture of at most `keep` bytes and a marker.
    #[must_use]
    pub fn new(keep: u64) -> Self {
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        Self {
            bytes: BytesMut::new(),
            limit: keep.saturating_add(MARKER_ROOM),
            received: 0,
        }
    }

    /// Takes the next bytes; those beyond the limit are counted and dropped.
    pub fn push(&mut self, bytes: &[u8]) {
        self.received += bytes.len() as u64;
        let room = self.limit.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Bytes that are kept.
    pub(crate) fn held(&self) -> usize {
        self.bytes.len()
    }

    /// The text. `summary` is what the agent says of the stream; `None` when it had no chance to.
    #[must_use]
    pub fn finish(self, summary: Option<StreamSummary>) -> OutputText {
        let dropped = self.received > self.bytes.len() as u64;
        let mut summary = summary.unwrap_or(StreamSummary {
            total_bytes: self.received,
            truncated: false,
            spill_path: None,
        });
        summary.truncated |= dropped;
        match String::from_utf8(self.bytes.into()) {
            Ok(text) => OutputText {
                text,
                raw: None,
                summary,
            },
            Err(error) => {
                let mut decoder = TextDecoder::default();
                let raw = error.into_bytes();
                let mut text = decoder.push(&raw);
                text.push_str(&decoder.finish());
                OutputText {
                    text,
                    raw: Some(Bytes::from(raw)),
                    summary,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn in_pieces(bytes: &[u8], cuts: &[usize]) -> (String, bool) {
        let mut decoder = TextDecoder::default();
        let mut text = String::new();
        let mut from = 0;
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.sort_unstable();
        for cut in cuts.into_iter().chain([bytes.len()]) {
            text.push_str(&decoder.push(&bytes[from..cut]));
            from = cut;
        }
        text.push_str(&decoder.finish());
        (text, decoder.is_lossy())
    }

    proptest! {
        #[test]
        fn cuts_anywhere_give_the_text_of_the_whole(text in ".{0,60}", cuts in proptest::collection::vec(any::<usize>(), 0..20)) {
            prop_assert_eq!(in_pieces(text.as_bytes(), &cuts), (text, false));
        }

        #[test]
        fn any_bytes_give_what_a_lossy_decode_of_the_whole_gives(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            cuts in proptest::collection::vec(any::<usize>(), 0..20),
        ) {
            let whole = String::from_utf8_lossy(&bytes).into_owned();
            let lossy = std::str::from_utf8(&bytes).is_err();
            prop_assert_eq!(in_pieces(&bytes, &cuts), (whole, lossy));
        }

        #[test]
        fn a_capture_never_holds_more_than_its_limit(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9000), 0..6),
            keep in 0u64..2000,
        ) {
            let mut capture = TextCapture::new(keep);
            let sent: usize = pieces.iter().map(Vec::len).sum();
            for piece in &pieces {
                capture.push(piece);
            }
            let limit = usize::try_from(keep).unwrap() + MARKER_ROOM;
            let output = capture.finish(None);
            prop_assert_eq!(output.summary.total_bytes, sent as u64);
            prop_assert_eq!(output.summary.truncated, sent > limit);
            prop_assert!(output.raw.map_or(output.text.len(), |raw| raw.len()) <= limit);
        }
    }

    #[test]
    fn a_character_that_never_ends_is_marked() {
        let mut decoder = TextDecoder::default();
        assert_eq!(decoder.push(b"a\xe2\x82"), "a");
        assert_eq!(decoder.finish(), "\u{fffd}");
        assert!(decoder.is_lossy());
    }

    #[test]
    fn nul_and_blank_lines_stay() {
        let mut capture = TextCapture::new(64);
        capture.push(b"a\0b\n\n\nc");
        let output = capture.finish(None);
        assert_eq!((output.text.as_str(), output.raw), ("a\0b\n\n\nc", None));
    }

    #[test]
    fn bytes_that_are_no_text_stay_beside_it() {
        let mut capture = TextCapture::new(64);
        capture.push(b"\xff\xfe\0ok");
        let output = capture.finish(None);
        assert_eq!(output.text, "\u{fffd}\u{fffd}\0ok");
        assert_eq!(output.raw.as_deref(), Some(&b"\xff\xfe\0ok"[..]));
    }
}
