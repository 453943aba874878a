//! Compiles the C programs of this directory and the example with the C compiler, and runs them,
//! also under the address sanitizer where the compiler has it.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::Path;
use std::process::Command;

use library::{compile, header_functions, root};
use siltstone_testkit::c_library;

mod library;

/// Compiles and runs a program in both ways; it must print `expected` at the end.
fn run(source: &str, arguments: impl Fn(&Path) -> Vec<String>, expected: &str) {
    let scratch = tempfile::tempdir().unwrap();
    let mut variants = vec![vec![]];
    if c_library::has_address_sanitizer(scratch.path()) {
        variants.push(vec!["-fsanitize=address"]);
    } else {
        eprintln!("the compiler has no address sanitizer: {source} runs without it");
    }
    for (number, flags) in variants.iter().enumerate() {
        let [program, directory] =
            ["program", "dir"].map(|name| scratch.path().join(format!("{name}{number}")));
        compile(source, &program, flags);
        fs::create_dir(&directory).unwrap();
        let text = c_library::run(Command::new(&program).args(arguments(&directory)));
        assert!(text.ends_with(expected), "{source} {flags:?}: {text}");
    }
}

fn directory(directory: &Path) -> Vec<String> {
    vec![directory.display().to_string()]
}

#[test]
fn every_function_works_and_rejects_wrong_arguments() {
    run("tests/api.c", directory, "ok\n");
}

#[test]
fn ranges_merges_and_bulk_loads_work() {
    run("tests/tables.c", directory, "ok\n");
}

#[test]
fn changes_are_followed_and_applied_elsewhere() {
    run("tests/changes.c", directory, "ok\n");
}

#[test]
fn several_tables_are_read_and_written_as_of_one_moment() {
    run("tests/several.c", directory, "ok\n");
}

#[test]
fn callbacks_of_the_program_merge_and_listen() {
    run("tests/callbacks.c", directory, "ok\n");
}

#[test]
fn damage_is_reported_and_repaired() {
    run("tests/damage.c", directory, "ok\n");
}

#[test]
fn example_shortens_addresses() {
    run("examples/shortener.c", directory, "https://example.org/a/long/address visited 2 times\n");
}

#[test]
fn example_counts_visits() {
    run("examples/languages.c", directory, "c 1\n");
}

#[test]
fn api_test_calls_every_function_of_the_header() {
    let files =
        ["api.c", "callbacks.c", "changes.c", "check.h", "damage.c", "several.c", "tables.c"];
    let read = |name: &&str| fs::read_to_string(root().join("tests").join(name)).unwrap();
    let program: String = files.iter().map(read).collect();
    for name in header_functions() {
        assert!(program.contains(&format!("{name}(")), "no test calls {name}");
    }
}
