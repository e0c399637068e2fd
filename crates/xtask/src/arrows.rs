//! Which crate may depend on which. The picture is in ARCHITECTURE.md.

use crate::tree::{Finding, Tree, TreeError};

/// A crate, and the crates of this workspace that it may name. `*`: any.
const ALLOWED: &[(&str, &[&str])] = &[
    ("atoll-model", &[]),
    ("atoll-protocol", &["atoll-model"]),
    ("atoll-link", &["atoll-protocol"]),
    ("atoll-guest-agent", &["atoll-model", "atoll-protocol", "atoll-link"]),
    ("atoll-guest-link", &["atoll-model", "atoll-protocol", "atoll-link"]),
    ("atoll-host", &[]),
    ("atoll-engine", &["atoll-model"]),
    ("atoll-engine-gvisor", &["atoll-model", "atoll-engine", "atoll-host"]),
    ("atoll-engine-fake", &["atoll-model", "atoll-engine", "atoll-host"]),
    (
        "atoll-template",
        &[
            "atoll-model",
            "atoll-protocol",
            "atoll-engine",
            "atoll-guest-link",
            "atoll-host",
        ],
    ),
    ("atoll-guest-image", &["atoll-template"]),
    ("atoll-store", &["atoll-model"]),
    (
        "atoll-control",
        &[
            "atoll-model",
            "atoll-protocol",
            "atoll-engine",
            "atoll-guest-link",
            "atoll-template",
            "atoll-store",
        ],
    ),
    ("atoll-api", &["atoll-model", "atoll-protocol", "atoll-control"]),
    ("atoll-server", &["*"]),
    // The CLI speaks HTTP; of the server it starts `serve` and asks the registry of engines.
    ("atoll", &["atoll-model", "atoll-engine", "atoll-server"]),
    ("atoll-testkit", &["*"]),
    ("xtask", &["*"]),
];

/// Engines for tests: no crate that goes into the release may depend on one.
const TESTS_ONLY: &[&str] = &["atoll-engine-fake", "atoll-testkit"];

pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, TreeError> {
    let mut findings = Vec::new();
    for manifest in tree.named("Cargo.toml") {
        let table = tree.read_toml(manifest)?;
        let Some(name) = table.get("package").and_then(|package| package.get("name")?.as_str()) else {
            continue;
        };
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
            findings.push(Finding::new(
                manifest,
                format!("{name} is not in the list of crates in xtask/src/arrows.rs"),
            ));
            continue;
        };
        let forbidden = dependencies(&table).filter(|dependency| !may(name, allowed, dependency));
        findings.extend(
            forbidden.map(|dependency| Finding::new(manifest, format!("{name} must not depend on {dependency}"))),
        );
    }
    Ok(findings)
}

/// Names of the workspace's own crates among a manifest's dependencies; development ones may be any.
fn dependencies(manifest: &toml::Table) -> impl Iterator<Item = &str> {
    let tables = ["dependencies", "build-dependencies"].into_iter();
    let names = tables
        .filter_map(|kind| manifest.get(kind)?.as_table())
        .flat_map(toml::Table::keys);
    names
        .map(String::as_str)
        .filter(|name| *name == "atoll" || name.starts_with("atoll-"))
}

fn may(name: &str, allowed: &[&str], dependency: &str) -> bool {
    if TESTS_ONLY.contains(&dependency) {
        return TESTS_ONLY.contains(&name) || name == "xtask";
    }
    allowed.contains(&"*") || allowed.contains(&dependency)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    fn findings(manifest: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
        let found = check(&Tree::at(folder.path(), &["Cargo.toml"])).unwrap();
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_arrow_against_the_direction_is_found() {
        let found = findings(
            "[package]\nname = \"atoll-store\"\n[dependencies]\natoll-control.workspace = true\nserde = \"1\"\n",
        );
        assert_eq!(found, ["Cargo.toml: atoll-store must not depend on atoll-control"]);
    }

    #[test]
    fn the_engine_for_tests_stays_out_of_the_release() {
        let manifest = "[package]\nname = \"atoll-server\"\n[dependencies]\natoll-engine-fake.workspace = true\n";
        assert_eq!(findings(manifest).len(), 1);
    }

    #[test]
    fn a_crate_that_nobody_listed_is_found() {
        assert_eq!(findings("[package]\nname = \"atoll-new\"\n").len(), 1);
    }

    #[test]
    fn the_workspace_itself_is_listed_completely() {
        let tree = Tree::of_this_workspace().unwrap();
        let names = tree
            .named("Cargo.toml")
            .filter(|manifest| *manifest != Path::new("Cargo.toml"));
        assert_eq!(names.count(), ALLOWED.len());
    }
}
