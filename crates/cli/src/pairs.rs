//! `KEY=VALUE` arguments.

use std::collections::BTreeMap;

/// One pair.
pub(crate) type Pair = (String, String);

/// `KEY=VALUE`.
pub(crate) fn pair(text: &str) -> Result<Pair, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("it has the form KEY=VALUE".to_owned()),
    }
}

/// `KEY=VALUE`, or `KEY` for the value that this process's own environment has.
pub(crate) fn environment_pair(text: &str) -> Result<Pair, String> {
    if text.contains('=') {
        return pair(text);
    }
    match std::env::var(text) {
        Ok(value) => Ok((text.to_owned(), value)),
        Err(_) => Err(format!(
            "{text} is not set here; it has the form KEY=VALUE, or the name of a variable"
        )),
    }
}

/// Later pairs win.
pub(crate) fn collect(pairs: Vec<Pair>) -> BTreeMap<String, String> {
    pairs.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_may_hold_anything() {
        assert_eq!(pair("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("A="), Ok(("A".to_owned(), String::new())));
        assert!(pair("A").is_err() && pair("=b").is_err());
    }
}
