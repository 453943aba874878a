//! Checks that the committed header is the one that cbindgen makes from the sources.
//! `UPDATE=1` writes it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

#[test]
fn header_is_generated_from_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut generated = Vec::new();
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    cbindgen::Builder::new()
        .with_crate(root)
        .with_config(config)
        .generate()
        .unwrap()
        .write(&mut generated);
    let generated = String::from_utf8(generated).unwrap();
    let path = root.join("include/siltstone.h");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap() == generated,
        "include/siltstone.h is not up to date: UPDATE=1 cargo test -p siltstone-c --test header"
    );
}
