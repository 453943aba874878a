//! Does the book say what the program does, and do its links lead somewhere?
//!
//! Blocks of the kind `console` are run, chapter by chapter, each in a directory of its own, and what is
//! printed must be what stands there: `$ ` begins a command, `> ` goes on with it, the rest is output.
//! A `…` in a line of output stands for anything, a line of nothing else for any lines. Blocks of the
//! kind `console,long` would take too long: of them, and of the README's, every `siltstone` line must
//! be one that the program understands.
//!
//! `SILTSTONE_BOOK=write cargo test -p siltstone-cli --test keeps_the_book_true` writes what was printed
//! into the book where it differs; look at the difference before you commit it.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod book;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use book::{Block, Session, blocks, matches, words};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every file of the book's text, and what the README and its companions say.
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

/// What stands between `open` and `close`, wherever it does.
fn between<'t>(text: &'t str, open: &'t str, close: char) -> impl Iterator<Item = &'t str> {
    text.split(open).skip(1).filter_map(move |rest| rest.split(close).next())
}

/// The text without its fenced blocks, in which nothing is a link.
fn prose(text: &str) -> String {
    text.split("\n```").step_by(2).collect()
}

/// The anchors that a chapter's headings make.
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
fn do_links_lead_somewhere() {
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
fn are_the_files_there_that_the_book_names() {
    let mut checked = 0;
    for (file, text) in texts() {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        for path in between(&prose(&text), "`", '`') {
            let is_path = ["crates/", "fuzz/", "docs/", ".ci/"].iter().any(|d| path.starts_with(d));
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
fn are_all_chapters_in_the_summary_and_all_pictures_in_a_chapter() {
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
fn does_the_program_understand_every_command_line() {
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
                // The README's blocks are of no kind, and have no prompt.
                "" => block.body.lines().collect(),
                _ => continue,
            };
            typed.push(lines.join("\n").replace("\\\n", " "));
        }
        for mut line in typed.iter().flat_map(|typed| words(typed)) {
            let stands_for_any = |word: &String| word == "COMMAND";
            if line.first().is_none_or(|word| word != "siltstone")
                || line.iter().any(stands_for_any)
            {
                continue;
            }
            // What comes before the word is looked at first, so that a mistake is told.
            line.push("--help".to_owned());
            let output = Command::new(env!("CARGO_BIN_EXE_siltstone")).args(&line[1..]).output();
            let output = output.unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {}\n{said}", line.join(" "));
            checked += 1;
        }
    }
    assert!(checked > 60, "only {checked} command lines were found");
}

#[test]
fn does_the_program_print_what_the_book_says() {
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
        let mut mended = text.clone();
        for block in &blocks {
            let mut body = String::new();
            for command in &block.commands {
                let mut output = command.output.clone();
                if let Some(printed) = session.run(command) {
                    run += 1;
                    if !matches(&command.output, &printed) {
                        wrong.push(format!(
                            "{name}: $ {}\n--- the book says\n{}--- printed\n{printed}",
                            command.line, command.output
                        ));
                        output = printed;
                    }
                } else {
                    println!("skipped, for want of a program: {}", command.line);
                }
                body.push_str(&command.shown);
                body.push_str(&output);
            }
            mended = mended.replacen(&block.body, &body, 1);
        }
        if writes && mended != text {
            fs::write(&file, mended).unwrap();
        }
    }
    assert!(run > 40, "only {run} commands were run");
    assert!(wrong.is_empty(), "{} of {run} commands:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn does_the_book_have_every_option_of_every_engine() {
    let refusal = |more: &[&str]| {
        let arguments = [&["bench", "--workload", "fillseq"], more].concat();
        let output = Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output();
        String::from_utf8(output.unwrap().stderr).unwrap()
    };
    let chapter = fs::read_to_string(root().join("docs/src/options.md")).unwrap();
    let engines = refusal(&["--engine", "no_such"]);
    let listed = |said: &str, after: &str| {
        let names = said.split(after).nth(1).unwrap().split(')').next().unwrap();
        names.split(", ").map(str::to_owned).collect::<Vec<_>>()
    };
    let engines = listed(&engines, "there are ");
    assert!(engines.contains(&"lsm".to_owned()), "{engines:?}");
    for engine in engines {
        let said = refusal(&["--engine", &engine, "--option", "no_such=1"]);
        let included = format!("crates/{engine}/src/options.rs");
        assert!(
            chapter.contains(&format!("{included}:options")),
            "docs/src/options.md leaves out the engine {engine}: put '// ANCHOR: options' and '// \
             ANCHOR_END: options' around its options and include them there"
        );
        let source = fs::read_to_string(root().join(&included)).unwrap();
        let told = source.split("ANCHOR: options").nth(1).unwrap();
        let told = told.split("ANCHOR_END: options").next().unwrap();
        for option in listed(&said, "the options are ") {
            assert!(told.contains(&format!("`{option}`")), "{included} does not tell of {option}");
        }
    }
}
