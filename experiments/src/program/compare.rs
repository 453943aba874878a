//! `compare`: our engines beside other stores, as one table.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;
use indicatif::ProgressBar;
use siltstone::options::parse_count;
use siltstone_bench::plot_file;
use siltstone_bench::report::Report;
use siltstone_engine::names::unknown;
use siltstone_experiments::compare::chart::throughput_chart;
use siltstone_experiments::compare::groups::{GROUPS, Group};
use siltstone_experiments::compare::record::{Outcome, Record};
use siltstone_experiments::compare::table::table;
use siltstone_experiments::compare::{DEFAULT_STORES, OURS, RUNS};
use siltstone_experiments::peers;

use crate::{CommandResult, Failure, console};

/// Compare our engines with other stores: one table, medians of several runs
///
/// Each run is a process of its own over a fresh store, and the stores take turns. Prints a table
/// in Markdown: a cell is the median, with the smallest and the largest in brackets.
#[derive(Args)]
pub(crate) struct Compare {
    /// The stores, joined by commas: lsm, trie, silt, or a peer of `bench`
    #[arg(long, value_delimiter = ',', default_values = DEFAULT_STORES)]
    stores: Vec<String>,
    #[arg(long, value_delimiter = ',', help = groups_help())]
    groups: Vec<String>,
    /// Number of distinct keys of 16 bytes; groups with large values have fewer
    #[arg(long, default_value_t = 1_000_000, value_parser = parse_count)]
    keys: u64,
    /// Number of runs per cell
    #[arg(long, default_value_t = RUNS)]
    runs: usize,
    /// Append each finished run to this file, and skip the runs that it has
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Create the stores below this directory (default: the current directory)
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Write a chart of the throughput of each store, as a multiple of the first one's
    #[arg(long, value_name = "FILE.svg", value_parser = plot_file::parse)]
    plot: Option<PathBuf>,
}

fn groups_help() -> String {
    let names: Vec<_> = GROUPS.iter().map(|group| group.name).collect();
    format!("The groups of workloads, joined by commas (default: all): {}", names.join(", "))
}

impl Compare {
    pub(crate) fn run(self) -> CommandResult {
        let groups = self.groups()?;
        for store in &self.stores {
            if !OURS.contains(&store.as_str()) && !peers::NAMES.contains(&store.as_str()) {
                let names: Vec<_> = OURS.iter().chain(peers::NAMES).copied().collect();
                return Err(Failure::Usage(format!("--stores: {}", unknown(store, &names))));
            }
        }
        if self.runs == 0 || self.keys == 0 {
            return Err(Failure::Usage("--runs and --keys must be at least 1".to_owned()));
        }
        if let Some(path) = &self.plot {
            plot_file::check_writable(path)?;
        }
        let mut record = match &self.results {
            Some(path) => Record::open(path).map_err(|error| {
                Failure::Usage(format!("--results: {}: {error}", path.display()))
            })?,
            None => Record::default(),
        };
        console::clean_up_on_signal()?;
        let bar = console::progress_bar();
        bar.set_length((self.runs * groups.len() * self.stores.len()) as u64);
        for run in 0..self.runs {
            for group in &groups {
                for store in &self.stores {
                    if !record.has(group.name, store, self.keys, run) {
                        record.push(self.measure(group, store, run, &bar)?)?;
                    }
                    bar.inc(1);
                }
            }
        }
        bar.finish_and_clear();
        let text = table(&record, &groups, &self.stores, self.keys);
        write!(std::io::stdout().lock(), "{text}")?;
        if let Some(path) = &self.plot {
            plot_file::write(path, &throughput_chart(&record, &groups, &self.stores, self.keys))?;
        }
        Ok(true)
    }

    fn groups(&self) -> Result<Vec<Group>, Failure> {
        let names: Vec<_> = GROUPS.iter().map(|group| group.name).collect();
        if let Some(name) = self.groups.iter().find(|name| !names.contains(&name.as_str())) {
            return Err(Failure::Usage(format!("--groups: {}", unknown(name, &names))));
        }
        let is_chosen = |group: &&Group| {
            self.groups.is_empty() || self.groups.iter().any(|name| name == group.name)
        };
        Ok(GROUPS.iter().filter(is_chosen).copied().collect())
    }

    /// One run in a process of its own.
    fn measure(
        &self,
        group: &Group,
        store: &str,
        run: usize,
        bar: &ProgressBar,
    ) -> Result<Outcome, Failure> {
        bar.set_message(format!("{store} {}", group.name));
        let cannot_start = |error| Failure::Store(format!("cannot start a run: {error}"));
        let program = std::env::current_exe().map_err(cannot_start)?;
        let mut command = Command::new(program);
        command.arg("bench").arg("--json").args(group.arguments(self.keys));
        match OURS.contains(&store) {
            true => command.args(["--engine", store]),
            false => command.args(["--peer", store, "--peer-only"]),
        };
        // Another seed per run: another order of keys.
        command.args(["--seed", &(run + 1).to_string()]);
        if let Some(directory) = &self.dir {
            command.arg("--dir").arg(directory);
        }
        let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output();
        let output = output.map_err(cannot_start)?;
        let report: Result<Report, String> = match output.status.success() {
            true => serde_json::from_slice(&output.stdout).map_err(|error| error.to_string()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        };
        let (group, store) = (group.name.to_owned(), store.to_owned());
        let (error, report) = (report.as_ref().err().cloned(), report.ok());
        Ok(Outcome { group, store, keys: self.keys, run, report, error })
    }
}
