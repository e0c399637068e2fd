//! Names for contents.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The first 128 bits of a SHA-256, as 32 lower-case hexadecimal digits. Safe as one file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// A text that is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 32 lower-case hexadecimal digits")]
pub struct InvalidDigest;

impl Digest {
    /// Of a sequence of parts. Where one ends and the next begins counts: ("ab", "c") is not ("a", "bc").
    #[must_use]
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hex::encode(&hash.finalize()[..16]))
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;
    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == 32 && text.bytes().all(digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidDigest)
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;
    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_borders_of_parts_count() {
        let of = |parts: &[&str]| Digest::of(parts.iter().map(|part| part.as_bytes()));
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
        assert_eq!(of(&[]).as_str().parse::<Digest>(), Ok(of(&[])));
    }

    #[test]
    fn a_digest_cannot_leave_its_folder() {
        for text in [
            "",
            "..",
            "../0123456789abcdef0123456789abc",
            &"A".repeat(32),
            &"a".repeat(33),
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text:?}");
        }
    }
}
