//! Helper: builds a library for C, and finds the address sanitizer of the C compiler.
//!
//! Cargo builds no `cdylib` for tests, so a nested call of Cargo does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the C library of a package in the profile of the running test, and returns the directory
/// that it is in.
///
/// # Panics
/// If it cannot be built.
#[must_use]
pub fn build(package: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap_or_else(|error| panic!("no program: {error}"));
    // target/PROFILE/deps/test
    let Some(directory) = program.ancestors().nth(2) else { panic!("{}", program.display()) };
    let profile = match directory.file_name() {
        Some(name) if name != "debug" => name.to_owned(),
        _ => "dev".into(),
    };
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", package, "--profile"]).arg(profile);
    build.arg("--target-dir").args(directory.parent());
    build.current_dir(env!("CARGO_MANIFEST_DIR"));
    let built = build.status().unwrap_or_else(|error| panic!("{build:?}: {error}"));
    assert!(built.success(), "{build:?}: {built}");
    directory.to_owned()
}

/// Whether the C compiler can make and run programs with the address sanitizer; `scratch` is a
/// directory for the attempt.
#[must_use]
pub fn has_address_sanitizer(scratch: &Path) -> bool {
    let (source, program) = (scratch.join("empty.c"), scratch.join("empty"));
    let mut compile = compiler();
    compile.arg("-fsanitize=address").arg(&source).arg("-o").arg(&program);
    fs::write(&source, "int main(void) { return 0; }\n").is_ok()
        && compile.output().is_ok_and(|compiled| compiled.status.success())
        && Command::new(&program).output().is_ok_and(|ran| ran.status.success())
}

/// The C compiler, with all warnings as errors.
#[must_use]
pub fn compiler() -> Command {
    let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g"]);
    compiler
}
