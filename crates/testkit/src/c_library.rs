//! Helper: compiles C programs with a library of ours, and runs them.
//!
//! The package of such a library is a Rust library too. So Cargo builds both before the package's
//! tests, and the library for C is in the directory of the running test.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of the package's library for C, `lib{name}.so`.
///
/// # Panics
/// If the running test has none.
#[must_use]
pub fn directory(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap_or_else(|error| panic!("no program: {error}"));
    let directory = program.parent().unwrap_or_else(|| panic!("{}", program.display()));
    let library = directory.join(format!("lib{name}.so"));
    assert!(library.is_file(), "{} was not built", library.display());
    directory.to_owned()
}

/// Lets programs find the library as `soname`, its name for the loader.
///
/// # Panics
/// I/O errors.
pub fn add_soname(name: &str, soname: &str) {
    let link = directory(name).join(soname);
    match symlink(format!("lib{name}.so"), &link) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            panic!("{}: {error}", link.display())
        }
        _ => {}
    }
}

/// The flags with which a program finds the library when it is linked and when it runs. Cargo puts
/// the directory of the profile into the path of libraries, where an older one may be: `rpath` goes
/// before it with these tags.
///
/// # Panics
/// As [`directory`].
#[must_use]
pub fn linker_flags(name: &str) -> String {
    let directory = directory(name);
    let directory = directory.display();
    format!("-L{directory} -Wl,--disable-new-dtags,-rpath,{directory}")
}

/// Compiles `source` and links it with the library `name`, where it finds it at run time too;
/// `arguments` are further ones of the compiler.
///
/// # Panics
/// If the compiler finds an error.
pub fn compile(name: &str, source: &Path, program: &Path, arguments: &[&str]) {
    let mut compiler = compiler();
    compiler.args(arguments).arg(source).arg("-o").arg(program);
    compiler.args(linker_flags(name).split(' ')).arg(format!("-l{name}")).arg("-lpthread");
    run(&mut compiler);
}

/// What a program prints.
///
/// # Panics
/// If it fails.
#[allow(clippy::must_use_candidate)]
pub fn run(program: &mut Command) -> String {
    let output = program.output().unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}: {}\n{errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether the C compiler can make and run programs with the address sanitizer; `scratch` is a
/// directory for the attempt.
#[must_use]
pub fn has_address_sanitizer(scratch: &Path) -> bool {
    let (source, program) = (scratch.join("empty.c"), scratch.join("empty"));
    let mut compile = compiler();
    compile.arg("-fsanitize=address").arg(&source).arg("-o").arg(&program);
    fs::write(&source, "int main(void) { return 0; }\n").is_ok()
        && compile.output().is_ok_and(|compiled| compiled.status.success())
        && Command::new(&program).output().is_ok_and(|ran| ran.status.success())
}

/// The C compiler, with all warnings as errors.
#[must_use]
pub fn compiler() -> Command {
    let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g"]);
    compiler
}
