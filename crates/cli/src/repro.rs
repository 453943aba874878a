//! `repro`: claims of papers, repeated and judged.
//!
//! The experiments are the lab's. Exit status 1 says that a claim does not hold.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use siltstone_lab::repro::{self, EXPERIMENTS, Verdict};

use crate::bench::{check_writable, write_picture};
use crate::{CommandResult, Outcome, progress};

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
    /// Run one (exit status 1 if its claim does not hold)
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
    id: String,
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
        let experiment = repro::find(&self.id)?;
        if let Some(path) = &self.plot {
            check_writable(path)?;
        }
        let bar = progress::count("measuring", 0);
        let finding = repro::run(experiment, self.scale, &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        })?;
        bar.finish_and_clear();
        if let (Some(path), Some(plot)) = (&self.plot, &finding.plot) {
            write_picture(path, plot)?;
        }
        if self.json {
            println!("{}", json!(finding));
        } else {
            print!("{}", repro::text(&finding));
        }
        Ok(match finding.verdict {
            Verdict::Holds | Verdict::HoldsInDirection => Outcome::Done,
            Verdict::DoesNotHold => Outcome::No,
        })
    }
}
