//! Experiments and findings as text.
//!
//! Invariant: the text contains only what `--json` contains.

use std::fmt::Write;

use super::durations::seconds;
use super::{Direction, EXPERIMENTS, Finding};

/// Length of the longest name of an experiment.
pub fn id_width() -> usize {
    EXPERIMENTS.iter().map(|e| e.id().len()).max().unwrap_or(0)
}

/// All experiments, one per line, with approximate durations.
pub fn list() -> String {
    let width = id_width();
    let line = |text: String, e: &&dyn super::Experiment| {
        let seconds = seconds(e.id()).map_or(String::new(), |seconds| format!("{seconds} s"));
        text + &format!("{:<width$} {seconds:>6}  {}: {}\n", e.id(), e.figure(), e.claim())
    };
    EXPERIMENTS.iter().fold(String::new(), line)
}

/// A finding as lines of text.
pub fn text(finding: &Finding) -> String {
    let mut text = String::new();
    let rows = [
        ("paper", finding.paper),
        ("figure", finding.figure),
        ("claim", finding.claim),
        ("scale", &finding.scale),
    ];
    for (name, value) in rows {
        put(&mut text, name, value);
    }
    for check in &finding.checks {
        let side = match check.direction {
            Direction::AtMost(most) => format!(", trend up to {}", number(most)),
            Direction::AtLeast(least) => format!(", trend from {}", number(least)),
            Direction::None => String::new(),
        };
        let value = format!(
            "{}: {} (claimed {} ± {:.3} %{side}): {}",
            check.what,
            number(check.ours),
            number(check.claimed),
            100.0 * check.tolerance,
            check.verdict().name(),
        );
        put(&mut text, "ours", &value);
    }
    put(&mut text, "verdict", finding.verdict.name());
    if let Some(cause) = finding.cause {
        put(&mut text, "cause", cause);
    }
    put(&mut text, "command", &finding.command);
    text
}

fn put(text: &mut String, name: &str, value: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{name:<8} {value}");
}

/// Formats a number with about four significant digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{value:.4e}"),
        v if v >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Check, Verdict};
    use super::*;

    #[test]
    fn all_parts_of_a_finding_are_printed() {
        let check = Check {
            what: "WA of L1".to_owned(),
            claimed: 4.0,
            ours: 5.5,
            tolerance: 0.1,
            direction: Direction::AtMost(6.0),
        };
        let finding = Finding {
            id: "x",
            paper: "P",
            figure: "F",
            claim: "C",
            scale: "S".to_owned(),
            cause: Some("known"),
            verdict: Verdict::of(std::slice::from_ref(&check)),
            checks: vec![check],
            command: "siltstone-experiments repro run x --scale 1".to_owned(),
            plot: None,
        };
        let printed = text(&finding);
        let words =
            ["WA of L1: 5.500", "claimed 4.000 ± 10.000 %", "up to 6.000", "trend confirmed"];
        for word in words.into_iter().chain([
            "P",
            "F",
            "C",
            "S",
            "siltstone-experiments repro run x --scale 1",
        ]) {
            assert!(printed.contains(word), "{word} in {printed}");
        }
        assert_eq!(list().lines().count(), EXPERIMENTS.len());
    }
}
