//! `compare-servers`: our server beside Redis, as one table.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use siltstone_bench::plot::{Bars, Plot};
use siltstone_bench::plot_file;
use siltstone_engine::names::unknown;
use siltstone_experiments::compare::RUNS;
use siltstone_experiments::compare::servers::{
    Load, SERVERS, Sample, calls, measure, ratios, table,
};

use crate::{CommandResult, Failure, console};

/// Compare our server with Redis under `redis-benchmark`: one table, medians of several runs
///
/// Each run starts a fresh process of each server: `lsm` and `mica` are `siltstone serve` with a
/// table of that engine, `redis` is `redis-server` with an append-only file synced every second.
/// Prints a table in Markdown: a cell is the median, with the smallest and the largest in brackets.
#[derive(Args)]
pub(crate) struct CompareServers {
    /// The servers, joined by commas
    #[arg(long, value_delimiter = ',', default_values = SERVERS)]
    servers: Vec<String>,
    /// Requests of each pipelined command; a tenth of it where requests are sent one at a time
    #[arg(long, default_value_t = 1_000_000, value_parser = siltstone::options::parse_count)]
    requests: u64,
    /// Number of distinct keys, fields, members and elements
    #[arg(long, default_value_t = 1_000_000, value_parser = siltstone::options::parse_count)]
    keys: u64,
    /// Number of runs per cell
    #[arg(long, default_value_t = RUNS)]
    runs: usize,
    /// Write a chart of the rates of lsm as multiples of those of Redis
    #[arg(long, value_name = "FILE.svg", value_parser = plot_file::parse)]
    plot: Option<PathBuf>,
}

impl CompareServers {
    pub(crate) fn run(self) -> CommandResult {
        if let Some(other) = self.servers.iter().find(|name| !SERVERS.contains(&name.as_str())) {
            return Err(Failure::Usage(format!("--servers: {}", unknown(other, SERVERS))));
        }
        if self.runs == 0 || self.requests == 0 || self.keys == 0 {
            return Err(Failure::Usage("--runs, --requests and --keys must be at least 1".into()));
        }
        if let Some(path) = &self.plot {
            plot_file::check_writable(path)?;
        }
        console::clean_up_on_signal()?;
        let bar = console::progress_bar();
        bar.set_length(calls() * (self.runs * self.servers.len()) as u64);
        let load = Load { requests: self.requests, keys: self.keys };
        let mut samples = Vec::new();
        for _ in 0..self.runs {
            for server in &self.servers {
                samples.extend(measure(server, load, &mut |command| {
                    bar.set_message(format!("{server} {command}"));
                    bar.inc(1);
                })?);
            }
        }
        bar.finish_and_clear();
        write!(std::io::stdout().lock(), "{}", table(&samples, &self.servers))?;
        if let Some(path) = &self.plot {
            plot_file::write(path, &chart(&samples))?;
        }
        Ok(true)
    }
}

fn chart(samples: &[Sample]) -> Plot {
    let ratios = ratios(samples, "lsm", "redis");
    let of = |at: usize| ratios.iter().map(|(_, ratios)| ratios[at]).collect();
    Plot::Bars(Bars {
        title: "Operations per second of lsm, as a multiple of Redis's".to_owned(),
        y: "times Redis".to_owned(),
        groups: ratios.iter().map(|(command, _)| (*command).to_owned()).collect(),
        series: vec![("32 in flight".to_owned(), of(0)), ("1 in flight".to_owned(), of(1))],
    })
}
