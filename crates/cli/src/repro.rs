//! `repro`: claims of papers, repeated and judged.
//!
//! The experiments are the lab's. Exit status 1 says that a claim does not hold.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Subcommand};
use serde_json::json;
use siltstone::Error;
use siltstone_lab::repro::page::{Entry, page};
use siltstone_lab::repro::{self, EXPERIMENTS, Experiment, Finding, Verdict};

use crate::bench::{check_writable, write_picture};
use crate::{CommandResult, Failure, Outcome, progress};

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
    /// Run every experiment, one after the other: hours at scale 1
    #[arg(long, requires = "report", conflicts_with_all = ["id", "json", "plot"])]
    all: bool,
    /// Write a page with every claim, number and picture to index.html in this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Its size, as a share of its own full size
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write a picture of what was measured
    #[arg(long, value_name = "FILE.svg")]
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
        if let Some(path) = &self.plot {
            check_writable(path)?;
        }
        let mut report = self.report.as_deref().map(Report::begin).transpose()?;
        let mut outcome = Outcome::Done;
        for experiment in &experiments {
            let began = Instant::now();
            let found = self.measure(*experiment);
            if !found.as_ref().is_ok_and(|finding| finding.verdict != Verdict::DoesNotHold) {
                outcome = Outcome::No;
            }
            if let Ok(finding) = &found {
                self.show(finding)?;
            }
            match &mut report {
                // The others can still run.
                Some(report) if self.all => {
                    if let Err(error) = &found {
                        eprintln!("{}: {error}", experiment.id());
                    }
                    report.add(*experiment, found, began, experiments.len())?;
                }
                Some(report) => report.add(*experiment, Ok(found?), began, experiments.len())?,
                None => _ = found?,
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
            write_picture(path, plot)?;
        }
        if self.all {
            println!("{:<22} {}", finding.id, finding.verdict.name());
        } else if self.json {
            println!("{}", json!(finding));
        } else {
            print!("{}", repro::text(finding));
        }
        Ok(())
    }
}

/// The page of what has run, written anew after each experiment.
struct Report {
    path: PathBuf,
    made: String,
    entries: Vec<Entry>,
}

impl Report {
    fn begin(directory: &Path) -> Result<Self, Failure> {
        let path = directory.join("index.html");
        let fault = |error| Failure::file("write", &path.display().to_string(), &error);
        std::fs::create_dir_all(directory).map_err(fault)?;
        check_writable(&path)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let made = format!(
            "Measured by siltstone {} on a machine with {cores} cores for it.",
            env!("CARGO_PKG_VERSION")
        );
        Ok(Report { path, made, entries: Vec::new() })
    }

    fn add(
        &mut self,
        experiment: &'static dyn Experiment,
        found: Result<Finding, Error>,
        began: Instant,
        total: usize,
    ) -> Result<(), Failure> {
        let outcome = found.map_err(|error| error.to_string());
        let seconds = began.elapsed().as_secs_f64();
        self.entries.push(Entry { experiment, outcome, seconds });
        std::fs::write(&self.path, page(&self.entries, total, &self.made))
            .map_err(|error| Failure::file("write", &self.path.display().to_string(), &error))
    }
}
