//! The text form of reports and findings.

use std::fmt::Write;

use crate::finding::Finding;
use crate::runner::{Report, Row};

/// The table of a report, with a row per pair of engine and fault class.
pub fn table(report: &Report) -> String {
    let mut text = format!(
        "{:<8} {:<16} {:>7} {:>7} {:>13} {:>9} {:>9} {:>13} {:>9} {:>9}\n",
        "engine",
        "fault",
        "rounds",
        "stores",
        "acknowledged",
        "refused",
        "unknown",
        "compared",
        "rounds/s",
        "findings"
    );
    for row in &report.rows {
        let Row { engine, fault, rounds, histories, acknowledged, refused, unknown, .. } = row;
        let _ = match &row.skipped {
            Some(why) => writeln!(text, "{engine:<8} {fault:<16} skipped: {why}"),
            None => writeln!(
                text,
                "{engine:<8} {fault:<16} {rounds:>7} {histories:>7} {acknowledged:>13} {refused:>9} {unknown:>9} \
                 {:>13} {:>9.1} {:>9}",
                row.compared,
                row.rate(),
                row.findings
            ),
        };
    }
    text
}

/// A finding with the command that repeats it.
pub fn finding(finding: &Finding) -> String {
    let Finding { engine, fault, history, round, what, directory, command, .. } = finding;
    let events: Vec<_> = finding.events.iter().rev().take(6).rev().cloned().collect();
    format!(
        "FINDING: {engine}, {fault}, history {history}, round {round}\n  {}\n  events before it:\n    {}\n  kept in {}\n  \
         to repeat it: {command}\n",
        what.replace('\n', "\n  "),
        events.join("\n    "),
        directory.display()
    )
}
