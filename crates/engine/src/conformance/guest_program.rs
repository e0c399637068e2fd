//! Builds the suite's guest, once for each test program.

use std::{path::PathBuf, process::Command, sync::OnceLock};

/// The folder that a machine sees at [`GUEST_DIR`](crate::GUEST_DIR): it holds the guest as `agent`.
///
/// # Panics
/// When `rustc` is missing or fails.
#[must_use]
pub fn folder() -> PathBuf {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    BUILT.get_or_init(build).path().to_owned()
}

#[expect(clippy::disallowed_methods, reason = "a compiler, in tests only")]
fn build() -> tempfile::TempDir {
    let folder = tempfile::Builder::new()
        .prefix("atoll-guest")
        .tempdir()
        .expect("a temporary folder");
    let source = folder.path().join("guest.rs");
    std::fs::write(&source, include_str!("guest.rs")).expect("the guest's source is written");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--edition", "2024", "-O", "-C", "target-feature=+crt-static", "-o"]);
    let built = command
        .arg(folder.path().join("agent"))
        .arg(&source)
        .output()
        .expect("rustc runs");
    assert!(
        built.status.success(),
        "the guest does not build: {}",
        String::from_utf8_lossy(&built.stderr)
    );
    std::fs::remove_file(source).expect("the source is removed");
    folder
}
