//! Builds the C library for tests, compiles C programs with it, and lists its functions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

use siltstone_testkit::c_library;

/// The directory of the crate.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directory of the library, which is built first.
pub(crate) fn library_directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| c_library::build("siltstone-c"))
}

/// Compiles a C program of the crate's directory.
pub(crate) fn compile(source: &str, program: &Path, flags: &[&str]) -> Output {
    let library = library_directory();
    c_library::compiler()
        .arg("-I")
        .arg(root().join("include"))
        .args(flags)
        .arg(root().join(source))
        .arg("-o")
        .arg(program)
        .arg("-L")
        .arg(library)
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .args(["-lsiltstone", "-lpthread"])
        .output()
        .unwrap()
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
