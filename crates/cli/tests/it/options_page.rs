//! The book's page of options lists exactly the options that the program knows.
//!
//! The error message of an unknown option is the list to compare with.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use siltstone::OptionChange;
use siltstone::engines::{NAMES, deprecated_options, option_change};

const PAGE: &str = "docs/src/options.md";

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE)).unwrap()
}

/// The text below the heading `## heading`, up to the next one of the same level.
fn section<'t>(page: &'t str, heading: &str) -> &'t str {
    let mut sections = page.split("\n## ").skip(1);
    let found = sections.find_map(|text| text.strip_prefix(heading)?.strip_prefix('\n'));
    found.unwrap_or_else(|| panic!("{PAGE} has no section '## {heading}'"))
}

/// The cells of the rows whose first cell is code, i.e. not of headings.
fn rows(section: &str) -> Vec<Vec<String>> {
    let lines = section.lines().filter(|line| line.starts_with("| `"));
    let cells = |line: &str| -> Vec<String> {
        let inner = line.trim_matches('|').split('|');
        inner.map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
    };
    lines.map(cells).collect()
}

/// The options of an engine, as the message about an unknown one lists them.
fn known_options(engine: &str) -> BTreeSet<String> {
    let arguments = ["bench", "--workload", "fillseq", "--engine", engine, "--option", "no_such=1"];
    let output = Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    let listed = message.split("the options are ").nth(1).unwrap_or_else(|| panic!("{message}"));
    listed.split(')').next().unwrap().split(", ").map(str::to_owned).collect()
}

#[test]
fn tables_list_exactly_the_options_of_each_engine() {
    let page = page();
    for engine in NAMES {
        let rows = rows(section(&page, engine));
        let incomplete: Vec<_> = rows
            .iter()
            .filter(|cells| cells.len() != 6 || cells.iter().any(String::is_empty))
            .collect();
        assert!(incomplete.is_empty(), "{PAGE}, {engine}: rows without 6 cells: {incomplete:?}");
        for cells in &rows {
            let change = match option_change(engine, &cells[0]) {
                OptionChange::Live => "while open",
                OptionChange::AtOpen => "at open",
                OptionChange::Never => "never",
            };
            assert_eq!(cells[3], change, "{PAGE}, {engine}, {}", cells[0]);
        }
        let listed: Vec<_> = rows.into_iter().map(|cells| cells[0].clone()).collect();
        let distinct: BTreeSet<_> = listed.iter().cloned().collect();
        assert_eq!(listed.len(), distinct.len(), "{PAGE}, {engine}: an option is listed twice");
        assert_eq!(distinct, known_options(engine), "{PAGE}, {engine}");
    }
}

#[test]
fn old_names_equal_the_renamed_options() {
    let page = page();
    let rows = rows(section(&page, "Old names"));
    let listed: BTreeSet<Vec<&str>> =
        rows.iter().map(|row| row.iter().map(String::as_str).collect()).collect();
    let renamed: BTreeSet<Vec<&str>> = NAMES
        .iter()
        .flat_map(|engine| {
            deprecated_options(engine).iter().map(move |(old, new)| vec![*engine, *old, *new])
        })
        .collect();
    assert_eq!(listed, renamed, "{PAGE}, old names");
}
