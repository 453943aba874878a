//! The options of `siltstone bench`, and the run that they describe.
//!
//! [`BenchArgs`] is a set of clap options that a program flattens into its own command.
//! [`BenchArgs::plan`] turns them into a [`Plan`] and refuses everything that can be refused before
//! anything is measured.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use siltstone::Durability;
use siltstone::options::{parse_count, parse_size};
use siltstone_engine::{Error, Result};

use crate::engines::{Storage, Target, default_directory};
use crate::generate::ValueSize;
use crate::plot_file;
use crate::run::Settings;
use crate::trace::Trace;
use crate::workload::{Choices, NAMES, Workload};

/// The options of a benchmark.
#[derive(Args)]
pub struct BenchArgs {
    /// The engine
    #[arg(long, default_value = "lsm")]
    engine: String,
    #[arg(long, help = workload_help(), required_unless_present = "trace")]
    workload: Option<String>,
    /// Replay the requests of a trace (written by serve --trace-out) instead of a workload. Keys
    /// that it reads before it writes them are loaded first
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "keys", "value_size", "skew", "reads"])]
    trace: Option<PathBuf>,
    /// Send each request of a trace at its recorded time instead of back to back; latencies count
    /// from that time
    #[arg(long, alias = "in-time", requires = "trace", conflicts_with = "rate")]
    paced: bool,
    // Boxed: one command with many options would make the enum of all commands as large.
    #[command(flatten)]
    size: Box<Size>,
    #[command(flatten)]
    load: Box<Load>,
    #[command(flatten)]
    location: Box<StoreLocation>,
    /// Write a chart of the throughput over time
    #[arg(long, value_name = "FILE.svg", value_parser = plot_file::parse)]
    pub plot: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Number and size of keys and values.
#[derive(Args)]
struct Size {
    /// Number of distinct keys, e.g. 20M
    #[arg(long, default_value_t = 1_000_000, value_parser = parse_count)]
    keys: u64,
    /// Bytes per key: 4 to 64KiB
    #[arg(long, default_value = "16", value_parser = parse_size)]
    key_size: u64,
    /// Bytes per value: 100, 1KiB, 100..1000, or sizes with weights as in 100:9,4KiB:1
    #[arg(long, default_value = "100")]
    value_size: ValueSize,
    /// Share of a value's bytes that compresses away
    #[arg(long, default_value_t = 0.5)]
    compressible: f64,
}

/// Operations, arrival rate and threads.
#[derive(Args)]
struct Load {
    /// Operations per workload (default: the number of keys)
    #[arg(long, value_parser = parse_count)]
    ops: Option<u64>,
    /// Operations per read-only workload (default: --ops)
    #[arg(long, value_parser = parse_count)]
    reads: Option<u64>,
    /// Threads per workload
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Draw keys from a Zipf distribution with this exponent
    #[arg(long)]
    skew: Option<f64>,
    /// Cursor moves after each seek of seekrandom
    #[arg(long, default_value_t = 0)]
    seek_nexts: u64,
    /// Open loop: operations per second of all threads together; latencies count from an
    /// operation's scheduled time
    #[arg(long, value_parser = parse_count)]
    rate: Option<u64>,
    /// Operations before the measured ones
    #[arg(long, default_value_t = 0, value_parser = parse_count)]
    warmup: u64,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sync every write
    #[arg(long)]
    fsync: bool,
}

/// The location of the store, and the options it is created with.
#[derive(Args)]
struct StoreLocation {
    /// disk; direct: a disk without the page cache; ram; or pmem: a disk with a pool of
    /// byte-addressable memory (option pmem.size, 1GiB)
    #[arg(long, alias = "media", default_value = "disk")]
    storage: String,
    /// Create the store in a fresh directory below this one (default: the current directory)
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Keep the store after the run, so that serve, stats and inspect can open it
    #[arg(long, alias = "keep")]
    keep_data: bool,
    /// An option of the engine; may be given more than once
    #[arg(long = "option", value_name = "KEY=VALUE", value_parser = key_value)]
    options: Vec<(String, String)>,
    /// Threads for flushes and compactions
    #[arg(long, default_value_t = 2)]
    background_threads: usize,
}

/// A benchmark whose settings were checked.
#[derive(Debug)]
pub struct Plan {
    /// The engine under test.
    pub target: Target,
    /// How workloads are run.
    pub settings: Settings,
    /// The workloads, in order.
    pub workloads: Vec<Workload>,
    /// Cursor moves after each seek.
    pub seek_nexts: u64,
}

impl BenchArgs {
    /// The run that the options describe; reads the trace, if one is given.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`] and [`Error::Invalid`] for options that are out of range or
    /// unknown; faults of reading the trace.
    pub fn plan(&self) -> Result<Plan> {
        let choices = Choices { skew: self.load.skew, seek_nexts: self.load.seek_nexts };
        let (mut settings, target) = (self.settings(), self.target()?);
        let workloads = match (&self.trace, &self.workload) {
            (Some(path), _) => {
                let trace = Trace::read(path)?;
                settings.keys = trace.distinct_keys();
                settings.value = ValueSize::Fixed(trace.largest_value());
                vec![Workload::replay(Arc::new(trace), self.paced)]
            }
            (None, names) => Workload::list(names.as_deref().unwrap_or_default(), &choices)?,
        };
        settings.check()?;
        target.check()?;
        Ok(Plan { target, settings, workloads, seek_nexts: choices.seek_nexts })
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
            rate: self.load.rate.map(|rate| rate as f64),
            warmup: self.load.warmup,
            seed: self.load.seed,
            durability: if self.load.fsync { Durability::Synced } else { Durability::Buffered },
            pace: None,
        }
    }

    fn target(&self) -> Result<Target> {
        if let Some(directory) = self.location.dir.as_ref().filter(|directory| !directory.is_dir())
        {
            let directory = directory.display();
            return Err(Error::Invalid(format!(
                "--dir: there is no directory {directory}; make it, or name an existing one"
            )));
        }
        let directory = self.location.dir.clone().unwrap_or_else(default_directory);
        Ok(Target {
            engine: self.engine.clone(),
            options: BTreeMap::from_iter(self.location.options.iter().cloned()),
            storage: Storage::named(&self.location.storage, &directory)?,
            keep: self.location.keep_data,
            background_threads: self.location.background_threads,
        })
    }
}

fn key_value(text: &str) -> std::result::Result<(String, String), String> {
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
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: BenchArgs,
    }

    #[test]
    fn engine_option_is_split_at_the_first_equals_sign() {
        let pair = |k: &str, v: &str| Ok((k.to_owned(), v.to_owned()));
        assert_eq!(key_value("levels=1MiB:10MiB"), pair("levels", "1MiB:10MiB"));
        assert_eq!(key_value("a=b=c"), pair("a", "b=c"));
        assert!(key_value("memtable").is_err() && key_value("=1").is_err());
    }

    #[test]
    fn former_option_names_are_aliases() {
        let line = ["bench", "--trace", "x", "--in-time", "--media", "ram", "--keep"];
        let args = Program::try_parse_from(line).unwrap().args;
        assert!(args.paced && args.location.keep_data);
        assert_eq!(args.location.storage, "ram");
    }
}
