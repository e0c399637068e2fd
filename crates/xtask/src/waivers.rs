//! Where a lint of the workspace may be waived, and nowhere else.
//!
//! The lints themselves (`unsafe_code`, and `disallowed_methods` with the list in clippy.toml) are the compiler's work.

use std::path::Path;

use crate::tree::{Finding, Tree, TreeError};

struct Waiver {
    lint: &'static str,
    /// Beginnings of paths.
    places: &'static [&'static str],
    why: &'static str,
}

const WAIVERS: [Waiver; 2] = [
    Waiver {
        lint: "unsafe_code",
        places: &["crates/host/src/", "crates/guest-agent/src/sys"],
        why: "unsafe code lives in crates/host and in the guest agent's sys module; wrap the call there",
    },
    Waiver {
        lint: "clippy::disallowed_methods",
        places: &[
            "crates/host/src/program.rs",
            "crates/engine/src/conformance/",
            "crates/guest-image/build.rs",
            "crates/testkit/",
            "crates/xtask/",
        ],
        why: "what clippy.toml bans has its one place: start processes through crates/host",
    },
];

pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, TreeError> {
    let mut findings = Vec::new();
    for file in tree.with_extension("rs") {
        let text = tree.read(file)?;
        for waiver in &WAIVERS {
            if waives(&text, waiver.lint) && !is_allowed(file, waiver.places) {
                findings.push(Finding::new(file, waiver.why));
            }
        }
    }
    Ok(findings)
}

/// Whether an attribute of this file allows or expects the lint.
fn waives(text: &str, lint: &str) -> bool {
    let attributes = text
        .split('#')
        .skip(1)
        .filter_map(|rest| rest.split_once(']').map(|(inside, _)| inside));
    attributes
        .filter(|inside| inside.contains("allow(") || inside.contains("expect("))
        .any(|inside| inside.contains(lint))
}

/// Integration tests start the programs that they test.
fn is_allowed(file: &Path, places: &[&str]) -> bool {
    let text = file.to_string_lossy();
    places.iter().any(|place| text.starts_with(place)) || text.contains("/tests/")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Put together here, so that this file does not find itself.
    fn attribute(inner: &str, lint: &str) -> String {
        format!("#!{}[{inner}({lint})]\nfn main() {{}}\n", "")
    }

    #[test]
    fn a_waiver_is_seen_whatever_its_form() {
        for inner in ["allow", "expect"] {
            assert!(waives(&attribute(inner, "unsafe_code"), "unsafe_code"), "{inner}");
        }
        assert!(waives(
            &attribute("cfg_attr(test, allow", "unsafe_code)"),
            "unsafe_code"
        ));
        assert!(!waives("#![forbid(unsafe_code)]", "unsafe_code"));
    }

    #[test]
    fn a_place_is_a_beginning_of_the_path() {
        assert!(is_allowed(Path::new("crates/host/src/child.rs"), WAIVERS[0].places));
        assert!(!is_allowed(
            Path::new("crates/control/src/create.rs"),
            WAIVERS[0].places
        ));
    }
}
