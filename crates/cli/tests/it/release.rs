//! The files of a release: `packaging/release`, the metadata for cargo-binstall, and the workflows
//! of `.github` agree with one another.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

/// The target of this machine, which the program is built for.
fn target() -> String {
    let output = Command::new("rustc").arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

/// Metadata for cargo-binstall, with the values of this program in its templates.
fn binstall(field: &str, target: &str) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let cli = packages.iter().find(|package| package["name"] == env!("CARGO_PKG_NAME")).unwrap();
    let template = cli["metadata"]["binstall"][field].as_str().unwrap();
    let values = [
        ("repo", "REPO"),
        ("version", env!("CARGO_PKG_VERSION")),
        ("target", target),
        ("bin", "siltstone"),
    ];
    let fill =
        |text: String, (name, value): &(&str, &str)| text.replace(&format!("{{ {name} }}"), value);
    values.iter().fold(template.to_owned(), fill)
}

#[test]
fn archive_of_a_release_is_where_binstall_looks_for_it() {
    let tools = ["dpkg-deb", "readelf", "strip", "tar", "git"];
    if tools.iter().any(|tool| Command::new(tool).arg("--version").output().is_err()) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let target = target();
    let pack = |directory: &str| {
        let output = Command::new(root().join("packaging/release/pack"))
            .arg(env!("CARGO_BIN_EXE_siltstone"))
            .arg(&target)
            .arg(scratch.path().join(directory))
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .envs([("DPKG_DEB_COMPRESSOR_TYPE", "gzip"), ("DPKG_DEB_COMPRESSOR_LEVEL", "1")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let names = pack("once");
    let archive = binstall("pkg-url", &target).rsplit('/').next().unwrap().to_owned();
    assert_eq!(names.lines().next(), Some(&*archive));
    let files: Vec<_> = names.lines().map(|name| scratch.path().join("once").join(name)).collect();
    assert!(files.len() == 2 && files.iter().all(|file| file.is_file()), "{names}");

    let unpack =
        Command::new("tar").arg("-xzf").arg(&files[0]).arg("-C").arg(scratch.path()).status();
    assert!(unpack.unwrap().success());
    let program = scratch.path().join(binstall("bin-dir", &target));
    let version = Command::new(&program).arg("--version").output().unwrap();
    assert_eq!(
        String::from_utf8(version.stdout).unwrap().trim_end(),
        format!("siltstone {}", env!("CARGO_PKG_VERSION"))
    );
    let directory = program.parent().unwrap();
    for file in ["LICENSE-MIT", "man/siltstone.1", "completions/siltstone.bash"] {
        assert!(directory.join(file).is_file(), "{file}");
    }
    let crates = fs::read_to_string(directory.join("CRATES")).unwrap();
    assert!(crates.lines().any(|line| line.starts_with("siltstone-lsm v")), "{crates}");
    let sources = root().canonicalize().unwrap().display().to_string();
    assert!(
        !crates.contains(&sources) && crates.lines().all(|line| line.contains('|')),
        "{crates}"
    );

    // Equal input gives equal bytes.
    pack("again");
    for name in names.lines() {
        let [once, again] =
            ["once", "again"].map(|of| fs::read(scratch.path().join(of).join(name)).unwrap());
        assert!(once == again, "{name} differs from itself");
    }
}

#[test]
fn workflows_build_and_check_each_target_with_the_scripts() {
    let release = read(".github/workflows/release.yml");
    for needed in [
        "packaging/release/build ${{ matrix.target }} dist",
        "packaging/release/check dist",
        "target: x86_64-unknown-linux-gnu",
        "target: aarch64-unknown-linux-gnu",
        "cosign sign-blob --yes --bundle SHA256SUMS.sigstore.json SHA256SUMS",
    ] {
        assert!(release.contains(needed), "{needed}");
    }
    assert!(read(".github/workflows/ci.yml").contains("- run: .ci/run\n"));
    // Every script that a workflow runs is there.
    for workflow in ["ci.yml", "release.yml"] {
        let text = read(&format!(".github/workflows/{workflow}"));
        let scripts = text
            .split_whitespace()
            .filter(|word| word.starts_with("packaging/") || word.starts_with(".ci/"));
        for script in scripts {
            assert!(root().join(script).is_file(), "{workflow}: {script}");
        }
    }
    // What the page says about the signature is what the workflow makes.
    let page = read("docs/src/operations/installing.md");
    for name in ["SHA256SUMS.sigstore.json", ".github/workflows/release.yml@refs/tags/v"] {
        assert!(page.contains(name), "{name}");
    }
}
