//! Checks that no compiler makes: `cargo run -p xtask -- check` runs all of them, as `make lint` does.
//!
//! Each check is a module with one function from the tree to a list of findings; a finding names the file and what to do.

mod arrows;
mod changelog;
mod links;
mod tree;
mod waivers;

use std::{env, process::ExitCode};

use tree::{Finding, Tree, TreeError};

type Check = fn(&Tree) -> Result<Vec<Finding>, TreeError>;

const CHECKS: [(&str, &str, Check); 4] = [
    ("arrows", "crates depend on each other one way only", arrows::check),
    (
        "waivers",
        "unsafe code and child processes stay where they are allowed",
        waivers::check,
    ),
    (
        "links",
        "links and paths in the documentation lead somewhere",
        links::check,
    ),
    (
        "changelog",
        "the changelog tells of the version at hand",
        changelog::check,
    ),
];

fn main() -> ExitCode {
    let wanted = env::args().nth(1).unwrap_or_default();
    let chosen: Vec<_> = CHECKS
        .iter()
        .filter(|(name, ..)| wanted == "check" || wanted == *name)
        .collect();
    if chosen.is_empty() {
        eprintln!("usage: xtask check, or one of:");
        for (name, what, _) in CHECKS {
            eprintln!("  {name:<10} {what}");
        }
        return ExitCode::from(2);
    }
    match run(&chosen) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(chosen: &[&(&str, &str, Check)]) -> Result<bool, TreeError> {
    let tree = Tree::of_this_workspace()?;
    let mut clean = true;
    for (name, what, check) in chosen {
        let findings = check(&tree)?;
        println!("{:<10} {what}: {}", name, if findings.is_empty() { "ok" } else { "NO" });
        for finding in &findings {
            println!("  {finding}");
        }
        clean &= findings.is_empty();
    }
    Ok(clean)
}
