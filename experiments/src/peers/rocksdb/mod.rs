//! RocksDB, by its own `db_bench`.
//!
//! Each workload is one run of the program over the same directory, so that its counters are those
//! of the workload. Like ours it ends when background work is idle. The contents of its memtable at
//! the end of a run are replayed from the log and flushed by the next run, where they count: at
//! most one write buffer. Its latencies include drawing the key and the value, which ours exclude
//! (both throughputs include it), and its counters (`--statistics`) have a small cost.
//!
//! Invariant: sizes, filters, caches, threads and durability are those of our store; everything
//! else is RocksDB's default. The command line is in the report's settings.
//!
//! Source: `db_bench --help` of RocksDB 7.8.3; write amplification from its tickers (log, flush and
//! compaction bytes over keys and values written).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output as ProgramOutput};

use siltstone_bench::engines::{Storage, fresh_directory};
use siltstone_bench::generate::ValueSize;
use siltstone_bench::report::{Figures, LatencyByKind, Percentiles, Report, Timeline};
use siltstone_bench::run::process::run_watched;
use siltstone_bench::run::{Counts, Identity, State};
use siltstone_bench::workload::{Choices, REPLAY, Start, Workload};
use siltstone_engine::stats::Stalls;
use siltstone_engine::{Durability, Error, Result};
use siltstone_lsm::{Compression, Options as LsmOptions};

use super::Task;
use super::db_bench_output::{Output, timeline};

const PROGRAM: &str = "db_bench";

/// Checks that the program is installed and can run the task.
///
/// # Errors
/// [`Error::InvalidOptions`] for an unsupported task; [`Error::Refused`] if it is missing.
pub fn check(task: &Task<'_>) -> Result<()> {
    let refuse = |option: &str, reason: &str| {
        Err(Error::invalid_option(option, format!("with --peer, {reason}")))
    };
    if task.target.storage.directory().is_none() {
        return refuse("storage", "both stores must be on disk");
    }
    if !matches!(task.settings.value, ValueSize::Fixed(_)) {
        return refuse("value-size", "all values must have one size");
    }
    if task.settings.rate.is_some() {
        return refuse("rate", "only closed loops can be compared");
    }
    if task.settings.warmup > 0 {
        return refuse("warmup", "it must be 0: db_bench measures all operations");
    }
    runs(task)?;
    program().map(drop)
}

/// Runs the task; `on_phase` is called with the name of each starting workload.
///
/// # Errors
/// As [`check`]; [`Error::Io`] and [`Error::Invalid`] if the program fails or its output is
/// malformed.
pub fn run(task: &Task<'_>, on_phase: &mut dyn FnMut(&str)) -> Result<Report> {
    check(task)?;
    let program = program()?;
    let Some(base) = task.target.storage.directory() else { unreachable!("checked above") };
    let (_guard, directory) = fresh_directory(base, "rocksdb-bench-", task.target.keep)?;
    let mut finished = Vec::new();
    let (mut settings, mut peak_rss) = (BTreeMap::new(), None);
    for run in runs(task)? {
        on_phase(&run.workload);
        let arguments = arguments(task, &run, &directory)?;
        let (output, peak) = run_watched(Command::new(&program).args(&arguments))
            .map_err(|e| Error::io("run", program.display().to_string(), &e))?;
        peak_rss = peak_rss.max(peak);
        let text = printed(&run, &output)?;
        for warning in text.lines().filter_map(|line| line.strip_prefix("WARNING: ")) {
            settings.insert("warning".to_owned(), warning.to_owned());
        }
        settings.insert(format!("command.{}", run.workload), arguments.join(" "));
        let output = Output::parse(run.benchmark, &text).map_err(Error::Invalid)?;
        finished.push(RunResult::new(task, run, &output, &directory));
    }
    Ok(Report { peak_rss_bytes: peak_rss, ..report(task, &finished, settings) })
}

/// One run of the program.
#[derive(Debug, Clone, PartialEq)]
struct Run {
    workload: String,
    benchmark: &'static str,
    ops: u64,
    threads: usize,
    is_load: bool,
    is_first: bool,
}

/// The runs of the program for a task.
fn runs(task: &Task<'_>) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    let threads = task.settings.threads;
    for workload in task.workloads {
        if runs.is_empty() && workload.start == Start::Loaded {
            runs.push(load(task.settings.keys, Workload::named("load", &Choices::default())?.name));
        }
        let is_first = runs.is_empty();
        let ops = task.settings.ops_of(workload);
        let benchmark = benchmark(workload, is_first)?;
        let workload = workload.name.clone();
        runs.push(match benchmark {
            "filluniquerandom" => Run { is_load: false, is_first, ..load(ops, workload) },
            _ => Run { workload, benchmark, ops, threads, is_load: false, is_first },
        });
    }
    Ok(runs)
}

/// A run that writes each key once in random order, which the program does on one thread.
fn load(ops: u64, workload: String) -> Run {
    let benchmark = "filluniquerandom";
    Run { workload, benchmark, ops, threads: 1, is_load: true, is_first: true }
}

/// The program's benchmark for a workload.
fn benchmark(workload: &Workload, is_first: bool) -> Result<&'static str> {
    if workload.is_zipf() && !workload.name.starts_with("ycsb") {
        return Err(Error::invalid_option(
            "skew",
            "with --peer, keys are drawn uniformly: db_bench has no Zipf",
        ));
    }
    match (workload.name.as_str(), is_first) {
        ("fillseq", true) => Ok("fillseq"),
        ("load", true) => Ok("filluniquerandom"),
        ("fillrandom", true) => Ok("fillrandom"),
        // Fills start with an empty store; a fill of an existing store is an overwrite.
        ("fillrandom" | "overwrite", _) => Ok("overwrite"),
        ("readrandom", _) => Ok("readrandom"),
        ("readmissing", _) => Ok("readmissing"),
        ("readwhilewriting", _) => Ok("readwhilewriting"),
        ("seekrandom", _) => Ok("seekrandom"),
        ("fillseq" | "load", false) => {
            let name = &workload.name;
            Err(Error::invalid_option(
                "workload",
                format!(
                    "with --peer, {name} must be the first workload: db_bench recreates the store"
                ),
            ))
        }
        (REPLAY, _) => {
            Err(Error::invalid_option("trace", "db_bench replays no traces; use --peer librocksdb"))
        }
        (name, _) => Err(Error::invalid_option("workload", format!("db_bench has no {name}"))),
    }
}

/// The command line of a run.
fn arguments(task: &Task<'_>, run: &Run, directory: &Path) -> Result<Vec<String>> {
    let settings = task.settings;
    let ours = match task.target.engine.as_str() {
        "lsm" => LsmOptions::from_map(&task.target.options)?,
        _ => LsmOptions::default(),
    };
    let compression = match ours.file.compression {
        Compression::None => "none",
        Compression::Lz4 => "lz4",
        Compression::Zstd { .. } => "zstd",
    };
    let each = run.ops.div_ceil(run.threads as u64);
    let number = |name: &str, value: u64| format!("--{name}={value}");
    Ok(vec![
        format!("--benchmarks={},waitforcompaction", run.benchmark),
        format!("--db={}", directory.display()),
        number("use_existing_db", u64::from(!run.is_first)),
        number("num", if run.is_first && run.is_load { run.ops } else { settings.keys }),
        number("reads", each),
        number("writes", each),
        number("threads", run.threads as u64),
        number("key_size", settings.key_bytes as u64),
        number("value_size", settings.value.max() as u64),
        format!("--compression_type={compression}"),
        format!("--compression_ratio={}", 1.0 - settings.compressible),
        number("sync", u64::from(settings.durability == Durability::Synced)),
        number("seed", settings.seed),
        number("seek_nexts", task.seek_nexts),
        number("max_background_jobs", task.target.background_threads as u64),
        number("write_buffer_size", ours.memtable_bytes),
        number("max_write_buffer_number", ours.memtables as u64),
        number("cache_size", ours.cache_bytes),
        number("use_direct_reads", u64::from(matches!(task.target.storage, Storage::Direct(_)))),
        number("block_size", ours.file.block_bytes as u64),
        format!("--bloom_bits={}", ours.file.filter_bits_per_key),
        number("target_file_size_base", ours.target_file_bytes),
        number("max_bytes_for_level_base", ours.level_bytes[0]),
        number("level0_file_num_compaction_trigger", ours.level0.compaction_trigger as u64),
        number("histogram", 1),
        number("statistics", 1),
        number("report_interval_seconds", 1),
        format!("--report_file={}", report_file(directory).display()),
    ])
}

fn report_file(directory: &Path) -> PathBuf {
    directory.join("throughput.csv")
}

fn printed(run: &Run, output: &ProgramOutput) -> Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    // Standard error contains progress, too; the reason is its last line.
    let last = errors.split(['\n', '\r']).map(str::trim).rfind(|line| !line.is_empty());
    let reason = last.unwrap_or("it printed no reason");
    Err(Error::Invalid(format!("{PROGRAM} failed at {}: {reason}", run.workload)))
}

/// The result of a run.
struct RunResult {
    run: Run,
    counts: Counts,
    state: State,
    latency: LatencyByKind,
    timeline: Option<Timeline>,
    longest_stall_ms: Option<f64>,
}

impl RunResult {
    fn new(task: &Task<'_>, run: Run, output: &Output, directory: &Path) -> Self {
        let ticker = |name: &str| output.count(name).unwrap_or(0);
        let written = [
            ("log", "rocksdb.wal.bytes"),
            ("flush", "rocksdb.flush.write.bytes"),
            ("compaction", "rocksdb.compact.write.bytes"),
        ];
        let item_bytes = (task.settings.key_bytes + task.settings.value.max()) as u64;
        let latency = match run.benchmark {
            "seekrandom" => LatencyByKind { scan: output.latency, ..Default::default() },
            read if read.starts_with("read") => {
                LatencyByKind { get: output.latency, ..Default::default() }
            }
            _ => LatencyByKind { put: output.latency, ..Default::default() },
        };
        let counts = Counts {
            ops: output.ops,
            seconds: output.seconds,
            user_bytes: ticker("rocksdb.number.keys.written") * item_bytes,
            written: written
                .map(|(purpose, name)| (purpose.to_owned(), ticker(name)))
                .into_iter()
                .filter(|(_, bytes)| *bytes > 0)
                .collect(),
            lookups: ticker("rocksdb.number.keys.read"),
            lookup_reads: ticker("rocksdb.read.block.get.micros"),
            // One sum over all causes; `hide_unreported` keeps only the total.
            stalls: Stalls { slowdown_us: ticker("rocksdb.stall.micros"), ..Stalls::default() },
            ..Counts::default()
        };
        let space_bytes = space_of(directory);
        // The program's timeline includes the writer's operations, ours only the readers'.
        let has_comparable_timeline = run.benchmark != "readwhilewriting";
        let csv = std::fs::read_to_string(report_file(directory))
            .ok()
            .filter(|_| has_comparable_timeline);
        RunResult {
            run,
            counts,
            state: State { space_bytes, ..State::default() },
            latency,
            timeline: csv.and_then(|csv| timeline(&csv)),
            longest_stall_ms: output.maxima.get("rocksdb.db.write.stall").map(|us| us / 1e3),
        }
    }
}

/// Bytes of the files in RocksDB's directory without its text logs.
fn space_of(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let stored = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        [".sst", ".log", ".blob"].iter().any(|ending| name.ends_with(ending))
    });
    stored.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

fn report(task: &Task<'_>, finished: &[RunResult], settings: BTreeMap<String, String>) -> Report {
    let figures =
        |name: &str, threads, counts: &Counts, last: Option<&RunResult>, latency, time| {
            let identity =
                Identity { engine: "rocksdb", workload: name, keys: task.settings.keys, threads };
            let state = last.map(|run| run.state.clone()).unwrap_or_default();
            let figures = counts.figures(&identity, &state, latency, time);
            hide_unreported(figures, last.and_then(|run| run.longest_stall_ms))
        };
    let phases = finished.iter().map(|done| {
        let run = &done.run;
        let time = done.timeline.clone();
        figures(&run.workload, run.threads, &done.counts, Some(done), done.latency, time)
    });
    let measured: Vec<_> = finished.iter().filter(|done| !done.run.is_load).collect();
    let mut counts = Counts::default();
    for done in &measured {
        counts.add(&done.counts);
    }
    let names: Vec<_> = measured.iter().map(|done| done.run.workload.as_str()).collect();
    // Percentiles of several runs cannot be merged: only those of a single run are kept.
    let only = |kind: fn(&LatencyByKind) -> Option<Percentiles>| {
        let mut all = measured.iter().filter_map(|done| kind(&done.latency));
        all.next().filter(|_| all.next().is_none())
    };
    let latency =
        LatencyByKind { put: only(|l| l.put), get: only(|l| l.get), scan: only(|l| l.scan) };
    let longest = measured.iter().max_by(|a, b| {
        a.longest_stall_ms.unwrap_or(0.0).total_cmp(&b.longest_stall_ms.unwrap_or(0.0))
    });
    let mut total =
        figures(&names.join(","), task.settings.threads, &counts, finished.last(), latency, None);
    total.stall_ms.longest = longest.and_then(|done| done.longest_stall_ms);
    Report { total, phases: phases.collect(), peak_rss_bytes: None, settings, peer: None }
}

/// Removes figures that RocksDB does not report.
fn hide_unreported(mut figures: Figures, longest_stall_ms: Option<f64>) -> Figures {
    figures.bytes_read_per_lookup = None;
    figures.settle_seconds = None;
    figures.stall_ms.insert = None;
    figures.stall_ms.flush = None;
    figures.stall_ms.compaction = None;
    figures.stall_ms.longest = longest_stall_ms;
    figures
}

/// Path of the program.
fn program() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_in(std::env::split_paths(&path)).ok_or_else(|| Error::Refused {
        path: PROGRAM.to_owned(),
        reason: "not on the PATH; it comes with RocksDB: on Debian and Ubuntu, install the \
                 package rocksdb-tools"
            .to_owned(),
    })
}

fn find_in(mut directories: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    directories.find_map(|directory| Some(directory.join(PROGRAM)).filter(|path| path.is_file()))
}

#[cfg(test)]
mod tests;
