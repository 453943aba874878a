//! The command `siltstone-torture`.
//!
//! The report goes to standard output, progress and findings to standard error. Exit status:
//! 0 no findings, 1 findings, 2 usage, 3 the harness could not do its work, 130 interrupted.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use siltstone_torture::engines::{self, ENGINES, Engine};
use siltstone_torture::faults::{self, FAULTS, Fault};
use siltstone_torture::runner::{Plan, Report};
use siltstone_torture::settings::Settings;
use siltstone_torture::{program, report, runner};

/// Test the siltstone program as a black box under faults
///
/// Starts `siltstone serve` on small stores, writes over several connections, injects a fault,
/// restarts the server and compares every key with the writes that were acknowledged, refused or in
/// flight.
#[derive(Parser)]
#[command(
    name = "siltstone-torture",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Try:\n  \
        siltstone-torture list\n  \
        siltstone-torture --engine lsm --fault kill --rounds 200\n  \
        siltstone-torture --engine lsm,trie,silt,skimpy --fault kill,term --rounds 10000 --seed 1 --jobs 2\n\n\
        A round is one fault. A history is a sequence of up to fifty rounds on one store; its seed determines \
        the writes and the time of each fault. A finding has the command that repeats its history.\n\n\
        Exit status: 0 no findings, 1 findings, 2 usage, 3 the harness could not do its work, 130 interrupted."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Run,
}

#[derive(Subcommand)]
enum Command {
    /// Show the engines and the fault classes, one line each
    List,
}

#[derive(Args)]
struct Run {
    /// Engines, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = engine)]
    engine: Vec<&'static Engine>,
    /// Fault classes, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = fault)]
    fault: Vec<FaultArg>,
    /// Rounds per engine and fault class
    #[arg(long, default_value_t = 100)]
    rounds: u64,
    /// The seed of the run, from which the seeds of the histories derive
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only the history of this seed, as a finding shows it
    #[arg(long, value_name = "SEED")]
    history: Option<u64>,
    /// Histories in parallel
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=256))]
    jobs: u64,
    /// Skip the rest of a pair of engine and fault class after this number of findings
    #[arg(long, default_value_t = 5, value_name = "COUNT")]
    max_findings: u64,
    /// The siltstone program [default: the one beside this program, which `cargo run` builds first]
    #[arg(long, value_name = "FILE")]
    siltstone: Option<PathBuf>,
    /// The directory for stores [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// The directory for stores with findings [default: siltstone-torture in --scratch]
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy)]
struct FaultArg(&'static dyn Fault);

fn engine(name: &str) -> Result<&'static Engine, String> {
    let names: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
    engines::find(name).ok_or_else(|| format!("the engines are {}", names.join(", ")))
}

fn fault(name: &str) -> Result<FaultArg, String> {
    let names: Vec<_> = FAULTS.iter().map(|fault| fault.name()).collect();
    let found = faults::find(name).map(FaultArg);
    found.ok_or_else(|| format!("the fault classes are {}", names.join(", ")))
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Some(Command::List) => {
            list();
            ExitCode::SUCCESS
        }
        None => cli.run.run().unwrap_or_else(|error| {
            eprintln!("siltstone-torture: {error}");
            ExitCode::from(3)
        }),
    }
}

fn list() {
    println!("engines");
    for engine in ENGINES {
        println!("  {:<18} {}", engine.name, engine.about);
    }
    println!("fault classes");
    for fault in FAULTS {
        println!("  {:<18} {}", fault.name(), fault.about());
        if let Some(why) = fault.obstacle() {
            println!("  {:<18} (skipped here: {why})", "");
        }
    }
}

impl Run {
    fn run(self) -> Result<ExitCode, String> {
        let harness = std::env::current_exe().map_err(|error| error.to_string())?;
        let program = match self.siltstone {
            Some(program) if program.is_file() => program,
            Some(program) => return Err(format!("there is no program {}", program.display())),
            None => program::built_beside(&harness)?,
        };
        let scratch = self.scratch.unwrap_or_else(std::env::temp_dir);
        let keep = self.keep.unwrap_or_else(|| scratch.join("siltstone-torture"));
        let interrupted = Arc::new(AtomicBool::new(false));
        let settings = Settings { program, scratch, keep, interrupted: interrupted.clone() };
        let engines: Vec<_> = match self.engine.is_empty() {
            true => ENGINES.iter().collect(),
            false => self.engine,
        };
        let faults: Vec<_> = match self.fault.is_empty() {
            true => FAULTS.to_vec(),
            false => self.fault.iter().map(|fault| fault.0).collect(),
        };
        let pairs = |engine| faults.iter().map(move |fault| (engine, *fault));
        let plan = Plan {
            pairs: engines.into_iter().flat_map(pairs).collect(),
            rounds: self.rounds,
            seed: self.seed,
            history: self.history,
            jobs: self.jobs as usize,
            max_findings: self.max_findings,
        };
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, interrupted.clone())
                .map_err(|error| format!("cannot listen for signals: {error}"))?;
        }
        let report = run_with_progress(&settings, &plan);
        if self.json {
            println!("{}", serde_json::json!(report));
        } else {
            print!("{}", report::table(&report));
        }
        report.harness_errors.iter().for_each(|error| eprintln!("siltstone-torture: {error}"));
        Ok(ExitCode::from(match &report {
            report if !report.findings.is_empty() => 1,
            report if !report.harness_errors.is_empty() => 3,
            report if report.interrupted => 130,
            _ => 0,
        }))
    }
}

/// Runs the plan with a progress bar and prints each finding.
fn run_with_progress(settings: &Settings, plan: &Plan) -> Report {
    let runnable = plan.pairs.iter().filter(|(_, fault)| fault.obstacle().is_none()).count();
    let total = runnable as u64 * plan.rounds;
    // `stderr` draws nothing when standard error is no terminal.
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let template = "[{bar:30}] {human_pos}/{human_len} rounds, {per_sec}, {eta} left, {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    let progress = |engine: &str, fault: &str, findings: u64| {
        bar.inc(1);
        bar.set_message(format!("{findings} findings ({engine} {fault})"));
    };
    let report = runner::run(settings, plan, &progress, &|finding| {
        bar.suspend(|| eprint!("{}", report::finding(finding)));
    });
    bar.finish_and_clear();
    report
}
