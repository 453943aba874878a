//! The crates below a program that has `lsm` alone.

use std::collections::BTreeSet;
use std::process::Command;

const MAX_CRATES: usize = 25;

#[test]
fn lsm_alone_stays_within_its_number_of_crates() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--package", "siltstone", "--no-default-features", "--features", "lsm"]);
    cargo.args(["--edges", "normal", "--prefix", "none", "--offline"]);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let crates: BTreeSet<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains("siltstone-lsm") && !crates.contains("siltstone-silt"), "{crates:?}");
    assert!(crates.len() <= MAX_CRATES, "{} crates: {crates:?}", crates.len());
}
