//! Finds the `siltstone` program.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The package of the program.
const PACKAGE: &str = "siltstone-cli";

/// The program beside `harness`: in its directory, or in the parent, because tests are in `deps`.
///
/// # Errors
/// The program is missing; the error has an instruction.
pub fn beside(harness: &Path) -> Result<PathBuf, String> {
    let places: Vec<_> =
        harness.ancestors().skip(1).take(2).map(|dir| dir.join("siltstone")).collect();
    places.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        format!(
            "there is no program siltstone in {}: build it with `cargo build -p {PACKAGE}` (with --release for \
             a release), or name one with --siltstone",
            harness.parent().unwrap_or(Path::new(".")).display()
        )
    })
}

/// The program beside `harness`. Under `cargo run` this builds it first, so that it is never older
/// than its sources.
///
/// # Errors
/// The build fails, or the program is missing.
pub fn built_beside(harness: &Path) -> Result<PathBuf, String> {
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut build = Command::new(cargo);
        build.args(["build", "-p", PACKAGE]);
        if harness.components().any(|part| part.as_os_str() == "release") {
            build.arg("--release");
        }
        let built = build.status().map_err(|error| format!("cannot run cargo: {error}"))?;
        if !built.success() {
            return Err(format!("cargo cannot build {PACKAGE}"));
        }
    }
    beside(harness)
}
