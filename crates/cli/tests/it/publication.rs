//! The crates that are published have what a registry and docs.rs show, and what their license asks
//! for. `cargo publish --workspace --dry-run` also compiles each crate from its package.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The packages with this many bytes and more are refused by crates.io.
const MAX_PACKAGE_BYTES: u64 = 10 << 20;
const TEST_CRATES: [&str; 3] = ["siltstone-faults", "siltstone-testkit", "siltstone-torture"];

fn cargo(arguments: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).arg("--offline").current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn public_crates_can_be_published() {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let all = metadata["packages"].as_array().unwrap();
    // `publish` is an empty list for a crate that is not published, and null for others.
    let (public, private): (Vec<_>, Vec<_>) =
        all.iter().partition(|package| package["publish"].is_null());
    assert!(public.len() > 15, "{}", public.len());
    let text = |package: &Value, field: &str| package[field].as_str().unwrap_or("").to_owned();
    let private: Vec<_> = private.iter().map(|package| text(package, "name")).collect();
    assert!(TEST_CRATES.iter().all(|name| private.iter().any(|it| it == name)), "{private:?}");
    // The files of all packages, one list after the other.
    let mut list = vec!["package", "--list", "--allow-dirty", "--workspace"];
    list.extend(private.iter().flat_map(|name| ["--exclude", name]));
    let files = cargo(&list);
    for file in ["README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        let count = files.lines().filter(|listed| *listed == file).count();
        assert_eq!(count, public.len(), "packages with {file}: see cargo package --list");
    }
    let files: BTreeSet<_> = files.lines().collect();
    for package in public {
        let name = text(package, "name");
        assert!(name == "siltstone" || name.starts_with("siltstone-"), "{name}");
        let description = text(package, "description");
        assert!((10..=120).contains(&description.len()), "{name}: description '{description}'");
        assert_eq!(text(package, "license"), "MIT OR Apache-2.0", "{name}");
        assert!(!text(package, "rust_version").is_empty(), "{name} has no rust-version");
        for field in ["keywords", "categories"] {
            let count = package[field].as_array().unwrap().len();
            assert!((1..=5).contains(&count), "{name}: {count} {field}");
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let of = text(dependency, "name");
            // Cargo leaves dependencies of tests without a version out of the package.
            let is_for_tests = dependency["kind"] == "dev";
            let has_version = dependency["req"] != "*";
            assert!(has_version || is_for_tests, "{name} needs a version of {of}");
            assert!(!has_version || !private.contains(&of), "{name} needs {of}, which is private");
        }
        let root = text(package, "manifest_path");
        let root = Path::new(&root).parent().unwrap();
        let bytes = files.iter().filter_map(|file| Some(root.join(file).metadata().ok()?.len()));
        // Files that it excludes and another package has count, too.
        let bytes: u64 = bytes.sum();
        assert!(bytes < MAX_PACKAGE_BYTES, "{name}: {bytes} bytes");
    }
}
