//! Experiments and findings as text.
//!
//! Invariant: the text contains only what `--json` contains.

use std::fmt::Write;

use super::durations::seconds;
use super::{Check, EXPERIMENTS, Finding, Kind, Origin, Spread, bars_changed};

/// Length of the longest name of an experiment.
pub fn id_width() -> usize {
    EXPERIMENTS.iter().map(|e| e.id().len()).max().unwrap_or(0)
}

/// All experiments, one per line, with approximate durations and the days of their newest bars.
pub fn list() -> String {
    let width = id_width();
    let line = |text: String, e: &&dyn super::Experiment| {
        let ours = if e.is_ours() { "our bar: " } else { "" };
        let seconds = seconds(e.id()).map_or(String::new(), |seconds| format!("{seconds} s"));
        let (id, bars_of) = (e.id(), bars_changed(e.id()));
        let claim = format!("{ours}{}: {}", e.figure(), e.claim());
        text + &format!("{id:<width$} {seconds:>6}  {bars_of}  {claim}\n")
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
        ("there", finding.paper_scale.unwrap_or("not recorded")),
    ];
    for (name, value) in rows {
        put(&mut text, name, value);
    }
    for (check, spread) in finding.checks.iter().zip(&finding.spread) {
        let value = format!(
            "{}: {} ({}, bar of {}){}: {}",
            check.what,
            number(check.ours),
            relation(check),
            check.dated(),
            runs(finding.runs, spread),
            check.verdict().name(),
        );
        put(&mut text, "ours", &value);
    }
    put(&mut text, "verdict", &verdict(finding));
    if let Some(our_bars) = finding.our_bars {
        put(&mut text, "our bars", our_bars.name());
    }
    if let Some(cause) = finding.cause {
        put(&mut text, "cause", cause);
    }
    put(&mut text, "command", &finding.command);
    text
}

/// The verdict in words. One run is none.
pub(super) fn verdict(finding: &Finding) -> String {
    match finding.runs {
        1 => format!("none by one run; its numbers: {}", finding.verdict.name()),
        runs => format!("{}, by the medians of {runs} runs", finding.verdict.name()),
    }
}

/// The spread of several runs in words; nothing for one run.
pub(super) fn runs(runs: usize, spread: &Spread) -> String {
    if runs == 1 {
        return String::new();
    }
    let (smallest, largest) = (number(spread.smallest), number(spread.largest));
    format!(", {smallest} to {largest}, confirmed in {:.0} % of {runs} runs", 100.0 * spread.held)
}

/// The claimed relation in words.
pub(super) fn relation(check: &Check) -> String {
    let claimed = number(check.claimed);
    let whose = |origin| match origin {
        Origin::Paper => "claimed",
        Origin::Ours => "our bar:",
    };
    match check.kind {
        Kind::Equal { tolerance, side } => {
            let trend = side.trend(check.claimed).map(number);
            let trend = trend.map_or(String::new(), |from| format!(", trend from {from}"));
            format!("claimed {claimed} ± {:.3} %{trend}", 100.0 * tolerance)
        }
        Kind::AtLeast(origin) => format!("{} at least {claimed}", whose(origin)),
        Kind::AtMost(origin) => format!("{} at most {claimed}", whose(origin)),
        Kind::Above => format!("claimed above {claimed}"),
        Kind::Below => format!("claimed below {claimed}"),
    }
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
    use super::super::{RULES, Side, Verdict};
    use super::*;

    #[test]
    fn all_parts_of_a_finding_are_printed() {
        let kind = Kind::Equal { tolerance: 0.1, side: Side::Effect(7.0) };
        let check = Check::of_bar("WA of L1".to_owned(), 4.0, 5.5, kind, "2026-11-26");
        let finding = Finding {
            id: "x",
            paper: "P",
            figure: "F",
            claim: "C",
            scale: "S".to_owned(),
            paper_scale: Some("T"),
            runs: 5,
            rules: RULES,
            spread: vec![Spread { smallest: 5.25, largest: 7.0, held: 0.4 }],
            our_bars: None,
            cause: Some("known"),
            verdict: Verdict::of(std::slice::from_ref(&check)),
            checks: vec![check],
            command: "siltstone-experiments repro run x --scale 1".to_owned(),
            plot: None,
        };
        let printed = text(&finding);
        let words = [
            "WA of L1: 5.500",
            "claimed 4.000 ± 10.000 %",
            "trend from 5.500, bar of 2026-11-26)",
            "trend confirmed",
            "5.250 to 7.000, confirmed in 40 % of 5 runs",
        ];
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
        assert!(list().lines().all(|line| line.contains("  2026-")));
    }
}
