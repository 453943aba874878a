//! Two rounds of every fault class on every engine, without a finding.
//!
//! For full runs see `docs/src/operations/torture.md`.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use siltstone_torture::engines::ENGINES;
use siltstone_torture::faults::FAULTS;
use siltstone_torture::program;
use siltstone_torture::report;
use siltstone_torture::runner::{self, Plan};
use siltstone_torture::settings::Settings;

/// Rounds per class and engine.
const ROUNDS: u64 = 2;

#[test]
fn every_class_on_every_engine_finds_nothing() {
    let harness = std::env::current_exe().unwrap();
    let program = program::beside(&harness).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let settings = Settings {
        program,
        scratch: scratch.path().to_owned(),
        keep: scratch.path().join("kept"),
        interrupted: Arc::new(AtomicBool::new(false)),
    };
    let pairs = ENGINES.iter().flat_map(|engine| FAULTS.iter().map(move |fault| (engine, *fault)));
    let plan = Plan {
        pairs: pairs.collect(),
        rounds: ROUNDS,
        seed: 1,
        history: None,
        jobs: 2,
        max_findings: 1,
    };
    let report = runner::run(&settings, &plan, &|_, _, _| {}, &|_| {});
    let found: Vec<_> = report.findings.iter().map(report::finding).collect();
    if !found.is_empty() {
        let kept = scratch.keep();
        panic!("{} (kept in {})", found.join("\n"), kept.display());
    }
    assert!(report.harness_errors.is_empty(), "{:?}", report.harness_errors);
    for row in report.rows.iter().filter(|row| row.skipped.is_none()) {
        assert_eq!(row.rounds, ROUNDS, "{} {}", row.engine, row.fault);
        assert!(row.acknowledged > 0, "{} {} wrote nothing", row.engine, row.fault);
    }
}
