//! Runs the tests of the packages for Go, Java and Node, the programs of their READMEs, and in C,
//! Go, Java and Node the program of the book's page "Other languages" on one store, and those that
//! `bindings/compare-languages` measures.
//!
//! A language whose tools are not installed is skipped, with a line on standard error; for Node
//! these are the packages of `npm install` too. Nothing is downloaded, and nothing is written into
//! the source tree.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use library::{compile, header_functions, root};
use siltstone_testkit::c_library::{self, run};

mod library;

const MIN_GO_MINOR: u32 = 23;
const MIN_JAVA: u32 = 22;
const MIN_NODE: u32 = 20;

fn bindings() -> &'static Path {
    root().parent().unwrap()
}

/// The first number in the output of a command; `None` if it cannot be run.
fn version(program: &Path, argument: &str, after: &str) -> Option<u32> {
    let output = Command::new(program).arg(argument).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let number = text.split_once(after)?.1;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The parts of a README's program: the program, and the output that it states.
fn quick_start(readme: &Path, language: &str) -> (String, String) {
    let text = fs::read_to_string(readme).unwrap();
    let block = |kind: &str| {
        let (_, rest) = text.split_once(&format!("```{kind}\n")).unwrap();
        rest.split_once("```\n").unwrap().0.to_owned()
    };
    (block(language), block("text"))
}

/// Whether Go is installed in a sufficient version.
fn has_go() -> bool {
    let is_sufficient =
        version(Path::new("go"), "version", "go1.").is_some_and(|minor| minor >= MIN_GO_MINOR);
    if !is_sufficient {
        eprintln!("there is no Go 1.{MIN_GO_MINOR} or later: its package is not tested");
    }
    is_sufficient
}

/// A Go command that finds the library. Go does not look at the header, so its hash is in the
/// flags.
fn go(directory: &Path) -> Command {
    let include = root().join("include");
    let mut hasher = DefaultHasher::new();
    fs::read(include.join("siltstone.h")).unwrap().hash(&mut hasher);
    let hash = hasher.finish();
    let mut go = Command::new("go");
    go.current_dir(directory)
        .env("CGO_CFLAGS", format!("-I{} -DHEADER_HASH={hash}", include.display()))
        .env("CGO_LDFLAGS", c_library::linker_flags("siltstone"))
        .env("GODEBUG", "cgocheck=1")
        .env("GOFLAGS", "-mod=mod")
        .env("GOPROXY", "off")
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off");
    go
}

/// Returns the command that runs a program.
type Program = Box<dyn Fn() -> Command>;

/// The directory of the programs of a Java development kit in a sufficient version.
fn java_tools() -> Option<PathBuf> {
    let mut homes: Vec<PathBuf> =
        std::env::var_os("JAVA_HOME").map(Into::into).into_iter().collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    homes.extend(std::env::split_paths(&path).filter_map(|bin| Some(bin.parent()?.to_owned())));
    let installed = fs::read_dir("/usr/lib/jvm").into_iter().flatten();
    homes.extend(installed.filter_map(|entry| Some(entry.ok()?.path())));
    let tools = homes.iter().map(|home| home.join("bin")).find(|tools| {
        version(&tools.join("javac"), "-version", "javac ").is_some_and(|major| major >= MIN_JAVA)
    });
    if tools.is_none() {
        eprintln!("there is no JDK {MIN_JAVA} or later: the package for Java is not tested");
    }
    tools
}

/// The Java package, compiled to a jar in a directory of its own.
struct Java {
    tools: PathBuf,
    directory: tempfile::TempDir,
}

impl Java {
    /// `None`: there is no Java.
    fn build() -> Option<Self> {
        let java = Java { tools: java_tools()?, directory: tempfile::tempdir().unwrap() };
        let classes = java.directory.path().join("classes");
        java.compile(&bindings().join("java/src/siltstone"), &classes);
        let mut jar = java.tool("jar");
        run(jar.args(["--create", "--file"]).arg(java.jar()).arg("-C").arg(&classes).arg("."));
        Some(java)
    }

    fn tool(&self, name: &str) -> Command {
        Command::new(self.tools.join(name))
    }

    fn jar(&self) -> PathBuf {
        self.directory.path().join("siltstone.jar")
    }

    /// Compiles all sources of a directory, against the jar once there is one.
    fn compile(&self, sources: &Path, classes: &Path) {
        let entries = fs::read_dir(sources).unwrap();
        let files: Vec<_> = entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "java"))
            .collect();
        assert!(!files.is_empty());
        let release = MIN_JAVA.to_string();
        let lints = ["-Xlint:all,-restricted", "-Xdoclint:all,-missing", "-Werror"];
        let mut javac = self.tool("javac");
        javac.args(["--release", &release]).args(lints);
        if self.jar().exists() {
            javac.arg("-cp").arg(self.jar());
        }
        run(javac.arg("-d").arg(classes).args(files));
    }

    /// A program with the package and more classes.
    fn program(&self, classes: &Path) -> Command {
        let library = c_library::directory("siltstone").join("libsiltstone.so");
        let mut java = self.tool("java");
        java.args(["--enable-native-access=ALL-UNNAMED", "-ea", "-cp"])
            .arg(format!("{}:{}", self.jar().display(), classes.display()))
            .arg(format!("-Dsiltstone.library={}", library.display()));
        java
    }
}

/// Whether Node and the packages that ours needs are installed.
fn has_node() -> bool {
    let is_sufficient =
        version(Path::new("node"), "--version", "v").is_some_and(|major| major >= MIN_NODE);
    let is_installed = is_sufficient && bindings().join("node/node_modules").is_dir();
    if !is_installed {
        eprintln!(
            "there is no Node {MIN_NODE} or later with the packages of `npm install` in \
             bindings/node: its package is not tested"
        );
    }
    is_installed
}

/// A program of Node, in the package's directory.
fn node(program: &Path) -> Command {
    let mut node = Command::new("node");
    node.arg(program)
        .current_dir(bindings().join("node"))
        .env("SILTSTONE_LIBRARY", c_library::directory("siltstone").join("libsiltstone.so"));
    node
}

/// The sources of a directory, one after the other.
fn sources(directory: &Path) -> String {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.is_file()).map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// Functions that the packages do without: those with callbacks during a call, the one for languages
/// in which a call is more expensive, and those that others have with options.
fn is_left_out(function: &str) -> bool {
    const LEFT_OUT: [&str; 4] = [
        "siltstone_table_transact",
        "siltstone_cursor_read",
        "siltstone_verify",
        "siltstone_repair",
    ];
    function.ends_with("_get_with") || LEFT_OUT.contains(&function)
}

#[test]
fn packages_call_every_function_of_the_header() {
    let go = sources(&bindings().join("go"));
    let java = sources(&bindings().join("java/src/siltstone"));
    for function in header_functions().iter().filter(|function| !is_left_out(function)) {
        let name = function.strip_prefix("siltstone_").unwrap();
        // Functions that several types have are called by the type and the rest of the name.
        let (of, rest) = name.split_once('_').unwrap_or(("", name));
        let is_read = ["table", "snapshot", "transaction"].contains(&of);
        let is_shared = is_read || of == "batch";
        let in_go = go.contains(&format!("{function}("))
            || is_read && go.contains(&format!("OF(reader, of, {rest},"));
        assert!(in_go, "the package for Go does not call {function}");
        let option = name.strip_prefix("options_set_").unwrap_or(name);
        let in_java = java.contains(&format!("\"{name}\""))
            || java.contains(&format!("setter(\"{option}\""))
            || is_shared && java.contains(&format!("type + \"_{rest}\""));
        assert!(in_java, "the package for Java does not call {function}");
    }
}

/// A name in the style of a language: `delete_range` as `deleteRange`, or as `DeleteRange`.
fn in_camel_case(name: &str, is_first_upper: bool) -> String {
    let mut is_upper = is_first_upper;
    let mut styled = String::new();
    for c in name.chars() {
        if c != '_' {
            styled.push(if is_upper { c.to_ascii_uppercase() } else { c });
        }
        is_upper = c == '_';
    }
    styled
}

#[test]
fn books_table_of_languages_is_that_of_the_packages() {
    let book = fs::read_to_string(bindings().join("../docs/src/languages.md")).unwrap();
    let (_, section) = book.split_once("## What each language offers").unwrap();
    let rows: Vec<Vec<&str>> = section
        .lines()
        .take_while(|line| !line.starts_with("## "))
        .filter(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows[0], ["", "C", "Python", "Go", "Java", "Node"]);
    let c = header_functions();
    let python =
        fs::read_to_string(bindings().join("python/python/siltstone/__init__.pyi")).unwrap();
    let go = sources(&bindings().join("go"));
    let java = sources(&bindings().join("java/src/siltstone"));
    let node = sources(&bindings().join("node/lib"));
    let node_types = fs::read_to_string(bindings().join("node/index.d.ts")).unwrap();
    let has = |column: usize, name: &str| match column {
        1 => c.iter().any(|known| known == name),
        2 => python.contains(&format!("def {name}(")),
        3 => go.contains(&format!(") {name}(")) || go.contains(&format!("func {name}(")),
        4 => java.contains(&format!(" {name}(")),
        // What it implements for abstract-level begins with `_`.
        _ => [format!(" {name} ("), format!(" _{name} (")].iter().any(|it| node.contains(it)),
    };
    // An argument, a field or a property.
    let has_option = |column: usize, name: &str| match column {
        2 => python.contains(&format!("\n    {name}: ")),
        3 => go.contains(&format!("\n\t{name} ")),
        5 => node_types.contains(&format!("\n  {name}?: ")),
        _ => false,
    };
    for row in &rows[2..] {
        let names = row.iter().map(|cell| cell.trim_matches('`').rsplit('.').next().unwrap());
        let names: Vec<_> = names.collect();
        for (column, name) in names.iter().enumerate().skip(1) {
            let python = names[2];
            let other = match column {
                1 => format!("siltstone_table_{python}"),
                3 => in_camel_case(python, true),
                _ => in_camel_case(python, false),
            };
            match *name {
                "–" => assert!(!has(column, &other), "{}: {other} is not in the table", row[0]),
                name => {
                    let is_there = has(column, name) || has_option(column, name);
                    assert!(is_there, "{}: there is no {name}", row[0]);
                }
            }
        }
    }
    assert!(rows.len() > 15, "{}", rows.len());
}

#[test]
fn go_package_passes_its_tests() {
    if !has_go() {
        return;
    }
    let package = bindings().join("go");
    run(go(&package).args(["vet", "./..."]));
    run(go(&package).args(["test", "-count=1", "./..."]));
    // The README's program, in a module of its own.
    let (program, expected) = quick_start(&package.join("README.md"), "go");
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("main.go"), program).unwrap();
    run(go(scratch.path()).args(["mod", "init", "fruit"]));
    run(go(scratch.path())
        .args(["mod", "edit", "-require=siltstone@v0.0.0"])
        .arg(format!("-replace=siltstone={}", package.display())));
    let output = run(go(scratch.path()).args(["run", "."]).arg(scratch.path().join("store")));
    assert_eq!(output, expected);
}

#[test]
fn java_package_passes_its_tests() {
    let Some(java) = Java::build() else { return };
    let package = bindings().join("java");
    let scratch = tempfile::tempdir().unwrap();
    let classes = scratch.path().join("classes");
    java.compile(&package.join("test/siltstone"), &classes);
    let output = run(java.program(&classes).arg("siltstone.Tests"));
    assert!(output.ends_with("ok\n"), "{output}");
    // The README's program, compiled by its launcher.
    let (program, expected) = quick_start(&package.join("README.md"), "java");
    let source = scratch.path().join("QuickStart.java");
    fs::write(&source, program).unwrap();
    let output = run(java.program(&classes).arg(&source).arg(scratch.path().join("store")));
    assert_eq!(output, expected);
}

#[test]
fn node_package_passes_its_tests() {
    if !has_node() {
        return;
    }
    let mut tests = node(Path::new("test/all.js"));
    // The tests create hundreds of stores.
    if Path::new("/dev/shm").is_dir() {
        tests.env("TMPDIR", "/dev/shm");
    }
    let output = run(&mut tests);
    assert!(output.ends_with("# ok\n\n"), "{output}");
    // The README's program. Node looks for the package by its name in NODE_PATH.
    let package = bindings().join("node");
    let (program, expected) = quick_start(&package.join("README.md"), "js");
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("quick-start.js");
    fs::write(&source, program).unwrap();
    symlink(&package, scratch.path().join("siltstone-level")).unwrap();
    let output =
        run(node(&source).env("NODE_PATH", scratch.path()).arg(scratch.path().join("store")));
    assert_eq!(output, expected);
}

/// An example in C, Go, Java and Node, where they can run, in this order.
fn examples(name: &str, scratch: &Path) -> Vec<(&'static str, Program)> {
    let mut programs: Vec<(&str, Program)> = Vec::new();
    let c = scratch.join(format!("{name}-c"));
    compile(&format!("examples/{name}.c"), &c, &[]);
    programs.push(("c", Box::new(move || Command::new(&c))));
    if has_go() {
        let program = scratch.join(format!("{name}-go"));
        let mut build = go(&bindings().join("go"));
        run(build.arg("build").arg("-o").arg(&program).arg(format!("./examples/{name}")));
        programs.push(("go", Box::new(move || Command::new(&program))));
    }
    if let Some(java) = Java::build() {
        let classes = scratch.join("classes");
        java.compile(&bindings().join("java/examples"), &classes);
        let class = in_camel_case(name, true);
        programs.push((
            "java",
            Box::new(move || {
                let mut program = java.program(&classes);
                program.arg(&class);
                program
            }),
        ));
    }
    if has_node() {
        let source = format!("examples/{name}.js");
        programs.push(("node", Box::new(move || node(Path::new(&source)))));
    }
    programs
}

#[test]
fn programs_in_all_languages_count_in_one_store() {
    let scratch = tempfile::tempdir().unwrap();
    let store = scratch.path().join("visits");
    let programs = examples("languages", scratch.path());
    // The names are in the order of keys, and each program runs after those before it.
    for round in 1..=2 {
        for (turn, (name, program)) in programs.iter().enumerate() {
            let lines = programs.iter().enumerate().map(|(other, (name, _))| {
                let count = if other <= turn { round } else { round - 1 };
                if count > 0 { format!("{name} {count}\n") } else { String::new() }
            });
            let output = run(program().arg(&store));
            assert_eq!(output, lines.collect::<String>(), "{name}, round {round}");
        }
    }
}

/// What `bindings/compare-languages` does, without builds for speed and with few keys.
#[test]
fn measured_programs_read_the_stores_of_each_other() {
    let scratch = tempfile::tempdir().unwrap();
    let programs = examples("speed", scratch.path());
    let command = |program: &Program, mode: &str, writer: &str, count: &str| {
        let mut command = program();
        command.arg(mode).arg(scratch.path().join(writer)).arg(count);
        command
    };
    let parts = |output: &str| -> Vec<String> {
        let part = |line: &str| {
            let fields: Vec<_> = line.split(' ').collect();
            let [name, seconds, cpu] = fields[..] else { panic!("{line}") };
            assert!(
                [seconds, cpu].iter().all(|time| time.parse::<f64>().unwrap() >= 0.0),
                "{line}"
            );
            name.to_owned()
        };
        output.lines().map(part).collect()
    };
    for (name, program) in &programs {
        let output = run(&mut command(program, "write", name, "250"));
        assert_eq!(parts(&output), ["fill", "put"], "{name}");
    }
    let writers = programs.iter().cycle().skip(programs.len() - 1);
    for ((name, program), (writer, _)) in programs.iter().zip(writers) {
        let output = run(&mut command(program, "read", writer, "250"));
        assert_eq!(parts(&output), ["scan", "get"], "{name} reads what {writer} wrote");
        // An entry too much.
        let refused = command(program, "read", writer, "249").output().unwrap();
        assert!(!refused.status.success(), "{name}");
    }
}
