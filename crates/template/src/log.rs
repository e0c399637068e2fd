//! A build's log: its beginning and its end, at most 256 KiB (pandastack-v1 §2.12).

use std::collections::VecDeque;

use crate::BuildEvent;

const HEAD: usize = 64 << 10;
const TAIL: usize = 192 << 10;

/// Lines that were told, the middle left out when there are too many.
#[derive(Debug, Default)]
pub(crate) struct BoundedLog {
    head: String,
    tail: VecDeque<String>,
    tail_bytes: usize,
    dropped: u64,
}

impl BoundedLog {
    pub(crate) fn add(&mut self, event: &BuildEvent) {
        match event {
            BuildEvent::Phase { phase } => self.line(format!("== {}", phase.label())),
            BuildEvent::Line { text, .. } => self.line(text.clone()),
        }
    }

    fn line(&mut self, line: String) {
        if self.tail.is_empty() && self.head.len() + line.len() < HEAD {
            self.head.push_str(&line);
            self.head.push('\n');
            return;
        }
        self.tail_bytes += line.len() + 1;
        self.tail.push_back(line);
        while self.tail_bytes > TAIL {
            let Some(dropped) = self.tail.pop_front() else { return };
            self.tail_bytes -= dropped.len() + 1;
            self.dropped += 1;
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = self.head.clone();
        if self.dropped > 0 {
            text.push_str(&format!("... {} lines left out ...\n", self.dropped));
        }
        for line in &self.tail {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_keeps_its_beginning_and_its_end() {
        let mut log = BoundedLog::default();
        for number in 0..100_000 {
            log.line(format!("line {number}"));
        }
        let text = log.text();
        assert!(text.len() <= HEAD + TAIL + 64, "{}", text.len());
        assert!(text.starts_with("line 0\n") && text.ends_with("line 99999\n"));
        assert!(text.contains("lines left out"));
    }

    #[test]
    fn a_short_log_is_whole() {
        let mut log = BoundedLog::default();
        log.line("a".to_owned());
        log.line("b".to_owned());
        assert_eq!(log.text(), "a\nb\n");
    }
}
