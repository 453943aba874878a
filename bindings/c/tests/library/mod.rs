//! Compiles C programs with the library, and lists its functions.

use std::fs;
use std::path::Path;

use siltstone_testkit::c_library;

/// The directory of the crate.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles a C program of the crate's directory.
pub(crate) fn compile(source: &str, program: &Path, flags: &[&str]) {
    let include = format!("-I{}", root().join("include").display());
    c_library::compile("siltstone", &root().join(source), program, &[flags, &[&include]].concat());
}

/// The names of all functions of the header.
pub(crate) fn header_functions() -> Vec<String> {
    let header = fs::read_to_string(root().join("include/siltstone.h")).unwrap();
    let lines =
        header.lines().filter(|line| !line.starts_with(" *") && !line.starts_with("typedef"));
    let names: Vec<_> = lines
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("siltstone_"))
        .map(str::to_owned)
        .collect();
    assert!(names.len() > 70, "only {} functions were found", names.len());
    names
}
