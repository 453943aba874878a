//! `bench`: an engine under a workload, and a peer beside it.
//!
//! The measuring is the lab's; here options become its settings, and its report a table, one JSON
//! object or a picture. All that can be refused is refused before anything is measured.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use siltstone::Durability;
use siltstone::options::{parse_count, parse_size};
use siltstone_lab::engines::{Medium, Target, default_directory};
use siltstone_lab::generate::ValueSize;
use siltstone_lab::peers::{self, Task};
use siltstone_lab::report::{Report, picture as throughput_picture, table};
use siltstone_lab::run::{Settings, bench};
use siltstone_lab::trace::Trace;
use siltstone_lab::workload::{Choices, NAMES, Workload};

use crate::{CommandResult, Failure, Outcome, interrupt, picture, progress};

/// Measure an engine under a workload
///
/// The store is made anew for the run and removed after it.
#[derive(Args)]
pub(crate) struct Bench {
    /// The engine
    #[arg(long, default_value = "lsm")]
    engine: String,
    #[arg(long, help = workload_help(), required_unless_present = "trace")]
    workload: Option<String>,
    /// Replay the requests of a trace (as serve --record writes) instead of a workload, starting from what it
    /// reads before it writes it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "keys", "value_size", "skew", "reads"])]
    trace: Option<PathBuf>,
    /// Let a trace's requests come when they came, not one after the other; latencies count from then
    #[arg(long, requires = "trace", conflicts_with = "rate")]
    in_time: bool,
    // Boxed, so that one command of many options doesn't make every command as large.
    #[command(flatten)]
    size: Box<Size>,
    #[command(flatten)]
    load: Box<Load>,
    #[command(flatten)]
    place: Box<Place>,
    /// Run another store under the same load: rocksdb (its db_bench), or librocksdb (in our process;
    /// needs --features peers when building)
    #[arg(long)]
    peer: Option<String>,
    /// Write a picture of the throughput over time
    #[arg(long, value_name = "FILE.svg", value_parser = picture::file)]
    plot: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How many keys, and how large.
#[derive(Args)]
struct Size {
    /// Keys of the key space, e.g. 20M
    #[arg(long, default_value_t = 1_000_000, value_parser = parse_count)]
    keys: u64,
    /// Bytes of a key: 4 to 64KiB
    #[arg(long, default_value = "16", value_parser = parse_size)]
    key_size: u64,
    /// Bytes of a value: 100, 1KiB, 100..1000, or sizes with weights as in 100:9,4KiB:1
    #[arg(long, default_value = "100")]
    value_size: ValueSize,
    /// Share of a value's bytes that compresses away
    #[arg(long, default_value_t = 0.5)]
    compressible: f64,
}

/// What is done, how fast and by how many.
#[derive(Args)]
struct Load {
    /// Operations of each workload; as many as keys if not given
    #[arg(long, value_parser = parse_count)]
    ops: Option<u64>,
    /// Operations of each workload that only reads
    #[arg(long, value_parser = parse_count)]
    reads: Option<u64>,
    /// Threads of each workload
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Draw keys by a Zipf distribution with this exponent
    #[arg(long)]
    skew: Option<f64>,
    /// Moves after each seek of seekrandom
    #[arg(long, default_value_t = 0)]
    seek_nexts: u64,
    /// Operations a second of all threads together; latencies count from when one was due
    #[arg(long)]
    rate: Option<f64>,
    /// Operations before those that are measured
    #[arg(long, default_value_t = 0, value_parser = parse_count)]
    warmup: u64,
    /// Where all random choices come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sync every write
    #[arg(long)]
    fsync: bool,
}

/// Where the store is and how it is made.
#[derive(Args)]
struct Place {
    /// disk, direct: a disk past the page cache, ram, or pmem: a disk with a pool of byte-addressable
    /// memory (option nvm, 1GiB)
    #[arg(long, default_value = "disk")]
    media: String,
    /// Make the store in a fresh directory below this one, not below the current one
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Leave the store there when the run is over, as one that serve, stats and inspect open
    #[arg(long)]
    keep: bool,
    /// An option of the engine; may be given more than once
    #[arg(long = "option", value_name = "KEY=VALUE", value_parser = key_value)]
    options: Vec<(String, String)>,
    /// Threads for compactions and the like
    #[arg(long, default_value_t = 2)]
    background_threads: usize,
}

impl Bench {
    pub(crate) fn run(self) -> CommandResult {
        let choices = Choices { skew: self.load.skew, seek_nexts: self.load.seek_nexts };
        let (mut settings, target) = (self.settings(), self.target()?);
        let workloads = match (&self.trace, &self.workload) {
            (Some(path), _) => {
                let trace = Trace::read(path)?;
                settings.keys = trace.distinct_keys();
                settings.value = ValueSize::Fixed(trace.largest_value());
                vec![Workload::replay(Arc::new(trace), self.in_time)]
            }
            (None, names) => Workload::list(names.as_deref().unwrap_or_default(), &choices)?,
        };
        settings.check()?;
        target.check()?;
        let task = Task {
            target: &target,
            settings: &settings,
            workloads: &workloads,
            seek_nexts: choices.seek_nexts,
        };
        if let Some(peer) = &self.peer {
            peers::check(peer, &task)?;
        }
        if let Some(path) = &self.plot {
            picture::check_writable(path)?;
        }
        interrupt::tidy_up()?;
        let report = self.measure(&task)?;
        if let Some(path) = &self.plot {
            picture::write(path, &throughput_picture(&report))?;
        }
        if self.json {
            println!("{}", serde_json::json!(report));
        } else {
            print!("{}", table(&report));
        }
        if let Some(kept) = report.settings.get("dir") {
            eprintln!("kept: siltstone serve {kept}");
        }
        Ok(Outcome::Done)
    }

    fn measure(&self, task: &Task<'_>) -> Result<Report, Failure> {
        let mut bars = progress::Workloads::default();
        let mut report = bench(task.target, task.workloads, task.settings, &mut |progress| {
            bars.update(progress.workload, progress.done, progress.total);
        })?;
        bars.finish();
        if let Some(peer) = &self.peer {
            let spinner = progress::spinner("peer");
            let beside = peers::run(peer, task, &mut |workload| {
                spinner.set_message(format!("{peer} {workload}"));
            })?;
            spinner.finish_and_clear();
            report.peer = Some(Box::new(beside));
        }
        Ok(report)
    }

    fn settings(&self) -> Settings {
        Settings {
            keys: self.size.keys,
            // A size that is too large for the type is too large for a key.
            key_bytes: usize::try_from(self.size.key_size).unwrap_or(usize::MAX),
            value: self.size.value_size.clone(),
            compressible: self.size.compressible,
            ops: self.load.ops,
            reads: self.load.reads,
            threads: self.load.threads,
            rate: self.load.rate,
            warmup: self.load.warmup,
            seed: self.load.seed,
            durability: if self.load.fsync { Durability::Synced } else { Durability::Buffered },
            pace: None,
        }
    }

    fn target(&self) -> Result<Target, Failure> {
        if let Some(directory) = self.place.dir.as_ref().filter(|directory| !directory.is_dir()) {
            let directory = directory.display();
            return Err(Failure::Usage(format!(
                "--dir: there is no directory {directory}; make it, or name one that is there"
            )));
        }
        let directory = self.place.dir.clone().unwrap_or_else(default_directory);
        Ok(Target {
            engine: self.engine.clone(),
            options: BTreeMap::from_iter(self.place.options.iter().cloned()),
            medium: Medium::named(&self.place.media, &directory)?,
            keep: self.place.keep,
            background_threads: self.place.background_threads,
        })
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("'{text}' is not key=value, as in memtable=4MiB")),
    }
}

fn workload_help() -> String {
    format!("The workload, or several joined by commas to run on one store: {}", NAMES.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_reads_as_written() {
        let pair = |k: &str, v: &str| Ok((k.to_owned(), v.to_owned()));
        assert_eq!(key_value("levels=1MiB:10MiB"), pair("levels", "1MiB:10MiB"));
        assert_eq!(key_value("a=b=c"), pair("a", "b=c"));
        assert!(key_value("memtable").is_err() && key_value("=1").is_err());
    }
}
