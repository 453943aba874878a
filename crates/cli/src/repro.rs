//! `repro`: claims of papers, repeated and judged.
//!
//! The experiments are the lab's. Exit status 1 says that a claim does not hold.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Subcommand};
use serde_json::json;
use siltstone::Error;
use siltstone_lab::repro::page::{Entry, page};
use siltstone_lab::repro::{self, EXPERIMENTS, Experiment, Finding, Verdict};

use crate::{CommandResult, Failure, Outcome, interrupt, picture, progress};

/// The page's name in its directory.
const PAGE: &str = "index.html";

/// Repeat an experiment of a paper and compare its figure with ours
#[derive(Args)]
pub(crate) struct Repro {
    #[command(subcommand)]
    command: ReproCommand,
}

#[derive(Subcommand)]
enum ReproCommand {
    /// List all experiments with their claims
    List(List),
    /// Run one, or all of them (exit status 1 if a claim does not hold)
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
    /// The experiment, as `repro list` names it
    #[arg(required_unless_present = "all")]
    id: Option<String>,
    /// Run every experiment, one after the other: three quarters of an hour at scale 1
    #[arg(long, requires = "report", conflicts_with_all = ["id", "json", "plot"])]
    all: bool,
    /// Write a page with every claim, number and picture to index.html in this directory, and what was
    /// found to ID.json beside it; findings that are there stay on the page until they are run again
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Run only what the report has no finding of at this scale: go on where a run was stopped
    #[arg(long, requires = "all")]
    resume: bool,
    /// Its size, as a share of its own full size
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write a picture of what was measured
    #[arg(long, value_name = "FILE.svg", value_parser = picture::file)]
    plot: Option<PathBuf>,
}

impl Repro {
    pub(crate) fn run(self) -> CommandResult {
        match self.command {
            ReproCommand::List(list) => Ok(list.run()),
            ReproCommand::Run(run) => run.run(),
        }
    }
}

impl List {
    fn run(&self) -> Outcome {
        if self.json {
            let experiments: Vec<_> = EXPERIMENTS
                .iter()
                .map(|e| {
                    json!({
                        "id": e.id(),
                        "paper": e.paper(),
                        "figure": e.figure(),
                        "claim": e.claim(),
                        "seconds": repro::seconds(e.id()),
                    })
                })
                .collect();
            println!("{}", json!({ "experiments": experiments }));
        } else {
            print!("{}", repro::list());
        }
        Outcome::Done
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
            picture::check_writable(path)?;
        }
        interrupt::tidy_up()?;
        let mut report = self.report.as_deref().map(Report::open).transpose()?;
        let mut outcome = Outcome::Done;
        let width = repro::id_width();
        for &experiment in &experiments {
            if self.resume
                && let Some(entry) = report.as_ref().and_then(|report| report.get(experiment.id()))
                && entry.scale == self.scale
                && let Some(verdict) = entry.verdict
            {
                println!("{:<width$} {}, before", entry.id, verdict.name());
                if verdict == Verdict::DoesNotHold {
                    outcome = Outcome::No;
                }
                continue;
            }
            let began = Instant::now();
            let found = self.measure(experiment);
            if !found.as_ref().is_ok_and(|finding| finding.verdict != Verdict::DoesNotHold) {
                outcome = Outcome::No;
            }
            if let Ok(finding) = &found {
                self.show(finding)?;
            }
            if let Some(report) = &mut report {
                let seconds = began.elapsed().as_secs_f64();
                report.add(Entry::of(experiment, self.scale, found.as_ref(), seconds))?;
            }
            match found {
                // The others can still run.
                Err(error) if self.all => eprintln!("{}: {error}", experiment.id()),
                found => _ = found?,
            }
        }
        Ok(outcome)
    }

    fn measure(&self, experiment: &dyn Experiment) -> Result<Finding, Error> {
        let bar = progress::count(experiment.id(), 0);
        let finding = repro::run(experiment, self.scale, &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        finding
    }

    fn show(&self, finding: &Finding) -> Result<(), Failure> {
        if let (Some(path), Some(plot)) = (&self.plot, &finding.plot) {
            picture::write(path, plot)?;
        }
        if self.all {
            let width = repro::id_width();
            println!("{:<width$} {}", finding.id, finding.verdict.name());
        } else if self.json {
            println!("{}", json!(finding));
        } else {
            print!("{}", repro::text(finding));
        }
        Ok(())
    }
}

/// The page of what has run, written anew after each experiment, and the findings that it is made of.
struct Report {
    directory: PathBuf,
    made: String,
    entries: Vec<Entry>,
}

impl Report {
    /// With the findings that are in the directory.
    fn open(directory: &Path) -> Result<Self, Failure> {
        let page = directory.join(PAGE);
        let fault = |error| Failure::file("write", &page.display().to_string(), &error);
        std::fs::create_dir_all(directory).map_err(fault)?;
        picture::check_writable(&page)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let made = format!(
            "Measured by siltstone {} on a machine with {cores} cores for it.",
            env!("CARGO_PKG_VERSION")
        );
        let mut entries = Vec::new();
        for experiment in EXPERIMENTS {
            entries.extend(kept(&entry_path(directory, experiment.id()))?);
        }
        Ok(Report { directory: directory.to_owned(), made, entries })
    }

    fn get(&self, id: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    /// Puts a finding in the place of one of the same experiment.
    fn add(&mut self, entry: Entry) -> Result<(), Failure> {
        write(&entry_path(&self.directory, &entry.id), &json!(entry).to_string())?;
        self.entries.retain(|other| other.id != entry.id);
        self.entries.push(entry);
        let place = |entry: &Entry| EXPERIMENTS.iter().position(|other| other.id() == entry.id);
        self.entries.sort_by_key(place);
        let page = page(&self.entries, EXPERIMENTS.len(), &self.made);
        write(&self.directory.join(PAGE), &page)
    }
}

fn entry_path(directory: &Path, id: &str) -> PathBuf {
    directory.join(id).with_extension("json")
}

/// A finding from before, if there is one.
fn kept(path: &Path) -> Result<Option<Entry>, Failure> {
    let name = path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| Failure::file("read", &name, &error))?,
    };
    let entry = serde_json::from_str(&text);
    entry.map(Some).map_err(|error| {
        Failure::Usage(format!(
            "{name} is no finding of an experiment: {error}; remove it to go on"
        ))
    })
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let fault = |error| Failure::file("write", &path.display().to_string(), &error);
    std::fs::write(path, text).map_err(fault)
}
