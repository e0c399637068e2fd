//! JSON in ASCII only: every other character as a `\u` escape.
//!
//! The Python client reads an event stream as Latin-1 when no charset is named and splits lines at characters such as
//! U+2028 (pandastack-v1 §2.6); ASCII survives both.

use std::io;

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

struct Ascii(CompactFormatter);

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut plain_from = 0;
        for (at, character) in fragment.char_indices() {
            if character.is_ascii() && character != '\u{7f}' {
                continue;
            }
            self.0.write_string_fragment(writer, &fragment[plain_from..at])?;
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                write!(writer, "\\u{unit:04x}")?;
            }
            plain_from = at + character.len_utf8();
        }
        self.0.write_string_fragment(writer, &fragment[plain_from..])
    }
}

/// The value as one line of ASCII.
///
/// # Errors
/// When the value cannot be JSON at all (a map whose keys are no strings).
pub(crate) fn to_ascii_json<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, Ascii(CompactFormatter)))?;
    // The formatter writes ASCII only.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_from_one_line_of_ascii() {
        for text in [
            "plain \"quoted\" \\ \n\r\t\0",
            "日本語 €",
            "\u{2028}\u{85}\u{7f}",
            "😀x😀",
            "",
        ] {
            let line = to_ascii_json(text).unwrap();
            assert!(line.bytes().all(|b| (0x20..0x7f).contains(&b)), "{line}");
            assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
        }
    }
}
