//! Checks that the files of a crate import each other downwards: no circle of more than two files.
//!
//! An import is a `use`, or a path in the code, that begins with `crate`, `self`, `super` or a
//! child module. It counts for the file that defines the name: the imports and re-exports of the
//! module in the path are followed. A re-export (`pub use`) is not an import itself. Test modules
//! do not count.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The most files that may import each other in a circle.
const MAX_CIRCLE: usize = 2;
/// Imports followed for one name.
const MAX_FOLLOWED: usize = 8;

/// The path of a module inside its crate; the root is empty.
type Module = Vec<String>;

/// What a file imports, as paths of segments.
#[derive(Default)]
struct Source {
    imports: Vec<Vec<String>>,
    /// Names that a `use` brings into the module.
    names: BTreeMap<String, Vec<String>>,
}

/// The files of a crate.
struct Crate(BTreeMap<Module, Source>);

#[test]
fn no_crate_has_a_circle_of_many_files() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = 0;
    for entry in fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let sources = Crate::read(&path.join("src"));
        files += sources.0.len();
        let circles = sources.circles();
        assert!(
            circles.is_empty(),
            "files of crate {name} import each other in circles: {circles:?}; move what they \
             share into files below them"
        );
    }
    assert!(files > 300, "only {files} files were found");
}

#[test]
fn circle_over_a_reexport_is_found() {
    let files = [
        ("", "mod a; mod b; mod c; pub use a::First; fn run() { b::begin() }"),
        ("a", "use crate::b::Second; pub struct First; // use crate::d::No;"),
        ("b", "use super::{c::{self, Third as T}}; const S: &str = \"use crate::d::No;\";"),
        ("c", "fn f(x: crate::First) {} #[cfg(test)] mod tests { use crate::d::No; }"),
        ("d", "use crate::a::First; use crate::c::Third;"),
    ];
    let circles = Crate::of(files.map(|(name, text)| (name.to_owned(), text.to_owned()))).circles();
    assert_eq!(circles, [["a", "b", "c"]]);
}

#[test]
fn two_files_may_import_each_other() {
    let files = [("", "mod a; mod b;"), ("a", "use crate::b::B;"), ("b", "use super::a::A;")];
    let circles = Crate::of(files.map(|(name, text)| (name.to_owned(), text.to_owned()))).circles();
    assert!(circles.is_empty(), "{circles:?}");
}

impl Crate {
    /// Reads the files below `src`.
    fn read(src: &Path) -> Self {
        let mut files = Vec::new();
        collect(src, src, &mut files);
        // A program beside a library is a crate of its own.
        if files.iter().any(|(name, _)| name == "lib") {
            files.retain(|(name, _)| name != "main");
        }
        Self::of(files.into_iter().map(|(name, text)| {
            let name = name.strip_suffix("mod").map_or(name.as_str(), |n| n.trim_end_matches("::"));
            (if ["lib", "main"].contains(&name) { String::new() } else { name.to_owned() }, text)
        }))
    }

    /// The files of these modules and texts.
    fn of(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let module = |name: String| name.split("::").map(str::to_owned).collect::<Module>();
        let files = files.into_iter();
        Crate(
            files
                .map(|(name, text)| {
                    let module = if name.is_empty() { Vec::new() } else { module(name) };
                    (module, Source::parse(&text))
                })
                .collect(),
        )
    }

    /// The sets of more than [`MAX_CIRCLE`] files that reach each other, each in order.
    fn circles(&self) -> Vec<Vec<String>> {
        let imported = |from: &Module| -> BTreeSet<Module> {
            let paths = self.0[from].imports.iter();
            paths.filter_map(|path| self.resolve(from, path)).filter(|to| to != from).collect()
        };
        let imports: BTreeMap<&Module, BTreeSet<Module>> =
            self.0.keys().map(|file| (file, imported(file))).collect();
        let reached = |file: &Module| {
            let (mut reached, mut open) = (BTreeSet::new(), vec![file.clone()]);
            while let Some(next) = open.pop() {
                open.extend(
                    imports[&next].iter().filter(|to| reached.insert((*to).clone())).cloned(),
                );
            }
            reached
        };
        let reached: BTreeMap<&Module, BTreeSet<Module>> =
            self.0.keys().map(|file| (file, reached(file))).collect();
        let mut circles = BTreeSet::new();
        for (file, others) in &reached {
            let circle = others.iter().filter(|other| reached[other].contains(*file));
            let circle: Vec<String> = circle.map(|module| module.join("::")).collect();
            if circle.len() > MAX_CIRCLE {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }

    /// The file that defines what `path` names in `module`; `None` outside of the crate.
    fn resolve(&self, module: &Module, path: &[String]) -> Option<Module> {
        let (mut base, mut path) = self.absolute(module, path)?;
        for _ in 0..MAX_FOLLOWED {
            while let Some(name) = path.first() {
                let mut child = base.clone();
                child.push(name.clone());
                if !self.0.contains_key(&child) {
                    break;
                }
                base = child;
                path.remove(0);
            }
            let Some(target) = path.first().and_then(|name| self.0[&base].names.get(name)) else {
                break;
            };
            let (next, mut rest) = self.absolute(&base, target)?;
            rest.extend(path.drain(1..));
            (base, path) = (next, rest);
        }
        Some(base)
    }

    /// A module and the rest of the path from there.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<(Module, Vec<String>)> {
        let mut base = module.clone();
        let first = path.first()?;
        let skipped = match first.as_str() {
            "crate" => {
                base.clear();
                1
            }
            "self" => 1,
            "super" => {
                let count = path.iter().take_while(|segment| *segment == "super").count();
                base.truncate(base.len().checked_sub(count)?);
                count
            }
            _ => {
                let mut child = base.clone();
                child.push(first.clone());
                self.0.contains_key(&child).then_some(0)?
            }
        };
        Some((base, path[skipped..].to_vec()))
    }
}

impl Source {
    fn parse(text: &str) -> Self {
        let tokens = tokens(&without_tests(&without_comments_and_strings(text)));
        let mut source = Source::default();
        let mut at = 0;
        let mut is_public = false;
        while at < tokens.len() {
            match tokens[at].as_str() {
                "pub" => {
                    is_public = true;
                    // `pub(crate)`
                    if tokens.get(at + 1).is_some_and(|token| token == "(") {
                        at += 3;
                    }
                }
                "use" if tokens.get(at + 1).is_some_and(|token| token != "<") => {
                    at += 1;
                    let mut paths = Vec::new();
                    use_tree(&tokens, &mut at, &[], &mut paths);
                    for (path, alias) in paths {
                        let name = alias.or_else(|| path.last().cloned()).unwrap_or_default();
                        if !is_public {
                            source.imports.push(path.clone());
                        }
                        source.names.insert(name, path);
                    }
                    is_public = false;
                }
                "::" => at += 1,
                _ => {
                    is_public = false;
                    let begin = at;
                    while tokens.get(at + 1).is_some_and(|token| token == "::")
                        && tokens.get(at + 2).is_some_and(|token| is_name(token))
                    {
                        at += 2;
                    }
                    if at > begin {
                        let path = tokens[begin..=at].iter().filter(|token| *token != "::");
                        source.imports.push(path.cloned().collect());
                    }
                }
            }
            at += 1;
        }
        source
    }
}

/// Parses a use tree from `at` on, up to the token behind it; appends its paths with their aliases.
fn use_tree(
    tokens: &[String],
    at: &mut usize,
    prefix: &[String],
    paths: &mut Vec<(Vec<String>, Option<String>)>,
) {
    let (mut path, mut alias, mut has_branches) = (prefix.to_vec(), None, false);
    while let Some(token) = tokens.get(*at) {
        match token.as_str() {
            "::" => {}
            "{" => {
                has_branches = true;
                *at += 1;
                while tokens.get(*at).is_some_and(|token| token != "}") {
                    use_tree(tokens, at, &path, paths);
                    if tokens.get(*at).is_some_and(|token| token == ",") {
                        *at += 1;
                    }
                }
            }
            "as" => {
                *at += 1;
                alias = tokens.get(*at).cloned();
            }
            // A glob, or the module itself, in braces.
            "*" => {}
            "self" if !path.is_empty() => {}
            name if is_name(name) => path.push(name.to_owned()),
            _ => break,
        }
        *at += 1;
    }
    if !has_branches {
        paths.push((path, alias));
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Names, `::`, and single characters.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_in_name = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            ':' if rest.starts_with("::") => 2,
            _ if is_in_name(first) => rest.find(|c| !is_in_name(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        tokens.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    tokens
}

/// The text up to its module of tests, which is the last item of a file.
fn without_tests(text: &str) -> String {
    let is_module = |at: usize| {
        let item = text[at..].split(['{', ';']).next().unwrap_or_default();
        item.split_whitespace().any(|word| word == "mod")
            && text[at + item.len()..].starts_with('{')
    };
    let mut tests = text.match_indices("#[cfg(").filter(|(at, _)| {
        text[*at..].lines().next().is_some_and(|line| line.contains("test")) && is_module(*at)
    });
    text[..tests.next().map_or(text.len(), |(at, _)| at)].to_owned()
}

fn without_comments_and_strings(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['/', '"', '\'']) {
        out.push_str(&rest[..at]);
        let found = &rest[at..];
        let length = if found.starts_with("//") {
            found.find('\n').unwrap_or(found.len())
        } else if found.starts_with('"') {
            let hashes = rest[..at].len() - rest[..at].trim_end_matches('#').len();
            let is_raw = rest[..at].trim_end_matches('#').ends_with('r');
            string_bytes(found, is_raw.then_some(hashes))
        } else if found.starts_with("'\"'") {
            3
        } else if let Some(escaped) = found.strip_prefix("'\\") {
            2 + escaped.find('\'').map_or(0, |end| end.max(1) + 1)
        } else {
            out.push_str(&found[..1]);
            1
        };
        rest = &found[length..];
    }
    out.push_str(rest);
    out
}

/// The length of a string literal from its first quote on; `hashes` of a raw one.
fn string_bytes(text: &str, hashes: Option<usize>) -> usize {
    if let Some(hashes) = hashes {
        let end = format!("\"{}", "#".repeat(hashes));
        return text[1..].find(&end).map_or(text.len(), |at| 1 + at + end.len());
    }
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            b'"' if !is_escaped => return at + 1,
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    text.len()
}

fn collect(root: &Path, directory: &Path, files: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let relative = path.strip_prefix(root).unwrap().with_extension("");
            let segments = relative.iter().map(|segment| segment.to_str().unwrap());
            let name = segments.collect::<Vec<_>>().join("::");
            files.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
}
