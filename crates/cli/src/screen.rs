//! What a command shows: tables and sentences for people, the server's JSON for programs.

use std::io::{self, IsTerminal, Write};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::Failure;

/// How this run of the program talks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    /// JSON on standard output, and errors as JSON on standard error.
    pub(crate) json: bool,
}

impl Screen {
    /// A value as JSON, indented for people who look at it, one line otherwise.
    pub(crate) fn json<T: Serialize>(self, value: &T) -> Result<(), Failure> {
        let text = if io::stdout().is_terminal() {
            serde_json::to_string_pretty(value)
        } else {
            serde_json::to_string(value)
        };
        self.line(&text.map_err(|error| Failure::local(error.to_string()))?)
    }

    /// A line on standard output.
    #[allow(clippy::unused_self)] // Whoever prints has a screen, so that nothing prints past `--json`.
    pub(crate) fn line(self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    }

    /// A remark for people, on standard error; nothing with `--json`.
    pub(crate) fn remark(self, text: &str) {
        if !self.json {
            eprintln!("{text}");
        }
    }

    /// Rows below their headings, columns aligned.
    pub(crate) fn table(self, headings: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        self.line(&align(headings, rows))
    }

    /// Whether progress may be drawn: a person sits at a terminal.
    pub(crate) fn draws(self) -> bool {
        !self.json && io::stderr().is_terminal()
    }

    /// A place for progress bars; draws nothing where nobody looks.
    pub(crate) fn progress(self) -> MultiProgress {
        MultiProgress::with_draw_target(if self.draws() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        })
    }

    /// A turning sign with a message, for work of unknown length.
    pub(crate) fn spinner(self, message: impl Into<String>) -> ProgressBar {
        let bar = self
            .progress()
            .add(ProgressBar::new_spinner().with_message(message.into()));
        bar.enable_steady_tick(std::time::Duration::from_millis(120));
        bar
    }
}

/// A bar for bytes.
pub(crate) fn bytes_bar(total: Option<u64>, name: &str) -> ProgressBar {
    let template = match total {
        Some(_) => "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        None => "{msg} {spinner} {bytes} {bytes_per_sec}",
    };
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    // Without colours, so that NO_COLOR needs no second template.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_message(name.to_owned())
}

fn align(headings: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        cells.chain([headings[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(&mut headings.iter().copied())];
    lines.extend(rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
    lines.join("\n")
}

/// A size as people write it.
pub(crate) fn human_bytes(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

/// How long ago, in the largest fitting unit.
pub(crate) fn human_age(seconds: i64) -> String {
    match seconds.max(0) {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m", s / 60),
        s @ 3600..172_800 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            vec!["a".to_owned(), "bcd".to_owned()],
            vec!["äöü".to_owned(), "e".to_owned()],
        ];
        assert_eq!(align(&["X", "Y"], &rows), "X    Y\na    bcd\näöü  e");
    }

    #[test]
    fn ages_use_the_largest_fitting_unit() {
        let ages = [-5, 59, 60, 7199, 200_000].map(human_age);
        assert_eq!(ages, ["0s", "59s", "1m", "1h", "2d"]);
    }
}
