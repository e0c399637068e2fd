//! Names that people give.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A template's name: `[a-z0-9][A-Za-z0-9._-]{0,63}` (pandastack-v1 §2.12), never `.` or `..`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TemplateName(String);

/// A text that cannot be a template's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a template name is 1 to 64 letters, digits, dots, dashes and underscores, and starts with a letter or digit")]
pub struct InvalidName;

impl TemplateName {
    /// The name as text; safe as one file name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TemplateName {
    type Err = InvalidName;
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        if first && text.len() <= 64 && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidName)
        }
    }
}

impl TryFrom<String> for TemplateName {
    type Error = InvalidName;
    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<TemplateName> for String {
    fn from(name: TemplateName) -> Self {
        name.0
    }
}

impl fmt::Display for TemplateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_plain_file_name() {
        for text in ["", ".", "..", ".x", "a/b", "a\nb", "é", &"a".repeat(65)] {
            assert!(text.parse::<TemplateName>().is_err(), "{text:?}");
        }
        assert!("ubuntu-24.04".parse::<TemplateName>().is_ok());
    }
}
