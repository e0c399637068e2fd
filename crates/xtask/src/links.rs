//! Dead links and dead paths in the documentation.

use std::path::{Component, Path, PathBuf};

use crate::tree::{Finding, Tree, TreeError};

/// Folders of the workspace: a word in back ticks that starts with one of them is a path that must exist.
const FOLDERS: [&str; 10] = [
    "crates/",
    "docs/",
    "tests/",
    "templates/",
    "guest/",
    "scripts/",
    "examples/",
    "bench/",
    "sdk/",
    "dashboard/",
];

pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, TreeError> {
    let mut findings = Vec::new();
    for file in tree.with_extension("md") {
        let text = without_code_blocks(&tree.read(file)?);
        let folder = file.parent().unwrap_or(Path::new(""));
        for target in link_targets(&text) {
            if !leads_somewhere(tree, folder, target) {
                findings.push(Finding::new(file, format!("the link to {target} leads nowhere")));
            }
        }
        for path in mentioned_paths(&text) {
            if !tree.has(Path::new(path)) {
                findings.push(Finding::new(file, format!("there is no {path}")));
            }
        }
    }
    Ok(findings)
}

fn without_code_blocks(text: &str) -> String {
    let mut inside = false;
    let prose = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    });
    prose.collect::<Vec<_>>().join("\n")
}

/// What stands in `](...)`, without its anchor; links to other sites left out.
fn link_targets(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let paths = targets.map(|target| target.split(['#', ' ']).next().unwrap_or_default());
    paths.filter(|path| !path.is_empty() && !path.contains("://") && !path.starts_with("mailto:"))
}

/// Whole words in back ticks that are paths from the workspace's root. Patterns (`<`, `*`, `{`) are not paths.
fn mentioned_paths(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split('`').skip(1).step_by(2);
    words.filter(|word| {
        let starts = FOLDERS.iter().any(|folder| word.starts_with(folder));
        starts && !word.contains(['<', '*', '{', ' ', '\n', '$'])
    })
}

fn leads_somewhere(tree: &Tree, folder: &Path, target: &str) -> bool {
    let joined = folder.join(target);
    let mut inside = PathBuf::new();
    for part in joined.components() {
        match part {
            Component::ParentDir => {
                if !inside.pop() {
                    return false;
                }
            }
            Component::Normal(name) => inside.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    tree.has(&inside)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn links_and_paths_are_followed_and_code_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("docs/guide")).unwrap();
        let page = "[a](../../README.md#x) [b](gone.md) [c](../../../etc/passwd) [d](https://x.test/y)\n\
                    `docs/guide` `docs/gone.md` `docs/<name>`\n```\n[e](nowhere.md) `docs/nowhere`\n```\n";
        fs::write(folder.path().join("docs/guide/page.md"), page).unwrap();
        fs::write(folder.path().join("README.md"), "").unwrap();
        let tree = Tree::at(folder.path(), &["docs/guide/page.md", "README.md"]);
        let found: Vec<_> = check(&tree).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "docs/guide/page.md: the link to gone.md leads nowhere",
                "docs/guide/page.md: the link to ../../../etc/passwd leads nowhere",
                "docs/guide/page.md: there is no docs/gone.md",
            ]
        );
    }
}
