//! Findings as a page of the book, in Markdown: every claim with its numbers and its command.
//!
//! Invariant: the page contains the contents of the findings and nothing else, so a claim without a
//! run is named as such.

use std::fmt::Write;

use siltstone_engine::Error;

use super::page::{Entry, totals};
use super::text::{number, relation, verdict};
use super::{Check, EXPERIMENTS, Experiment, Finding, Spread};

/// The page of `entries`; `environment` describes the measurement.
pub fn book_page(entries: &[Entry], environment: &str) -> String {
    let mut out = format!(
        "# Claims of the papers\n\n\
         Every claim with an experiment, as `siltstone-experiments repro run --all --report DIR` writes it \
         to `DIR/claims.md`. {environment} [Verdicts](index.md#verdicts) are of the medians of the runs.\n\n\
         {}\n\n\
         | experiment | figure | verdict | runs | date |\n| --- | --- | --- | --- | --- |\n",
        totals(entries, EXPERIMENTS.len()),
    );
    let find = |id: &str| entries.iter().find(|entry| entry.id == id);
    for experiment in EXPERIMENTS {
        let (id, figure) = (experiment.id(), cell(experiment.figure()));
        let _ = match find(id) {
            None => writeln!(out, "| `{id}` | {figure} | not run | | |"),
            Some(entry) => writeln!(
                out,
                "| [`{id}`](#{id}) | {figure} | {} | {} | {} |",
                entry.verdict_words(),
                entry.runs,
                entry.date,
            ),
        };
    }
    for entry in EXPERIMENTS.iter().filter_map(|experiment| find(experiment.id())) {
        let _ = write!(out, "\n{}", entry.markdown);
    }
    out
}

/// The part of the page on one experiment.
pub(super) fn section(experiment: &dyn Experiment, outcome: Result<&Finding, &Error>) -> String {
    let mut out = format!(
        "## {}\n\n{}, {}. Claim: {}.\n\n",
        experiment.id(),
        text(experiment.paper()),
        text(experiment.figure()),
        text(experiment.claim()),
    );
    let finding = match outcome {
        Ok(finding) => finding,
        Err(error) => {
            let _ = writeln!(out, "It failed: {}", text(&error.to_string()));
            return out;
        }
    };
    let _ = writeln!(
        out,
        "Verdict: {}. Size: {}; in the paper: {}.\n\n\
         | | claimed | measured | from | to | verdict |\n| --- | --- | --- | --- | --- | --- |",
        verdict(finding),
        text(&finding.scale),
        text(finding.paper_scale.unwrap_or("not recorded")),
    );
    for (check, spread) in finding.checks.iter().zip(&finding.spread) {
        out.push_str(&row(check, spread));
    }
    if let Some(cause) = finding.cause {
        let _ = write!(out, "\nCause: {}\n", text(cause));
    }
    let _ = write!(out, "\n`{}`\n", finding.command);
    out
}

fn row(check: &Check, spread: &Spread) -> String {
    format!(
        "| {} | {} | {} | {} | {} | {} |\n",
        cell(&check.what),
        cell(&relation(check)),
        number(check.ours),
        number(spread.smallest),
        number(spread.largest),
        check.verdict().name(),
    )
}

/// Text that Markdown leaves as it is.
fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '<' | '*' | '_' | '[' | '`' | '\\') {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// Text in a cell of a table.
fn cell(value: &str) -> String {
    text(value).replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Side, Verdict, run};
    use super::*;

    #[test]
    fn page_names_every_experiment_and_has_the_numbers_of_those_that_ran() {
        let experiment = *EXPERIMENTS.iter().find(|e| e.id() == "unique-keys").unwrap();
        let mut finding = run(experiment, 0.01, 2, &mut |_, _| {}).unwrap();
        let kind = Kind::Equal { tolerance: 0.1, side: Side::None };
        finding.checks.push(Check::of_bar("a|b_c".to_owned(), 1.0, 9.0, kind, "2026-11-21"));
        finding.spread.push(Spread { smallest: 8.0, largest: 9.5, held: 0.0 });
        finding.verdict = Verdict::of(&finding.checks);
        finding.cause = Some("it is <made> so");
        let page = book_page(&[Entry::of(experiment, 0.01, 2, Ok(&finding), 1.0)], "Made here.");
        for part in [
            "Made here. [Verdicts]",
            &format!("1 of {} experiments have run", EXPERIMENTS.len()),
            "| [`unique-keys`](#unique-keys) |",
            "| `silt-example` | section 2.4",
            "| a\\|b\\_c | claimed 1.000 ± 10.000 % | 9.000 | 8.000 | 9.500 | not confirmed |",
            "Cause: it is \\<made> so",
            "`siltstone-experiments repro run unique-keys --scale 0.01 --runs 2`",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        let failed = Error::Invalid("no disk".into());
        let page = book_page(&[Entry::of(experiment, 0.01, 2, Err(&failed), 0.0)], "");
        assert!(page.contains("It failed: no disk") && page.contains("| failed | 2 |"));
    }
}
