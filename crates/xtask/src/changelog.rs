//! The changelog has a section for the version that the workspace builds.

use std::path::Path;

use crate::tree::{Finding, Tree, TreeError};

const FILE: &str = "CHANGELOG.md";

pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, TreeError> {
    let manifest = tree.read_toml(Path::new("Cargo.toml"))?;
    let version = ["workspace", "package"]
        .iter()
        .try_fold(&manifest, |table, key| table.get(*key)?.as_table())
        .and_then(|package| package.get("version")?.as_str());
    let Some(version) = version else {
        return Ok(vec![Finding::new("Cargo.toml", "the workspace has no version")]);
    };
    if !tree.has(Path::new(FILE)) {
        return Ok(vec![Finding::new(FILE, "there is no changelog")]);
    }
    let heading = format!("## {version}");
    let told = tree
        .read(Path::new(FILE))?
        .lines()
        .any(|line| line.starts_with(&heading));
    Ok(if told {
        Vec::new()
    } else {
        vec![Finding::new(FILE, format!("there is no section \"{heading}\""))]
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_version_without_a_section_is_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("Cargo.toml"),
            "[workspace.package]\nversion = \"0.2.0\"\n",
        )
        .unwrap();
        let tree = Tree::at(folder.path(), &["Cargo.toml"]);
        assert_eq!(check(&tree).unwrap().len(), 1, "no file");
        fs::write(folder.path().join(FILE), "## 0.1.0\n").unwrap();
        assert_eq!(check(&tree).unwrap().len(), 1, "no section");
        fs::write(folder.path().join(FILE), "## 0.2.0 (unreleased)\n").unwrap();
        assert!(check(&tree).unwrap().is_empty());
    }
}
