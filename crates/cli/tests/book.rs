//! The book's commands print what the book shows, and its links have targets.
//!
//! Blocks of kind `console` are run, chapter by chapter, each chapter in its own directory, and
//! the output must match: `$ ` begins a command, `> ` continues it, the rest is output. A `…` in a
//! line of output matches anything, a line with only `…` any lines. Blocks of kind `console,long`
//! would take too long to run: the program must accept every `siltstone` line in them and in the
//! README.
//!
//! `SILTSTONE_BOOK=write cargo test -p siltstone-cli --test book` writes changed output into the
//! book; review the difference before you commit it.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod console_blocks;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use console_blocks::{Block, Session, blocks, matches, words};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every chapter of the book, the README and its companions.
fn texts() -> Vec<(PathBuf, String)> {
    let mut files: Vec<PathBuf> = Vec::new();
    collect(&root().join("docs/src"), "md", &mut files);
    assert!(files.len() > 10, "only {} chapters were found", files.len());
    files.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    files.into_iter().map(|file| (file.clone(), fs::read_to_string(file).unwrap())).collect()
}

fn collect(directory: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, extension, files);
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
}

/// The parts of the text between `open` and `close`.
fn between<'t>(text: &'t str, open: &'t str, close: char) -> impl Iterator<Item = &'t str> {
    text.split(open).skip(1).filter_map(move |rest| rest.split(close).next())
}

/// The text without its fenced blocks, which have no links.
fn prose(text: &str) -> String {
    text.split("\n```").step_by(2).collect()
}

/// The anchors of a chapter's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text);
    let headings = headings.lines().filter_map(|line| line.strip_prefix('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_have_targets() {
    let mut checked = 0;
    for (file, text) in texts() {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        for target in between(&prose(&text), "](", ')') {
            if target.starts_with("http") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match path {
                "" => file.clone(),
                path => file.parent().unwrap().join(path),
            };
            assert!(path.exists(), "{name}: no file for the link to {target}");
            let is_in_the_book = path.canonicalize().unwrap().starts_with(root().join("docs/src"));
            let is_built = !name.starts_with("docs/") || is_in_the_book;
            assert!(is_built, "{name}: {target} is outside of the book: name it without a link");
            if !anchor.is_empty() {
                let anchors = anchors(&fs::read_to_string(&path).unwrap());
                assert!(anchors.contains(anchor), "{name}: no heading for {target}: {anchors:?}");
            }
            checked += 1;
        }
    }
    assert!(checked > 30, "only {checked} links were found");
}

#[test]
fn files_named_in_the_book_exist() {
    let mut checked = 0;
    for (file, text) in texts() {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        for path in between(&prose(&text), "`", '`') {
            let is_path = ["crates/", "experiments/", "fuzz/", "docs/", ".ci/"]
                .iter()
                .any(|d| path.starts_with(d));
            if is_path && !path.contains(['<', '*', ' ', '…']) {
                assert!(root().join(path).exists(), "{name}: there is no {path}");
                checked += 1;
            }
        }
        for include in between(&text, "{{#include ", '}') {
            let (path, anchor) = include.split_once(':').unwrap_or((include, ""));
            let path = file.parent().unwrap().join(path);
            let included = fs::read_to_string(&path)
                .unwrap_or_else(|e| panic!("{name}: cannot include {include}: {e}"));
            let has = |what: &str| {
                let mark = format!("{what}: {anchor}");
                included.lines().any(|line| line.trim_end_matches(" -->").ends_with(&mark))
            };
            assert!(anchor.is_empty() || has(" ANCHOR") && has(" ANCHOR_END"), "{name}: {include}");
            checked += 1;
        }
    }
    assert!(checked > 30, "only {checked} files were named");
}

#[test]
fn chapters_are_in_the_summary_and_pictures_in_a_chapter() {
    let source = root().join("docs/src");
    let summary = fs::read_to_string(source.join("SUMMARY.md")).unwrap();
    let named: BTreeSet<PathBuf> = between(&summary, "](", ')').map(|p| source.join(p)).collect();
    let mut files = Vec::new();
    collect(&source, "md", &mut files);
    files.retain(|file| !file.ends_with("SUMMARY.md"));
    assert_eq!(named, files.into_iter().collect());

    let mut pictures = Vec::new();
    collect(&source, "svg", &mut pictures);
    assert!(!pictures.is_empty());
    let texts = texts();
    for picture in pictures {
        let name = picture.file_name().unwrap().to_str().unwrap();
        assert!(texts.iter().any(|(_, text)| text.contains(name)), "no chapter shows {name}");
    }
}

#[test]
fn command_lines_are_accepted_by_the_program() {
    let mut checked = 0;
    for (file, text) in texts() {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        let mut typed: Vec<String> = between(&prose(&text), "`", '`')
            .filter(|code| code.starts_with("siltstone ") && !code.contains('…'))
            .map(|code| code.replace('\n', " "))
            .collect();
        for block in blocks(&text) {
            let lines: Vec<&str> = match block.kind.as_str() {
                "console" | "console,long" => {
                    block.commands.iter().map(|c| c.line.as_str()).collect()
                }
                // The README's blocks have no kind and no prompt.
                "" => block.body.lines().collect(),
                _ => continue,
            };
            typed.push(lines.join("\n").replace("\\\n", " "));
        }
        for mut line in typed.iter().flat_map(|typed| words(typed)) {
            let is_placeholder = |word: &String| word == "COMMAND";
            if line.first().is_none_or(|word| word != "siltstone")
                || line.iter().any(is_placeholder)
            {
                continue;
            }
            // Arguments are checked before `--help` is.
            line.push("--help".to_owned());
            let output = Command::new(env!("CARGO_BIN_EXE_siltstone")).args(&line[1..]).output();
            let output = output.unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {}\n{error}", line.join(" "));
            checked += 1;
        }
    }
    assert!(checked > 60, "only {checked} command lines were found");
}

#[test]
fn program_prints_what_the_book_shows() {
    let writes = std::env::var("SILTSTONE_BOOK").is_ok_and(|value| value == "write");
    let mut wrong = Vec::new();
    let mut run = 0;
    for (file, text) in texts() {
        let of_kind = |block: &Block| block.kind == "console";
        let blocks: Vec<Block> = blocks(&text).into_iter().filter(of_kind).collect();
        if blocks.is_empty() {
            continue;
        }
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        let mut session = Session::new(Path::new(env!("CARGO_BIN_EXE_siltstone")));
        let mut updated = text.clone();
        for block in &blocks {
            let mut body = String::new();
            for command in &block.commands {
                let mut output = command.output.clone();
                if let Some(printed) = session.run(command) {
                    run += 1;
                    if !matches(&command.output, &printed) {
                        wrong.push(format!(
                            "{name}: $ {}\n--- the book shows\n{}--- printed\n{printed}",
                            command.line, command.output
                        ));
                        output = printed;
                    }
                } else {
                    println!("skipped, because a program is missing: {}", command.line);
                }
                body.push_str(&command.shown);
                body.push_str(&output);
            }
            updated = updated.replacen(&block.body, &body, 1);
        }
        if writes && updated != text {
            fs::write(&file, updated).unwrap();
        }
    }
    assert!(run > 40, "only {run} commands were run");
    assert!(wrong.is_empty(), "{} of {run} commands:\n{}", wrong.len(), wrong.join("\n"));
}
