//! `repro`: experiments of papers, run and judged.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Subcommand};
use serde_json::json;
use siltstone_bench::plot_file;
use siltstone_engine::Error;
use siltstone_experiments::repro::page::{Entry, page};
use siltstone_experiments::repro::{self, EXPERIMENTS, Experiment, Finding, Verdict};

use crate::{CommandResult, Failure, console};

/// Name of the report's page in its directory.
const PAGE: &str = "index.html";
/// Name of the same as a page of the book.
const BOOK_PAGE: &str = "claims.md";

/// Run experiments of papers and compare their numbers with ours
#[derive(Args)]
pub(crate) struct Repro {
    #[command(subcommand)]
    command: ReproCommand,
}

#[derive(Subcommand)]
enum ReproCommand {
    /// List all experiments with their claims
    List(List),
    /// Run one experiment, or all of them (exit status 1 if a claim is not confirmed)
    Run(Run),
}

#[derive(Args)]
struct List {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Run {
    /// The experiment, as named by `repro list`
    #[arg(required_unless_present = "all")]
    id: Option<String>,
    /// Run every experiment, one after the other: about four hours at scale 1
    #[arg(long, requires = "report", conflicts_with_all = ["id", "json", "plot"])]
    all: bool,
    /// Write a page with every claim, number and chart to index.html in this directory, the book's
    /// page of claims to claims.md, and each finding to ID.json next to them; earlier findings stay
    /// on the pages until they are run again
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Run only experiments without a finding of this scale in the report: resume a stopped run
    #[arg(long, requires = "all")]
    resume: bool,
    /// Size of the experiment, as a share of its full size
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Number of runs, judged by the medians; one run is no verdict
    #[arg(long, default_value_t = repro::RUNS)]
    runs: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write a chart of the measurement
    #[arg(long, value_name = "FILE.svg", value_parser = plot_file::parse)]
    plot: Option<PathBuf>,
}

impl Repro {
    pub(crate) fn run(self) -> CommandResult {
        match self.command {
            ReproCommand::List(list) => list.run(),
            ReproCommand::Run(run) => run.run(),
        }
    }
}

impl List {
    fn run(&self) -> CommandResult {
        let mut out = std::io::stdout().lock();
        if self.json {
            let experiments: Vec<_> = EXPERIMENTS
                .iter()
                .map(|e| {
                    json!({
                        "id": e.id(),
                        "paper": e.paper(),
                        "figure": e.figure(),
                        "claim": e.claim(),
                        "is_ours": e.is_ours(),
                        "paper_scale": e.paper_scale(),
                        "seconds": repro::seconds(e.id()),
                        "bars": repro::bars_of(e.id()),
                    })
                })
                .collect();
            writeln!(out, "{}", json!({ "experiments": experiments }))?;
        } else {
            write!(out, "{}", repro::list())?;
        }
        Ok(true)
    }
}

impl Run {
    fn run(self) -> CommandResult {
        let experiments = match &self.id {
            Some(id) => vec![repro::find(id)?],
            None => EXPERIMENTS.to_vec(),
        };
        repro::check_scale(self.scale)?;
        if let Some(path) = &self.plot {
            plot_file::check_writable(path)?;
        }
        console::clean_up_on_signal()?;
        let mut report = self.report.as_deref().map(Report::open).transpose()?;
        let mut out = std::io::stdout();
        let mut is_confirmed = true;
        let width = repro::id_width();
        for &experiment in &experiments {
            if self.resume
                && let Some(entry) = report.as_ref().and_then(|report| report.get(experiment.id()))
                && entry.scale == self.scale
                && entry.runs == self.runs
                && let Some(verdict) = entry.judged()
            {
                writeln!(out, "{:<width$} {}, before", entry.id, verdict.name())?;
                is_confirmed &= verdict != Verdict::NotConfirmed;
                continue;
            }
            let began = Instant::now();
            let found = measure(experiment, self.scale, self.runs);
            is_confirmed &=
                found.as_ref().is_ok_and(|finding| finding.verdict != Verdict::NotConfirmed);
            if let Ok(finding) = &found {
                self.show(finding)?;
            }
            if let Some(report) = &mut report {
                let seconds = began.elapsed().as_secs_f64();
                report.add(Entry::of(
                    experiment,
                    self.scale,
                    self.runs,
                    found.as_ref(),
                    seconds,
                ))?;
            }
            match found {
                // The other experiments can still run.
                Err(error) if self.all => {
                    let _ = writeln!(std::io::stderr(), "{}: {error}", experiment.id());
                }
                found => _ = found?,
            }
        }
        Ok(is_confirmed)
    }

    fn show(&self, finding: &Finding) -> Result<(), Failure> {
        if let (Some(path), Some(plot)) = (&self.plot, &finding.plot) {
            plot_file::write(path, plot)?;
        }
        let mut out = std::io::stdout().lock();
        if self.all {
            let width = repro::id_width();
            writeln!(out, "{:<width$} {}", finding.id, finding.verdict.name())?;
        } else if self.json {
            writeln!(out, "{}", json!(finding))?;
        } else {
            write!(out, "{}", repro::text(finding))?;
        }
        Ok(())
    }
}

fn measure(experiment: &dyn Experiment, scale: f64, runs: usize) -> Result<Finding, Error> {
    let bar = console::progress_bar();
    bar.set_message(experiment.id());
    let finding = repro::run(experiment, scale, runs, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    finding
}

/// A directory of findings with a page of all of them, which is rewritten after each experiment.
struct Report {
    directory: PathBuf,
    environment: String,
    entries: Vec<Entry>,
}

impl Report {
    /// Opens a report with the findings that are in the directory.
    fn open(directory: &Path) -> Result<Self, Failure> {
        let page = directory.join(PAGE);
        std::fs::create_dir_all(directory).map_err(|error| cannot("create", directory, &error))?;
        plot_file::check_writable(&page)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let environment = format!(
            "Measured by siltstone {} on a machine with {cores} cores for it.",
            env!("CARGO_PKG_VERSION")
        );
        let mut entries = Vec::new();
        for experiment in EXPERIMENTS {
            entries.extend(read_entry(&entry_path(directory, experiment.id()))?);
        }
        Ok(Report { directory: directory.to_owned(), environment, entries })
    }

    fn get(&self, id: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    /// Adds a finding, replacing an earlier one of the same experiment.
    fn add(&mut self, entry: Entry) -> Result<(), Failure> {
        write(&entry_path(&self.directory, &entry.id), &json!(entry).to_string())?;
        self.entries.retain(|other| other.id != entry.id);
        self.entries.push(entry);
        let position = |entry: &Entry| EXPERIMENTS.iter().position(|other| other.id() == entry.id);
        self.entries.sort_by_key(position);
        let page = page(&self.entries, EXPERIMENTS.len(), &self.environment);
        write(&self.directory.join(PAGE), &page)?;
        write(&self.directory.join(BOOK_PAGE), &repro::book_page(&self.entries, &self.environment))
    }
}

fn entry_path(directory: &Path, id: &str) -> PathBuf {
    directory.join(id).with_extension("json")
}

/// Reads an earlier finding, if there is one.
fn read_entry(path: &Path) -> Result<Option<Entry>, Failure> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| cannot("read", path, &error))?,
    };
    let entry = serde_json::from_str(&text);
    entry.map(Some).map_err(|error| {
        Failure::Usage(format!(
            "{} is not a finding of an experiment: {error}; remove it to continue",
            path.display()
        ))
    })
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| cannot("write", path, &error))
}

fn cannot(operation: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::Store(format!("cannot {operation} {}: {error}", path.display()))
}
