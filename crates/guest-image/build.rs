//! Builds the agent as a static binary and writes the tables of what is embedded.
//!
//! The agent is built by a second cargo with a target folder of its own, so that the two never wait for each other's lock.
//! It hears nothing of this build but where the registry is: flags, wrappers and targets of ours are not the agent's.

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What the agent is made of.
const AGENT_SOURCES: &[&str] = &["guest-agent", "link", "model", "protocol"];
/// Variables of cargo and rustup that the second cargo needs as well.
const KEPT: &[&str] = &[
    "CARGO_HOME",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTR",
    "CARGO_SOURCE_",
    "RUSTUP_",
];

fn main() -> Result<(), Box<dyn Error>> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let workspace = manifest.ancestors().nth(2).ok_or("the crate is not in a workspace")?;
    let agent = build_agent(workspace)?;
    let mut files = vec![("agent".to_owned(), agent, true)];
    let contexts = workspace.join("guest/contexts");
    watch(&contexts);
    for path in sources_below(&contexts)? {
        let name = path
            .strip_prefix(workspace.join("guest"))?
            .to_str()
            .ok_or("a path is not UTF-8")?;
        files.push((name.to_owned(), path.clone(), false));
    }
    let templates = workspace.join("templates");
    watch(&templates);
    let code = format!("{}{}", file_table(&files)?, recipe_table(&templates)?);
    fs::write(Path::new(&env::var("OUT_DIR")?).join("embedded.rs"), code)?;
    Ok(())
}

fn watch(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}

#[expect(clippy::disallowed_methods, reason = "a build script starts the compiler")]
fn build_agent(workspace: &Path) -> Result<PathBuf, Box<dyn Error>> {
    for name in AGENT_SOURCES {
        watch(&workspace.join("crates").join(name));
    }
    watch(&workspace.join("Cargo.toml"));
    watch(&workspace.join("Cargo.lock"));
    let target = env::var("TARGET")?;
    let target_dir = workspace.join("target/agent");
    let mut cargo = Command::new(env::var("CARGO")?);
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let ours = name.starts_with("CARGO") || name.starts_with("RUST");
        if ours && !KEPT.iter().any(|prefix| name.starts_with(prefix)) {
            cargo.env_remove(name);
        }
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    cargo.args([
        "build",
        "--package",
        "atoll-guest-agent",
        "--profile",
        "agent",
        "--target",
        &target,
    ]);
    cargo.arg("--manifest-path").arg(workspace.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(&target_dir).current_dir(workspace);
    let status = cargo.status()?;
    if !status.success() {
        return Err(format!("building the agent ended with {status}").into());
    }
    Ok(target_dir.join(target).join("agent/atoll-agent"))
}

/// The drivers' sources: tests and what Python compiled are left out.
fn sources_below(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "tests" && !name.starts_with(['.', '_']) {
            found.extend(sources_below(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "py") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn file_table(files: &[(String, PathBuf, bool)]) -> Result<String, Box<dyn Error>> {
    let mut code = "const FILES: &[(&str, &[u8], bool)] = &[\n".to_owned();
    for (name, path, executable) in files {
        let path = path.to_str().ok_or("a path is not UTF-8")?;
        writeln!(code, "    ({name:?}, include_bytes!({path:?}), {executable}),")?;
    }
    code.push_str("];\n");
    Ok(code)
}

fn recipe_table(templates: &Path) -> Result<String, Box<dyn Error>> {
    let mut code = "const RECIPES: &[RecipeFolder<'static>] = &[\n".to_owned();
    let mut names = Vec::new();
    for entry in fs::read_dir(templates)? {
        let path = entry?.path();
        if path.join("template.toml").is_file() {
            names.push(path);
        }
    }
    names.sort();
    for folder in names {
        let name = folder
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or("a path is not UTF-8")?;
        let text = |file: &str| -> Result<String, Box<dyn Error>> {
            let path = folder.join(file);
            let path = path.to_str().ok_or("a path is not UTF-8")?;
            Ok(format!("include_str!({path:?})"))
        };
        let smoke = if folder.join("smoke.toml").is_file() {
            text("smoke.toml")?
        } else {
            "\"\"".to_owned()
        };
        let template = text("template.toml")?;
        writeln!(
            code,
            "    RecipeFolder {{ name: {name:?}, template: {template}, smoke: {smoke} }},"
        )?;
    }
    code.push_str("];\n");
    Ok(code)
}
