//! The output contract: of a stream, so many bytes from its head and its tail, a marker between, all of it in a file.

use std::{collections::VecDeque, rc::Rc};

use atoll_model::{OutputLimit, output::StreamSummary};
use atoll_protocol::event::Kind;

use super::{
    Hub,
    spill::{Spill, SpillFile},
};

/// A stream longer than this goes to a file as well, in case it is cut; a shorter one is only held.
const HELD_FOR_SPILL: usize = 64 * 1024;

/// Keeps head and tail of one stream. The head is handed on at once, the tail when the stream ends.
#[derive(Debug)]
pub(crate) struct Keeper {
    kind: Kind,
    hub: Rc<Hub>,
    spill: Rc<Spill>,
    limit: u64,
    head_left: usize,
    /// How many bytes went past the head's end to finish a character.
    head_extra: usize,
    head_sent: u64,
    /// The head is complete.
    tail_begun: bool,
    tail: VecDeque<u8>,
    tail_capacity: usize,
    total: u64,
    /// Everything so far, until it goes to a file.
    early: Vec<u8>,
    file: Option<SpillFile>,
    /// A file was wanted and could not be had.
    file_failed: bool,
}

fn continues_character(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

impl Keeper {
    pub(crate) fn new(kind: Kind, limit: OutputLimit, hub: Rc<Hub>, spill: Rc<Spill>) -> Self {
        let half = usize::try_from(limit.0 / 2).unwrap_or(usize::MAX);
        Self {
            kind,
            hub,
            spill,
            limit: limit.0,
            head_left: usize::try_from(limit.0).unwrap_or(usize::MAX) - half,
            head_extra: 0,
            head_sent: 0,
            tail_begun: false,
            tail: VecDeque::new(),
            tail_capacity: half,
            total: 0,
            early: Vec::new(),
            file: None,
            file_failed: false,
        }
    }

    /// Takes what the program wrote.
    pub(crate) fn write(&mut self, data: &[u8]) {
        self.total += data.len() as u64;
        self.write_file(data);
        let head = self.head_part(data);
        if head > 0 {
            self.hub.push_bytes(self.kind, &data[..head]);
        }
        self.write_tail(&data[head..]);
    }

    /// How much of `data` still belongs to the head; up to three bytes more than its length, to finish a character.
    fn head_part(&mut self, data: &[u8]) -> usize {
        if self.tail_begun {
            return 0;
        }
        let mut part = self.head_left.min(data.len());
        self.head_left -= part;
        while self.head_left == 0 && self.head_extra < 3 && data.get(part).is_some_and(|b| continues_character(*b)) {
            part += 1;
            self.head_extra += 1;
        }
        self.head_sent += part as u64;
        self.tail_begun = part < data.len();
        part
    }

    fn write_tail(&mut self, data: &[u8]) {
        let last = &data[data.len().saturating_sub(self.tail_capacity)..];
        let excess = (self.tail.len() + last.len()).saturating_sub(self.tail_capacity);
        self.tail.drain(..excess);
        self.tail.extend(last);
    }

    fn write_file(&mut self, data: &[u8]) {
        if self.file_failed {
            return;
        }
        if let Some(file) = &mut self.file {
            self.file_failed = file.write(data).is_err();
            return;
        }
        self.early.extend_from_slice(data);
        if self.early.len() > HELD_FOR_SPILL || self.total > self.limit {
            let early = std::mem::take(&mut self.early);
            let mut file = self.spill.create(self.kind);
            let written = file.as_mut().map(|file| file.write(&early));
            self.file_failed = !matches!(written, Ok(Ok(())));
            self.file = file.ok();
        }
    }

    /// The stream has ended: hands on the tail, and says what became of it all.
    pub(crate) fn finish(mut self) -> StreamSummary {
        let mut cut = self.total - self.head_sent - self.tail.len() as u64;
        let file = self.file.take().filter(|_| !self.file_failed);
        let mut spill_path = None;
        if cut > 0 {
            let torn = self
                .tail
                .iter()
                .take(3)
                .take_while(|byte| continues_character(**byte))
                .count();
            self.tail.drain(..torn);
            cut += torn as u64;
            spill_path = file.map(SpillFile::keep);
            let place = spill_path
                .as_ref()
                .map_or(String::new(), |path| format!("; all of it is in {path}"));
            let marker = format!("\n[... {cut} bytes cut{place} ...]\n");
            self.hub.push_bytes(self.kind, marker.as_bytes());
        }
        if !self.tail.is_empty() {
            self.hub.push_bytes(self.kind, self.tail.make_contiguous());
        }
        StreamSummary {
            total_bytes: self.total,
            truncated: cut > 0,
            spill_path,
        }
    }
}

#[cfg(test)]
mod tests {
    use atoll_protocol::event::Decoder;
    use proptest::prelude::*;

    use super::{super::Policy, *};

    /// Writes the pieces through a keeper and gives what the caller gets.
    fn kept(pieces: &[&[u8]], limit: u64) -> (Vec<u8>, StreamSummary, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let hub = Rc::new(Hub::new(Policy::Wait));
        let spill = Rc::new(Spill::new(folder.path().join("spill")));
        let mut keeper = Keeper::new(Kind::Stdout, OutputLimit(limit), Rc::clone(&hub), spill);
        for piece in pieces {
            keeper.write(piece);
        }
        let summary = keeper.finish();
        hub.close();
        let mut bytes = Vec::new();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (mut position, mut decoder) = (0, Decoder::default());
            while let Some(batch) = hub.next_batch(&mut position).await {
                decoder.push(batch);
                while let Some(record) = decoder.next_record().expect("records") {
                    bytes.extend_from_slice(&record.payload);
                }
            }
        });
        (bytes, summary, folder)
    }

    #[test]
    fn what_fits_comes_whole_and_leaves_no_file() {
        let (bytes, summary, folder) = kept(&[b"a\n\n\n", b"b"], 5);
        assert_eq!(bytes, b"a\n\n\nb");
        assert_eq!((summary.truncated, summary.spill_path), (false, None));
        let left = std::fs::read_dir(folder.path().join("spill")).map_or(0, Iterator::count);
        assert_eq!(left, 0);
    }

    #[test]
    fn what_is_cut_lies_whole_in_a_file() {
        let text: String = (0..50_000).map(|n| format!("{n}\n")).collect();
        let (bytes, summary, _folder) = kept(&[text.as_bytes()], 1000);
        let seen = String::from_utf8(bytes).expect("text");
        assert!(seen.starts_with("0\n1\n") && seen.ends_with("49999\n") && seen.contains("bytes cut"));
        assert!(seen.len() < 1200);
        let path = summary.spill_path.expect("a file");
        assert!(seen.contains(&path));
        assert_eq!(std::fs::read_to_string(path).expect("the file"), text);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn text_stays_text_wherever_it_is_cut(text in "[aé日😀\n]{0,400}", limit in 0_u64..200, step in 1_usize..9) {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(step).collect();
            let (bytes, summary, _folder) = kept(&pieces, limit);
            let seen = String::from_utf8(bytes);
            prop_assert!(seen.is_ok());
            prop_assert_eq!(summary.total_bytes, text.len() as u64);
            if !summary.truncated {
                prop_assert_eq!(seen, Ok(text));
            }
        }
    }
}
