//! The results of a cell: in order, bounded, and one for each display that is updated in place.

use std::{collections::BTreeMap, rc::Rc};

use atoll_protocol::{event::MAX_JSON, types::CellEvent};
use serde_json::Value;

use super::wire::ResultEvent;
use crate::output::Hub;

/// Results that one cell may have, and their length together, in bytes.
const MOST: usize = 1000;
const MOST_BYTES: usize = 32 << 20;

#[derive(Debug)]
struct Held {
    display_id: Option<String>,
    json: Vec<u8>,
}

/// Collects the results of one cell. They are handed on at once until the first that may be updated; from there on they
/// wait for the end of the cell, so that only the last state of each display is told, at its first place.
#[derive(Debug)]
pub(super) struct Results {
    hub: Rc<Hub>,
    held: Vec<Held>,
    count: usize,
    bytes: usize,
    dropped: u64,
}

impl Results {
    pub(super) fn new(hub: Rc<Hub>) -> Self {
        Self {
            hub,
            held: Vec::new(),
            count: 0,
            bytes: 0,
            dropped: 0,
        }
    }

    pub(super) fn add(&mut self, event: ResultEvent) {
        self.place(event.display_id, event.bundle, event.is_last_expression);
    }

    /// A result that was too long to be held.
    pub(super) fn add_too_long(&mut self, length: u64, path: Option<&str>) {
        let place = path.map_or("it was not kept".to_owned(), |path| format!("it is in {path}, as JSON"));
        let text = format!("[a result of {length} bytes is too long to show; {place}]");
        self.place(
            None,
            BTreeMap::from([("text/plain".to_owned(), Value::String(text))]),
            false,
        );
    }

    fn place(&mut self, display_id: Option<String>, bundle: BTreeMap<String, Value>, is_last_expression: bool) {
        let event = CellEvent::Result {
            bundle,
            is_last_expression,
        };
        let json = serde_json::to_vec(&event).ok().filter(|json| json.len() <= MAX_JSON);
        let Some(json) = json else {
            self.dropped += 1;
            return;
        };
        let earlier = display_id.as_ref().and_then(|id| {
            let mut held = self.held.iter_mut();
            held.find(|held| held.display_id.as_ref() == Some(id))
        });
        if let Some(earlier) = earlier {
            let bytes = self.bytes - earlier.json.len() + json.len();
            if bytes > MOST_BYTES {
                self.dropped += 1;
                return;
            }
            self.bytes = bytes;
            earlier.json = json;
            return;
        }
        let bytes = self.bytes + json.len() + display_id.as_ref().map_or(0, String::len);
        if self.count >= MOST || bytes > MOST_BYTES {
            self.dropped += 1;
            return;
        }
        self.count += 1;
        self.bytes = bytes;
        if display_id.is_none() && self.held.is_empty() {
            self.hub.push_json(json);
        } else {
            self.held.push(Held { display_id, json });
        }
    }

    /// The cell has ended.
    pub(super) fn finish(mut self) {
        for held in self.held.drain(..) {
            self.hub.push_json(held.json);
        }
        if self.dropped > 0 {
            let text = format!("[{} more results were not kept]", self.dropped);
            let bundle = BTreeMap::from([("text/plain".to_owned(), Value::String(text))]);
            let note = CellEvent::Result {
                bundle,
                is_last_expression: false,
            };
            if let Ok(json) = serde_json::to_vec(&note) {
                self.hub.push_json(json);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use atoll_protocol::event::Decoder;

    use super::*;
    use crate::output::Policy;

    fn result(length: usize, display_id: Option<&str>) -> ResultEvent {
        ResultEvent {
            cell: 1,
            bundle: BTreeMap::from([("text/plain".to_owned(), Value::String("x".repeat(length)))]),
            is_last_expression: false,
            display_id: display_id.map(str::to_owned),
        }
    }

    /// The length of each result's text, and the last of them.
    async fn told(results: Results) -> (Vec<usize>, String) {
        let hub = Rc::clone(&results.hub);
        results.finish();
        hub.close();
        let (mut decoder, mut position, mut texts) = (Decoder::default(), 0, Vec::new());
        while let Some(batch) = hub.next_batch(&mut position).await {
            decoder.push(batch);
            while let Some(record) = decoder.next_record().expect("records") {
                match serde_json::from_slice(&record.payload).expect("an event") {
                    CellEvent::Result { bundle, .. } => {
                        texts.push(bundle["text/plain"].as_str().unwrap_or_default().to_owned())
                    }
                    CellEvent::Done(end) => panic!("{end:?}"),
                }
            }
        }
        (texts.iter().map(String::len).collect(), texts.pop().unwrap_or_default())
    }

    #[tokio::test]
    async fn updates_and_names_of_displays_count_as_what_they_hold() {
        let mut results = Results::new(Rc::new(Hub::new(Policy::Wait)));
        let most = MOST_BYTES / 4;
        for number in 0..8 {
            results.add(result(1, Some(&number.to_string())));
        }
        for number in 0..8 {
            results.add(result(most - 100, Some(&number.to_string())));
        }
        results.add(result(1, Some(&"x".repeat(most))));
        let (lengths, last) = told(results).await;
        assert_eq!(lengths[..8], [most - 100, most - 100, most - 100, 1, 1, 1, 1, 1]);
        assert_eq!(last, "[6 more results were not kept]");
    }

    #[tokio::test]
    async fn a_result_that_grows_beyond_a_record_is_not_kept() {
        let mut results = Results::new(Rc::new(Hub::new(Policy::Wait)));
        let mut grown = result(0, None);
        // As JSON, each is "1e15," when it comes and "1000000000000000.0," when it goes.
        grown
            .bundle
            .insert("application/json".to_owned(), vec![1e15; 1_000_000].into());
        results.add(grown);
        results.add(result(5, None));
        let (lengths, last) = told(results).await;
        assert_eq!((lengths[0], last.as_str()), (5, "[1 more results were not kept]"));
    }
}
