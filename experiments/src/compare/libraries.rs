//! One program on several embedded stores: what it costs to write, to build and to run.
//!
//! ```text
//! for each program of library-programs/:
//!   count its lines ─ cargo tree ─ cargo build into a fresh directory ─▶ Program
//! for each run and program:
//!   a process over a fresh store ─▶ the seconds of each part, CPU time ─▶ Run
//! Programs, and the runs' median, smallest and largest ─▶ table
//! ```
//!
//! All programs run the load of `crates/siltstone/examples/url_shortener/workload.rs`, which checks
//! their results and prints the seconds of its parts. The profile `program` of this workspace has
//! Cargo's defaults for a release, and strips; `small-program` also optimizes for size. Programs of
//! the second are built and measured, and not run.
//!
//! Invariants: one child process runs at a time, since CPU time is counted for all children
//! together. A program that fails ends the comparison.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use siltstone_engine::{Error, Result};
use tempfile::TempDir;

use super::servers::cpu_ticks;
use super::table::cell;

/// A program that is compared.
struct Choice {
    name: &'static str,
    package: &'static str,
    features: &'static [&'static str],
    /// Below this workspace.
    source: &'static str,
}

const PROGRAMS: &[Choice] = &[
    Choice {
        name: "siltstone-lsm",
        package: "url-shortener-siltstone",
        features: &[],
        source: "../crates/siltstone/examples/url_shortener/main.rs",
    },
    Choice {
        name: "siltstone-all",
        package: "url-shortener-siltstone",
        features: &["--features", "url-shortener-siltstone/all"],
        source: "../crates/siltstone/examples/url_shortener/main.rs",
    },
    Choice {
        name: "fjall",
        package: "url-shortener-fjall",
        features: &[],
        source: "library-programs/fjall/src/main.rs",
    },
    Choice {
        name: "redb",
        package: "url-shortener-redb",
        features: &[],
        source: "library-programs/redb/src/main.rs",
    },
];

/// The names of the programs.
pub fn names() -> Vec<&'static str> {
    PROGRAMS.iter().map(|program| program.name).collect()
}

/// The load of the programs.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Number of links.
    pub links: u64,
    /// Number of clicks.
    pub clicks: u64,
}

/// A program that has been built.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    lines: usize,
    crates: usize,
    build_cpu_seconds: f64,
    bytes: u64,
    /// Built with `small-program`.
    small_bytes: u64,
    binary: PathBuf,
    /// Holds the binary.
    _directory: TempDir,
    runs: Vec<Run>,
}

/// One run of a program.
#[derive(Debug, Clone, PartialEq)]
struct Run {
    /// The parts and their seconds, in order.
    parts: Vec<(String, f64)>,
    cpu_seconds: f64,
    store_bytes: u64,
}

impl Program {
    /// Builds one of [`names`] in a new directory below `scratch`, which is removed when the
    /// program is dropped.
    ///
    /// # Errors
    /// For an unknown name, and if Cargo fails.
    pub fn build(name: &str, scratch: &Path) -> Result<Self> {
        let found = PROGRAMS.iter().find(|program| program.name == name);
        let Choice { name, package, features, source } =
            found.ok_or_else(|| Error::Invalid(format!("'{name}' is not a program")))?;
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
        let source = workspace.join(source);
        let text = fs::read_to_string(&source)
            .map_err(|error| Error::io("read", source.display().to_string(), &error))?;
        let directory = scratch_directory(scratch)?;
        let manifest = workspace.join("Cargo.toml");
        let cargo = |command: &str| {
            let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
            cargo.args([command, "--package", package]).args(*features);
            cargo.arg("--manifest-path").arg(&manifest);
            cargo.args(["--locked", "--quiet"]);
            // They would change the profile, or hide what is compiled.
            for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER"] {
                cargo.env_remove(name);
            }
            cargo
        };
        let tree = output(cargo("tree").args(["--edges", "normal", "--prefix", "none"]))?;
        let build = |profile: &str| -> Result<(PathBuf, u64)> {
            let mut build = cargo("build");
            build.args(["--profile", profile, "--target-dir"]).arg(directory.path());
            output(&mut build)?;
            let binary = directory.path().join(profile).join(package);
            let metadata = fs::metadata(&binary)
                .map_err(|error| Error::io("read", binary.display().to_string(), &error))?;
            Ok((binary, metadata.len()))
        };
        let ((binary, bytes), build_cpu_seconds) = timed(|| build("program"))?;
        let (_, small_bytes) = build("small-program")?;
        Ok(Program {
            name,
            lines: lines_of_code(&text),
            crates: crates_below(&tree),
            build_cpu_seconds,
            bytes,
            small_bytes,
            binary,
            _directory: directory,
            runs: Vec::new(),
        })
    }

    /// Runs the program on a new store below `scratch`.
    ///
    /// # Errors
    /// If it fails, or if its results are wrong.
    pub fn run(&mut self, load: Load, scratch: &Path) -> Result<()> {
        let directory = scratch_directory(scratch)?;
        let mut command = Command::new(&self.binary);
        command.arg(directory.path());
        command.args([load.links.to_string(), load.clicks.to_string()]);
        let (text, cpu_seconds) = timed(|| output(&mut command))?;
        let parts = text.lines().map(|line| {
            let (name, seconds) = line.split_once(' ')?;
            Some((name.to_owned(), seconds.parse().ok()?))
        });
        let parts = parts.collect::<Option<Vec<_>>>().filter(|parts| !parts.is_empty());
        let parts = parts
            .ok_or_else(|| Error::Invalid(format!("{} printed no seconds: {text}", self.name)))?;
        let store_bytes = bytes_below(directory.path());
        self.runs.push(Run { parts, cpu_seconds, store_bytes });
        Ok(())
    }

    /// The program's name.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// The table of all programs, in Markdown.
pub fn table(programs: &[Program]) -> String {
    let names: Vec<_> = programs.iter().map(|program| program.name).collect();
    let mut text = format!("| | {} |\n", names.join(" | "));
    let _ = writeln!(text, "| --- |{}", " --: |".repeat(names.len()));
    let mut row = |name: &str, numbers: &dyn Fn(&Program) -> Vec<f64>| {
        let cells = programs.iter().map(|program| match numbers(program)[..] {
            [count] if count.fract() == 0.0 => Some(format!("{count}")),
            ref several => cell(several),
        });
        let cells: Vec<_> = cells.map(|cell| cell.unwrap_or("–".to_owned())).collect();
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    };
    row("lines of code", &|program| vec![program.lines as f64]);
    row("crates below the program", &|program| vec![program.crates as f64]);
    row("CPU seconds of the build", &|program| vec![program.build_cpu_seconds]);
    row("stripped binary, MB", &|program| vec![program.bytes as f64 / 1e6]);
    row("… optimized for size, MB", &|program| vec![program.small_bytes as f64 / 1e6]);
    let runs = |program: &Program, value: &dyn Fn(&Run) -> f64| -> Vec<f64> {
        program.runs.iter().map(value).collect()
    };
    let parts = programs.first().and_then(|program| program.runs.first());
    for (at, (part, _)) in parts.iter().flat_map(|run| &run.parts).enumerate() {
        row(&format!("{part}, s"), &|program| {
            runs(program, &|run| run.parts.get(at).map_or(f64::NAN, |part| part.1))
        });
    }
    row("CPU seconds of a run", &|program| runs(program, &|run| run.cpu_seconds));
    row("store, MB", &|program| runs(program, &|run| run.store_bytes as f64 / 1e6));
    text
}

fn scratch_directory(scratch: &Path) -> Result<TempDir> {
    TempDir::new_in(scratch)
        .map_err(|error| Error::io("create a directory in", scratch.display().to_string(), &error))
}

/// The standard output of a command that succeeds.
fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| Error::io("start", &name, &error))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Invalid(format!("{name} failed: {}", reason.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What `work` returns, and the CPU seconds of the processes that it has started.
fn timed<R>(work: impl FnOnce() -> Result<R>) -> Result<(R, f64)> {
    let ticks = || {
        let stat = fs::read_to_string("/proc/self/stat").ok();
        stat.and_then(|stat| cpu_ticks(&stat, true)).unwrap_or(0)
    };
    let before = ticks();
    let result = work()?;
    let seconds = (ticks() - before) as f64 / rustix::param::clock_ticks_per_second() as f64;
    Ok((result, seconds))
}

/// Lines besides blank ones and comments.
fn lines_of_code(text: &str) -> usize {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// The distinct packages that `cargo tree` lists, besides the first.
fn crates_below(tree: &str) -> usize {
    let package = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    tree.lines().filter_map(package).collect::<BTreeSet<_>>().len().saturating_sub(1)
}

fn bytes_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        Ok(metadata) => allocated(&metadata),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// Preallocated files are longer than what they take.
#[cfg(unix)]
fn allocated(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(metadata) * 512
}

#[cfg(not(unix))]
fn allocated(metadata: &fs::Metadata) -> u64 {
    metadata.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_crates_are_counted_without_comments_and_repetitions() {
        let code = "//! What it is.\n\nfn main() {\n    // Nothing.\n    run() // now\n}\n";
        assert_eq!(lines_of_code(code), 3);
        let tree = "program v0.1.0 (/here)\na v1.0.0\nb v1.0.0 (proc-macro)\na v1.0.0 (*)\n\
                    a v2.0.0\n";
        assert_eq!(crates_below(tree), 3);
    }

    #[test]
    fn table_has_the_medians_of_each_part() {
        let program = |name, seconds: &[f64]| {
            let run = |seconds: &f64| Run {
                parts: vec![("shorten".to_owned(), *seconds)],
                cpu_seconds: 1.0,
                store_bytes: 2_000_000,
            };
            let directory = tempfile::tempdir().unwrap();
            let runs = seconds.iter().map(run).collect();
            let (lines, crates, bytes, small_bytes) = (98, 20, 1_500_000, 1_000_000);
            let (build_cpu_seconds, binary) = (30.0, PathBuf::new());
            let _directory = directory;
            Program {
                name,
                lines,
                crates,
                build_cpu_seconds,
                bytes,
                small_bytes,
                binary,
                _directory,
                runs,
            }
        };
        let text = table(&[program("a", &[3.0, 1.0, 2.0]), program("b", &[])]);
        assert!(text.starts_with("| | a | b |\n| --- | --: | --: |\n"), "{text}");
        assert!(text.contains("| lines of code | 98 | 98 |\n"), "{text}");
        assert!(text.contains("| stripped binary, MB | 1.50 | 1.50 |\n"), "{text}");
        assert!(text.contains("| shorten, s | 2.00 (1.00 to 3.00) | – |\n"), "{text}");
    }

    /// What CI can check without a build of seconds: the files and packages are there.
    #[test]
    fn every_program_has_its_source_and_its_package() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
        for Choice { name, package, source, .. } in PROGRAMS {
            assert!(workspace.join(source).is_file(), "{name}: {source}");
            let store = package.strip_prefix("url-shortener-").unwrap();
            let manifest = workspace.join("library-programs").join(store).join("Cargo.toml");
            let text = fs::read_to_string(manifest).unwrap();
            assert!(text.contains(&format!("name = \"{package}\"")), "{name}");
        }
    }
}
