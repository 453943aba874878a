//! Do the arrows between crates point downwards, and is all unsafe code listed?

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// The rooms, from the ground up: a crate may use only what stands in a row before its own.
const ROWS: &[&[&str]] = &[
    &["engine"],
    &["vfs", "structures", "model"],
    &["table", "testkit"],
    &["lsm", "mica", "silt", "skimpy", "trie"],
    &["siltstone", "client"],
    &["server", "lab"],
    &["cli"],
    &["torture"],
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn row(name: &str) -> usize {
    ROWS.iter()
        .position(|row| row.contains(&name))
        .unwrap_or_else(|| panic!("{name} has no place in the house: give it one in this test"))
}

/// The crates of ours that stand in the manifest's `[dependencies]`.
fn dependencies(manifest: &str) -> Vec<&str> {
    let section = manifest.split("\n[").find(|section| section.starts_with("dependencies]"));
    let ours = section.unwrap_or_default().lines().filter_map(|line| line.split_once(".workspace"));
    let ours = ours.map(|(name, _)| name).filter(|name| name.starts_with("siltstone"));
    ours.map(|name| name.strip_prefix("siltstone-").unwrap_or(name)).collect()
}

#[test]
fn arrows_point_downwards() {
    let mut checked = 0;
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
        for used in dependencies(&manifest) {
            assert!(row(used) < row(&name), "{name} uses {used}, which does not stand below it");
            checked += 1;
        }
    }
    assert!(checked > 10, "only {checked} arrows were found");
}

#[test]
fn all_unsafe_code_is_listed() {
    let listed = fs::read_to_string(root().join("UNSAFE.md")).unwrap();
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        collect(&entry.unwrap().path().join("src"), &mut files);
    }
    let mut found = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let is_unsafe =
            ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|word| text.contains(word));
        if is_unsafe {
            let path = file.to_str().unwrap().split("/../../").last().unwrap().to_owned();
            let is_listed = path
                .match_indices('/')
                .any(|(end, _)| listed.contains(&format!("`{}/`", &path[..end])));
            assert!(
                is_listed || listed.contains(&format!("`{path}`")),
                "{path} is not in UNSAFE.md"
            );
            found += 1;
        }
    }
    assert!(found > 0, "no unsafe code was found at all");
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
