//! Environment variables, whose values are nobody's business.

use std::{collections::BTreeMap, fmt, ops::Deref};

use serde::{Deserialize, Serialize};

/// Names and values of environment variables. Values are often secrets: `Debug` shows names only, so that no log holds them.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Environment(BTreeMap<String, String>);

impl Deref for Environment {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl From<BTreeMap<String, String>> for Environment {
    fn from(variables: BTreeMap<String, String>) -> Self {
        Self(variables)
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_do_not_print_and_are_written_whole() {
        let variables = BTreeMap::from([("TOKEN".to_owned(), "hush".to_owned())]);
        let environment = Environment::from(variables);
        assert_eq!(format!("{environment:?}"), r#"{"TOKEN"}"#);
        assert_eq!(serde_json::to_string(&environment).unwrap(), r#"{"TOKEN":"hush"}"#);
    }
}
