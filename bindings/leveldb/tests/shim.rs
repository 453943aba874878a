//! Compiles `shim.c` with the C compiler and runs it, also under the address sanitizer where the
//! compiler has it; checks the header and the names that the library exports.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::Path;
use std::process::Command;

use siltstone_testkit::c_library;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn run(flags: &[&str]) {
    let scratch = tempfile::tempdir().unwrap();
    let [program, directory] = ["shim", "databases"].map(|name| scratch.path().join(name));
    let include = format!("-I{}", root().join("include").display());
    let flags = [flags, &[&include]].concat();
    c_library::add_soname("leveldb", "libleveldb.so.1");
    c_library::compile("leveldb", &root().join("tests/shim.c"), &program, &flags);
    fs::create_dir(&directory).unwrap();
    let mut program = Command::new(&program);
    program.arg(&directory).env("TEST_TMPDIR", scratch.path().join("tmp"));
    assert_eq!(c_library::run(&mut program), "ok\n", "{flags:?}");
}

#[test]
fn every_function_works() {
    run(&[]);
}

#[test]
fn every_function_works_under_the_address_sanitizer() {
    let scratch = tempfile::tempdir().unwrap();
    if c_library::has_address_sanitizer(scratch.path()) {
        run(&["-fsanitize=address"]);
    } else {
        eprintln!("the compiler has no address sanitizer: skipped");
    }
}

/// The functions of LevelDB 1.23's header.
const FUNCTIONS: &str = "open close put delete write get create_iterator create_snapshot
    release_snapshot property_value approximate_sizes compact_range destroy_db repair_db iter_destroy
    iter_valid iter_seek_to_first iter_seek_to_last iter_seek iter_next iter_prev iter_key iter_value
    iter_get_error writebatch_create writebatch_destroy writebatch_clear writebatch_put
    writebatch_delete writebatch_iterate writebatch_append options_create options_destroy
    options_set_comparator options_set_filter_policy options_set_create_if_missing
    options_set_error_if_exists options_set_paranoid_checks options_set_env options_set_info_log
    options_set_write_buffer_size options_set_max_open_files options_set_cache options_set_block_size
    options_set_block_restart_interval options_set_max_file_size options_set_compression
    comparator_create comparator_destroy filterpolicy_create filterpolicy_destroy
    filterpolicy_create_bloom readoptions_create readoptions_destroy readoptions_set_verify_checksums
    readoptions_set_fill_cache readoptions_set_snapshot writeoptions_create writeoptions_destroy
    writeoptions_set_sync cache_create_lru cache_destroy create_default_env env_destroy
    env_get_test_directory free major_version minor_version";

#[test]
fn header_is_generated_from_the_sources_and_complete() {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let mut generated = Vec::new();
    cbindgen::Builder::new()
        .with_crate(root())
        .with_config(config)
        .generate()
        .unwrap()
        .write(&mut generated);
    let generated = String::from_utf8(generated).unwrap();
    let path = root().join("include/leveldb/c.h");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap() == generated,
        "include/leveldb/c.h is not up to date: UPDATE=1 cargo test -p siltstone-leveldb"
    );
    let program = fs::read_to_string(root().join("tests/shim.c")).unwrap();
    for function in FUNCTIONS.split_whitespace() {
        let call = format!("leveldb_{function}(");
        assert!(generated.contains(&call), "the header has no {call}");
        assert!(program.contains(&call), "no test calls {call}");
    }
    let declared = generated.lines().filter(|line| line.contains("(") && line.contains("leveldb_"));
    let declared =
        declared.filter(|line| !line.starts_with([' ', '/']) && !line.contains("typedef"));
    assert_eq!(declared.count(), FUNCTIONS.split_whitespace().count());
}
