//! Runs histories in parallel and collects their results.
//!
//! The rounds of every pair of engine and fault class are divided into histories, whose seeds
//! derive from the seed of the run. The jobs run the first history of each pair, then the second,
//! and so on, so that an interrupted run has covered all pairs. A history ends with its first
//! finding; the others go on.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::engines::Engine;
use crate::faults::Fault;
use crate::finding::{Finding, Stop};
use crate::history::History;
use crate::lane::Counts;
use crate::random::Random;
use crate::settings::Settings;

/// The histories of a run.
pub struct Plan {
    /// The engines and the fault classes, in pairs.
    pub pairs: Vec<(&'static Engine, &'static dyn Fault)>,
    /// Rounds per pair.
    pub rounds: u64,
    /// The seed of the run.
    pub seed: u64,
    /// Run only the history of this seed.
    pub history: Option<u64>,
    /// Histories in parallel.
    pub jobs: usize,
    /// Findings of one pair after which the run skips its remaining histories.
    pub max_findings: u64,
}

/// The result of one pair.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The engine.
    pub engine: &'static str,
    /// The fault class.
    pub fault: &'static str,
    /// The reason why it was skipped, if it was.
    pub skipped: Option<String>,
    /// Completed rounds.
    pub rounds: u64,
    /// Number of histories.
    pub histories: u64,
    /// Acknowledged writes.
    pub acknowledged: u64,
    /// Refused writes.
    pub refused: u64,
    /// Writes of unknown outcome.
    pub unknown: u64,
    /// Reads that were compared with the oracle.
    pub compared: u64,
    /// Findings.
    pub findings: u64,
    /// Total time of its histories.
    pub seconds: f64,
}

/// The result of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The seed of the run.
    pub seed: u64,
    /// One row per pair.
    pub rows: Vec<Row>,
    /// All findings.
    pub findings: Vec<Finding>,
    /// Errors of the harness.
    pub harness_errors: Vec<String>,
    /// Whether the run was interrupted.
    pub interrupted: bool,
    /// The duration.
    pub seconds: f64,
}

/// A history that has not run yet.
struct Task {
    pair: usize,
    seed: u64,
    rounds: u64,
}

/// Runs a plan. `progress` is called after every round with the names of the pair and the number of
/// findings.
pub fn run(
    settings: &Settings,
    plan: &Plan,
    progress: &(dyn Fn(&str, &str, u64) + Sync),
    on_finding: &(dyn Fn(&Finding) + Sync),
) -> Report {
    let begun = Instant::now();
    let pairs = &plan.pairs;
    let rows = pairs.iter().map(|(engine, fault)| empty(engine.name, *fault));
    let report = Mutex::new(Report {
        seed: plan.seed,
        rows: rows.collect(),
        findings: Vec::new(),
        harness_errors: Vec::new(),
        interrupted: false,
        seconds: 0.0,
    });
    let tasks = Mutex::new(tasks(plan));
    let take = || tasks.lock().ok().and_then(|mut tasks| tasks.pop_front());
    thread::scope(|scope| {
        for _ in 0..plan.jobs {
            scope.spawn(|| {
                while let Some(task) = take() {
                    let (engine, fault) = pairs[task.pair];
                    if settings.is_interrupted() {
                        return;
                    }
                    let is_skipped = report.lock().map_or(true, |report| {
                        report.rows[task.pair].findings >= plan.max_findings
                    });
                    if is_skipped {
                        continue;
                    }
                    let findings = || report.lock().map_or(0, |report| report.findings.len());
                    let step = || progress(engine.name, fault.name(), findings() as u64);
                    let (row, end) = run_history(settings, engine, fault, &task, &step);
                    let Ok(mut report) = report.lock() else { return };
                    report.rows[task.pair].add(&row);
                    match end {
                        End::Completed => {}
                        End::Finding(finding) => {
                            on_finding(&finding);
                            report.rows[task.pair].findings += 1;
                            report.findings.push(finding);
                        }
                        End::HarnessError(what) => report.harness_errors.push(what),
                    }
                }
            });
        }
    });
    let mut report = report.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    report.seconds = begun.elapsed().as_secs_f64();
    report.interrupted = settings.is_interrupted();
    report
}

/// The histories of a plan in the order of their execution.
fn tasks(plan: &Plan) -> VecDeque<Task> {
    let pairs = &plan.pairs;
    if let Some(seed) = plan.history {
        return (0..pairs.len()).map(|pair| Task { pair, seed, rounds: plan.rounds }).collect();
    }
    let mut tasks = Vec::new();
    for (pair, (engine, fault)) in pairs.iter().enumerate() {
        if fault.obstacle().is_some() {
            continue;
        }
        let names = [Random::seed_of_name(engine.name), Random::seed_of_name(fault.name())];
        let per_history = fault.rounds_per_history();
        for number in 0..plan.rounds.div_ceil(per_history) {
            let rounds = per_history.min(plan.rounds - number * per_history);
            // 48 bits make a shorter command line.
            let seed = Random::seed_of(&[plan.seed, names[0], names[1], number]) >> 16;
            tasks.push((number, Task { pair, seed, rounds }));
        }
    }
    tasks.sort_by_key(|(number, task)| (*number, task.pair));
    tasks.into_iter().map(|(_, task)| task).collect()
}

/// The end of a history.
enum End {
    Completed,
    Finding(Finding),
    HarnessError(String),
}

/// Runs a history.
fn run_history(
    settings: &Settings,
    engine: &'static Engine,
    fault: &dyn Fault,
    task: &Task,
    step: &(dyn Fn() + Sync),
) -> (Row, End) {
    let begun = Instant::now();
    let mut row = empty(engine.name, fault);
    row.histories = 1;
    let name = format!("{}-{}-{}", engine.name, fault.name(), task.seed);
    let root = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(&settings.scratch);
    let root = match root {
        Ok(root) => root,
        Err(error) => {
            let scratch = settings.scratch.display();
            return (
                row,
                End::HarnessError(format!("cannot make a directory in {scratch}: {error}")),
            );
        }
    };
    let path = root.path().to_owned();
    let mut history = History::new(settings, engine, task.seed, task.rounds, path, step);
    let ended = fault.run(&mut history);
    let Counts { acknowledged, refused, unknown, read } = history.counts();
    let is_whole = ended.is_ok();
    row.rounds = if is_whole { task.rounds } else { history.round().saturating_sub(1) };
    row.acknowledged = acknowledged;
    row.refused = refused;
    row.unknown = unknown;
    row.compared = read;
    row.seconds = begun.elapsed().as_secs_f64();
    let end = match ended {
        Ok(()) | Err(Stop::Interrupted) => End::Completed,
        Err(Stop::HarnessError(what)) => {
            End::HarnessError(format!("{} {}: {what}", engine.name, fault.name()))
        }
        // A signal to the process group has ended its server as well.
        Err(Stop::Finding(_)) if settings.is_interrupted() => End::Completed,
        Err(Stop::Finding(what)) => {
            let events = history.events().to_vec();
            let round = history.round();
            let command = format!(
                "siltstone-torture --engine {} --fault {} --history {} --rounds {round}",
                engine.name,
                fault.name(),
                task.seed
            );
            let mut finding = Finding {
                engine: engine.name,
                fault: fault.name(),
                history: task.seed,
                round,
                what,
                events,
                directory: settings.keep.join(&name),
                command,
            };
            finding.directory = keep(root, &finding);
            End::Finding(finding)
        }
    };
    (row, end)
}

/// Moves the directory of a history to the findings; if that fails, it stays where it is.
fn keep(root: tempfile::TempDir, finding: &Finding) -> PathBuf {
    let text = format!(
        "{}\n\nBefore it:\n{}\n\nTo repeat it: {}\n",
        finding.what,
        finding.events.join("\n"),
        finding.command
    );
    let _ = std::fs::write(root.path().join("finding.txt"), text);
    let from = root.keep();
    let moved = move_to(&from, &finding.directory);
    if moved.is_ok() { finding.directory.clone() } else { from }
}

fn move_to(from: &Path, to: &Path) -> std::io::Result<()> {
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent)?;
    }
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    if std::fs::rename(from, to).is_err() {
        crate::tree::copy(from, to)?;
        std::fs::remove_dir_all(from)?;
    }
    Ok(())
}

fn empty(engine: &'static str, fault: &dyn Fault) -> Row {
    Row {
        engine,
        fault: fault.name(),
        skipped: fault.obstacle(),
        rounds: 0,
        histories: 0,
        acknowledged: 0,
        refused: 0,
        unknown: 0,
        compared: 0,
        findings: 0,
        seconds: 0.0,
    }
}

impl Row {
    fn add(&mut self, other: &Row) {
        self.rounds += other.rounds;
        self.histories += other.histories;
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.unknown += other.unknown;
        self.compared += other.compared;
        self.seconds += other.seconds;
    }

    /// Rounds per second of one job.
    pub fn rate(&self) -> f64 {
        let seconds = Duration::from_secs_f64(self.seconds).as_secs_f64();
        if seconds > 0.0 { self.rounds as f64 / seconds } else { 0.0 }
    }
}
