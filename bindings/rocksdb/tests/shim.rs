//! Compiles the C programs with the C compiler and runs them, also under the address sanitizer
//! where the compiler has it; checks that the library exports every function of RocksDB's header.
//!
//! `functions.txt` has the functions by name, with the types of result and arguments. The header of
//! the C programs is made of it. Pointers to objects are `void *` there: programs are compiled with
//! RocksDB's own header.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use siltstone_testkit::c_library;

/// The programs that call the functions.
const PROGRAMS: [&str; 7] =
    ["data", "batches", "transactions", "two_phases", "objects", "maintenance", "files"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// A function of RocksDB's header.
struct Function {
    result: String,
    arguments: Vec<String>,
}

fn functions() -> BTreeMap<String, Function> {
    let text = read("tests/functions.txt");
    let function = |line: &str| {
        let (head, arguments) = line.strip_suffix(')').unwrap().split_once('(').unwrap();
        let (result, name) = head.split_once(' ').unwrap();
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        (format!("rocksdb_{name}"), Function { result: result.to_owned(), arguments })
    };
    text.lines().map(function).collect()
}

fn c_type(word: &str, is_result: bool) -> &'static str {
    match word {
        "void" => "void",
        "str" if is_result => "char *",
        "str" => "const char *",
        "ptr" if is_result => "void *",
        "ptr" | "fn" => "const void *",
        "err" => "char **",
        "int" => "int",
        "u8" => "unsigned char",
        "i8" => "char",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "i64" => "int64_t",
        "size" => "size_t",
        "f64" => "double",
        "bool" => "bool",
        "slice" => "rocksdb_slice_t",
        other => panic!("no type: {other}"),
    }
}

fn header() -> String {
    let mut text = "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n\
                    typedef struct { const char *data; size_t size; } rocksdb_slice_t;\n"
        .to_owned();
    for (name, function) in functions() {
        let arguments: Vec<_> = function.arguments.iter().map(|word| c_type(word, false)).collect();
        let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
        writeln!(text, "{} {name}({arguments});", c_type(&function.result, true)).unwrap();
    }
    text
}

/// Compiles a program and runs it, with the header in the directory of the program.
fn run(name: &str, source: &Path, flags: &[&str]) -> String {
    let scratch = tempfile::tempdir().unwrap();
    let [program, include, directory] =
        [name, "include", "databases"].map(|name| scratch.path().join(name));
    fs::create_dir_all(include.join("rocksdb")).unwrap();
    fs::write(include.join("rocksdb/c.h"), header()).unwrap();
    fs::create_dir(&directory).unwrap();
    let [include, tests] =
        [include, root().join("tests")].map(|path| format!("-I{}", path.display()));
    // Arguments through which functions return are `const void *` in this header.
    let flags = [flags, &["-Wno-maybe-uninitialized", &include, &tests]].concat();
    c_library::add_soname("rocksdb", "librocksdb.so.11");
    c_library::compile("rocksdb", source, &program, &flags);
    c_library::run(Command::new(&program).arg(&directory))
}

fn run_all(flags: &[&str]) {
    std::thread::scope(|scope| {
        for program in PROGRAMS {
            scope.spawn(move || {
                let source = root().join(format!("tests/{program}.c"));
                assert_eq!(run(program, &source, flags), "ok\n");
            });
        }
    });
}

#[test]
fn every_function_works() {
    run_all(&[]);
}

#[test]
fn every_function_works_under_the_address_sanitizer() {
    let scratch = tempfile::tempdir().unwrap();
    if c_library::has_address_sanitizer(scratch.path()) {
        run_all(&["-fsanitize=address"]);
    } else {
        eprintln!("the compiler has no address sanitizer: skipped");
    }
}

#[test]
fn library_exports_every_function_of_the_header_and_no_other() {
    let library = c_library::directory("rocksdb").join("librocksdb.so");
    let listed = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).unwrap();
    // A build of the whole workspace has backups in object stores, of which a dependency exports
    // functions. A build of the library alone has none of them.
    let is_ours = |name: &&str| !name.starts_with("crc_fast_");
    let exported: BTreeSet<&str> =
        listed.lines().filter_map(|line| line.split_whitespace().nth(2)).filter(is_ours).collect();
    let functions = functions();
    let expected: BTreeSet<&str> = functions.keys().map(String::as_str).collect();
    assert_eq!(exported.symmetric_difference(&expected).collect::<Vec<_>>(), Vec::<&&str>::new());
    assert_eq!(expected.len(), 1745);
}

/// The functions in the tables of a macro.
fn tabled(text: &str, table: &str) -> BTreeSet<String> {
    let begin = format!("\n{table}! {{");
    let tables = text.split(&begin).skip(1);
    let tables = tables.map(|rest| rest.split_once('}').unwrap().0.to_owned());
    let words = tables.flat_map(|table| {
        let words = table.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned);
        words.filter(|word| word.starts_with("rocksdb_")).collect::<Vec<_>>()
    });
    words.collect()
}

fn sources() -> String {
    let paths = fs::read_dir(root().join("src")).unwrap().map(|file| file.unwrap().path());
    let files = paths.filter(|path| path.is_file());
    files.map(|path| fs::read_to_string(path).unwrap() + "\n").collect()
}

#[test]
fn rejected_functions_return_an_error_that_names_them() {
    let rejected = tabled(&sources(), "rejected");
    assert!(rejected.len() > 40, "{}", rejected.len());
    let functions = functions();
    let mut program = "#include \"check.h\"\nint main(void) {\n".to_owned();
    program.push_str(
        "  static const char zeros[64];\n  rocksdb_slice_t slice = {0, 0}; (void)slice;\n",
    );
    for name in &rejected {
        let arguments = functions[name].arguments.iter().map(|word| match word.as_str() {
            "err" => "&err",
            "ptr" | "str" => "zeros",
            _ => "0",
        });
        let arguments = arguments.collect::<Vec<_>>().join(", ");
        let start = format!("Not implemented: {name} ");
        writeln!(program, "  FAILS({name}({arguments}), \"{start}\");").unwrap();
    }
    program.push_str("  puts(\"ok\");\n  return 0;\n}\n");
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("rejected.c");
    fs::write(&source, program).unwrap();
    assert_eq!(run("rejected", &source, &["-Wno-unused-value"]), "ok\n");
}

#[test]
fn options_return_what_was_set() {
    let (functions, sources) = (functions(), sources());
    let unused: BTreeSet<String> =
        ["ignored", "aborting"].iter().flat_map(|table| tabled(&sources, table)).collect();
    let mut program = "#include \"check.h\"\nint main(void) {\n".to_owned();
    let mut checked = 0;
    for (name, setter) in &functions {
        let Some((object, option)) = name.split_once("_set_") else { continue };
        let get = format!("{object}_get_{option}");
        let (create, destroy) = (format!("{object}_create"), format!("{object}_destroy"));
        let is_scalar = setter.arguments.len() == 2
            && !["ptr", "str", "fn"].contains(&setter.arguments[1].as_str());
        let is_made = functions.get(&create).is_some_and(|create| create.arguments.is_empty());
        if !is_scalar || !is_made || !functions.contains_key(&get) || unused.contains(name) {
            continue;
        }
        writeln!(
            program,
            "  {{ void *o = {create}(); {get}(o); {name}(o, 1); CHECK({get}(o) == 1); {name}(o, 0); \
             CHECK({get}(o) == 0); {destroy}(o); }}"
        )
        .unwrap();
        checked += 1;
    }
    program.push_str("  puts(\"ok\");\n  return 0;\n}\n");
    assert!(checked > 330, "only {checked} options were found");
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("options.c");
    fs::write(&source, program).unwrap();
    assert_eq!(run("options", &source, &[]), "ok\n");
}

#[test]
fn every_implemented_function_is_called_by_a_program() {
    let sources = sources();
    let programs: String = PROGRAMS.iter().map(|name| read(&format!("tests/{name}.c"))).collect();
    let programs = programs + &read("tests/check.h");
    let mut found = 0;
    let mut missing = Vec::new();
    for part in sources.split("\n    fn ").skip(1) {
        // The names before the arguments: one, or one without and one with a column family.
        let names = part.split_once('(').unwrap().0;
        for name in names.split('|').map(str::trim).filter(|name| name.starts_with("rocksdb_")) {
            found += 1;
            if !programs.contains(&format!("{name}(")) {
                missing.push(name.to_owned());
            }
        }
    }
    assert!(found > 400, "only {found} functions were found");
    assert_eq!(missing, Vec::<String>::new());
}
