//! The results of a cell: in order, bounded, and one for each display that is updated in place.

use std::{collections::BTreeMap, rc::Rc};

use atoll_protocol::types::CellEvent;
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
        let Ok(json) = serde_json::to_vec(&event) else {
            self.dropped += 1;
            return;
        };
        let earlier = display_id.as_ref().and_then(|id| {
            let mut held = self.held.iter_mut();
            held.find(|held| held.display_id.as_ref() == Some(id))
        });
        if let Some(earlier) = earlier {
            self.bytes = self.bytes - earlier.json.len() + json.len();
            earlier.json = json;
            return;
        }
        if self.count >= MOST || self.bytes + json.len() > MOST_BYTES {
            self.dropped += 1;
            return;
        }
        self.count += 1;
        self.bytes += json.len();
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
