//! The report directory of `repro run`: findings are kept, and a stopped run can be resumed.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn repro(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_siltstone-experiments");
    Command::new(program).arg("repro").args(arguments).output().unwrap()
}

fn run(more: &[&str], report: &Path) -> Output {
    let report = report.to_str().unwrap();
    repro(&[&["run"], more, &["--scale", "0.01", "--runs", "2", "--report", report]].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn report_keeps_findings_and_resume_runs_the_rest() {
    let scratch = tempfile::tempdir().unwrap();
    let report = scratch.path().join("claims");
    let page = || std::fs::read_to_string(report.join("index.html")).unwrap();
    for (id, so_far) in [("zipf-merge", 1), ("unique-keys", 2), ("zipf-merge", 2)] {
        let output = run(&[id], &report);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
        assert_eq!(page().matches("<section").count(), so_far);
    }
    // In the order of `repro list`, whichever was first.
    let page_of_two = page();
    assert!(page_of_two.find("id=\"unique-keys\"") < page_of_two.find("id=\"zipf-merge\""));

    let list: Value = serde_json::from_slice(&repro(&["list", "--json"]).stdout).unwrap();
    let ids = list["experiments"].as_array().unwrap().iter().map(|e| e["id"].as_str().unwrap());
    let kept = std::fs::read_to_string(report.join("unique-keys.json")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    for id in ids.clone().filter(|&id| id != "zipf-merge") {
        let mut entry = kept.clone();
        entry["id"] = id.into();
        std::fs::write(report.join(format!("{id}.json")), entry.to_string()).unwrap();
    }
    // This one is of another size.
    let other = report.join("zipf-merge.json");
    let zipf = std::fs::read_to_string(&other).unwrap();
    std::fs::write(&other, zipf.replace("\"scale\":0.01", "\"scale\":0.02")).unwrap();
    let output = run(&["--all", "--resume"], &report);
    let said = text(&output.stdout);
    assert_eq!(said.lines().count(), ids.count(), "{said}");
    let again: Vec<_> = said.lines().filter(|line| !line.ends_with(", before")).collect();
    assert!(again.len() == 1 && again[0].starts_with("zipf-merge "), "{said}");
    assert_eq!(std::fs::read_to_string(&other).unwrap().matches("\"scale\":0.01").count(), 1);
}

#[test]
fn malformed_finding_is_named_and_kept() {
    let report = tempfile::tempdir().unwrap();
    let file = report.path().join("silt-reads.json");
    std::fs::write(&file, "{").unwrap();
    let output = run(&["unique-keys"], report.path());
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains(file.to_str().unwrap()) && said.contains("remove it"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{");
}
