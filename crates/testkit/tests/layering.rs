//! Checks that crates depend only on lower layers and that UNSAFE.md lists all unsafe code.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// The crates by layer, lowest first. A crate may depend only on crates of lower layers.
const LAYERS: &[&[&str]] = &[
    &["engine"],
    &["runtime"],
    &["vfs", "structures", "model"],
    &["table", "faults"],
    &["testkit", "durable"],
    &["lsm", "mica", "silt", "skimpy", "trie"],
    &["siltstone", "client", "cluster"],
    &["collections"],
    &["rdb"],
    &["server", "bench", "backup"],
    &["cli"],
    &["torture"],
];

/// Crates for tests: a product crate may have them only as dev-dependencies.
const TEST_CRATES: &[&str] = &["faults", "testkit", "torture"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn layer(name: &str) -> usize {
    LAYERS
        .iter()
        .position(|layer| layer.contains(&name))
        .unwrap_or_else(|| panic!("crate {name} has no layer: add it to LAYERS in this test"))
}

/// The crates of the workspace in the `[dependencies]` of a manifest.
fn dependencies(manifest: &str) -> Vec<&str> {
    let section = manifest.split("\n[").find(|section| section.starts_with("dependencies]"));
    let names =
        section.unwrap_or_default().lines().filter_map(|line| line.split_once(".workspace"));
    let names = names.map(|(name, _)| name).filter(|name| name.starts_with("siltstone"));
    names.map(|name| name.strip_prefix("siltstone-").unwrap_or(name)).collect()
}

/// The manifests of all crates, by the crate's directory name.
fn manifests() -> Vec<(String, String)> {
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path.join("Cargo.toml")).unwrap())
    };
    crates.map(read).collect()
}

#[test]
fn dependencies_point_to_lower_layers() {
    let mut checked = 0;
    for (name, manifest) in manifests() {
        for dependency in dependencies(&manifest) {
            assert!(
                layer(dependency) < layer(&name),
                "{name} depends on {dependency}, which is in no lower layer"
            );
            checked += 1;
        }
    }
    assert!(checked > 10, "only {checked} dependencies were found");
}

#[test]
fn product_crates_link_no_test_crate() {
    for (name, manifest) in manifests() {
        if TEST_CRATES.contains(&name.as_str()) {
            continue;
        }
        for dependency in dependencies(&manifest) {
            assert!(!TEST_CRATES.contains(&dependency), "{name} links the test crate {dependency}");
        }
    }
}

#[test]
fn bindings_depend_on_the_store_and_no_inner_crate() {
    let bindings =
        fs::read_dir(root().join("bindings")).unwrap().map(|entry| entry.unwrap().path());
    let mut checked = 0;
    for manifest in bindings.map(|path| path.join("Cargo.toml")).filter(|path| path.exists()) {
        let text = fs::read_to_string(&manifest).unwrap();
        let local: Vec<_> = text.lines().filter(|line| line.contains("path = \"../")).collect();
        let is_store = |line: &&str| line.contains("\"../../crates/siltstone\"");
        // The shims share a crate, and one has RocksDB's backup engine.
        let is_shared = |line: &&str| line.contains("\"../shim\"");
        let is_backup = |line: &&str| line.contains("\"../../crates/backup\"");
        let is_allowed = |line: &&str| {
            is_store(line)
                || is_shared(line)
                || (manifest.parent().is_some_and(|path| path.ends_with("rocksdb"))
                    && is_backup(line))
        };
        assert!(
            local.iter().filter(|line| is_store(line)).count() == 1 && local.iter().all(is_allowed),
            "{}: {local:?}",
            manifest.display()
        );
        // Tests build their libraries with the kit, and cut power.
        let is_for_tests = |line: &str| {
            ["siltstone-testkit", "siltstone-faults"].iter().any(|it| line.starts_with(it))
        };
        let inherited = text.lines().any(|line| {
            line.starts_with("siltstone") && line.contains(".workspace") && !is_for_tests(line)
        });
        assert!(!inherited, "{} depends on an inner crate", manifest.display());
        checked += 1;
    }
    assert!(checked > 0, "no binding was found");
}

#[test]
fn unsafe_code_is_listed_in_unsafe_md() {
    let listed = fs::read_to_string(root().join("UNSAFE.md")).unwrap();
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        collect(&entry.unwrap().path().join("src"), &mut files);
    }
    for entry in fs::read_dir(root().join("bindings")).unwrap() {
        collect(&entry.unwrap().path().join("src"), &mut files);
    }
    collect(&root().join("experiments/src"), &mut files);
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
    assert!(found > 0, "no unsafe code was found");
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
