//! Findings as one HTML page: every claim with its chart, the claimed and measured numbers, and its
//! command.
//!
//! The page is self-contained: styles and charts are embedded. It is built from the findings so
//! far, so a stopped run leaves a page. An [`Entry`] can be stored as JSON, so that a run can be
//! resumed.
//!
//! Invariant: the page contains the contents of the findings; their text is escaped.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use siltstone_engine::Error;

use super::day::today;
use super::text::{number, relation};
use super::{
    EXPERIMENTS, Experiment, Finding, RULES, Verdict, bars_changed, book_page, claims,
    number_of_claims,
};

/// The outcome of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Name of the experiment.
    pub id: String,
    /// Scale of the run, as a share of the full size.
    pub scale: f64,
    /// Number of runs; 0 in entries that are older than the rules.
    #[serde(default)]
    pub runs: usize,
    /// Date of the rules of the verdict; empty in older entries.
    #[serde(default)]
    pub rules: String,
    /// Date of the run in UTC; empty in older entries.
    #[serde(default)]
    pub date: String,
    /// The verdict; `None` if the experiment failed.
    pub verdict: Option<Verdict>,
    /// Duration of the run.
    pub seconds: f64,
    figure: String,
    /// HTML section.
    section: String,
    /// Section of the book's page; empty in older entries.
    #[serde(default)]
    pub(super) markdown: String,
}

impl Entry {
    /// The entry of a finding, or of the error of an experiment that failed.
    pub fn of(
        experiment: &dyn Experiment,
        scale: f64,
        runs: usize,
        outcome: Result<&Finding, &Error>,
        seconds: f64,
    ) -> Self {
        Entry {
            id: experiment.id().to_owned(),
            scale,
            runs,
            rules: RULES.to_owned(),
            date: today(),
            verdict: outcome.ok().map(|finding| finding.verdict),
            seconds,
            figure: experiment.figure().to_owned(),
            section: section(experiment, outcome),
            markdown: book_page::section(experiment, outcome),
        }
    }
}

impl Entry {
    /// The verdict if it is one by today's rules, of several runs.
    pub fn judged(&self) -> Option<Verdict> {
        self.verdict.filter(|_| self.rules == RULES && self.runs > 1)
    }

    /// Whether a bar of the experiment was changed after the day of the run, or the run has none.
    fn is_older_than_its_bars(&self) -> bool {
        self.date.as_str() < bars_changed(&self.id)
    }

    fn words(&self) -> String {
        let words = self.verdict_html();
        match self.is_older_than_its_bars() {
            true => format!("{words}; bar changed after this run"),
            false => words,
        }
    }

    /// The verdict in words.
    pub(super) fn verdict_words(&self) -> String {
        self.verdict_by(|verdict| verdict.name().to_owned())
    }

    fn verdict_html(&self) -> String {
        self.verdict_by(verdict)
    }

    fn verdict_by(&self, name: impl Fn(Verdict) -> String) -> String {
        match self.verdict {
            None => "failed".to_owned(),
            Some(_) if self.rules != RULES => {
                format!("judged by the rules before {RULES}, to be run again")
            }
            Some(found) if self.runs < 2 => format!("{} (one run: no verdict)", name(found)),
            Some(found) => name(found),
        }
    }
}

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.25rem 0.6rem; border-bottom: 1px solid #8884; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { background: #8882; padding: 0.1rem 0.3rem; border-radius: 3px; }
.verdict { font-weight: 600; white-space: nowrap; }
.confirmed { color: #2a7d3f; } .trend { color: #a06a00; } .failed { color: #b3261e; }
figure { background: #fff; color: #000; padding: 0.5rem; margin: 1rem 0; border-radius: 6px; overflow-x: auto; }
section { margin: 3rem 0; } .paper { opacity: 0.75; }
";

/// The page of `entries` out of `total` experiments; `environment` describes the measurement.
pub fn page(entries: &[Entry], total: usize, environment: &str) -> String {
    let mut out =
        String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    let mut put = |text: &str| out.push_str(text);
    put("<title>Siltstone: experiments</title>\n<style>");
    put(STYLE);
    put("</style></head><body>\n<h1>Experiments</h1>\n");
    put(&format!("<p>{}</p>\n<p>{}</p>\n", escaped(environment), totals(entries, total)));
    put("<table><tr><th>experiment</th><th>figure</th><th>verdict</th><th>seconds</th></tr>\n");
    for entry in entries {
        put(&format!(
            "<tr><td><a href=\"#{id}\">{id}</a></td><td>{}</td><td>{}</td><td class=\"n\">{:.0}</td></tr>\n",
            escaped(&entry.figure),
            entry.words(),
            entry.seconds,
            id = escaped(&entry.id),
        ));
    }
    put("</table>\n");
    entries.iter().for_each(|entry| put(&entry.section));
    put("</body></html>\n");
    out
}

/// How many experiments have run and how many claims have each verdict, as a sentence or two.
pub(super) fn totals(entries: &[Entry], total: usize) -> String {
    let judged: Vec<_> = EXPERIMENTS
        .iter()
        .filter_map(|&e| Some((e, entries.iter().find(|entry| entry.id == e.id())?.judged())))
        .collect();
    let bars: Vec<_> = judged.iter().filter(|(e, _)| e.is_ours()).filter_map(|of| of.1).collect();
    let failed = entries.iter().filter(|entry| entry.verdict.is_none()).count();
    let mut text = format!("{} of {total} experiments have run", entries.len());
    if failed > 0 {
        let _ = write!(text, ", {failed} failed");
    }
    let _ = write!(
        text,
        ". Claims of papers, each figure once, of {}: {}. Our own bars: {}",
        number_of_claims(),
        counts(&claims(&judged)),
        counts(&bars),
    );
    text + "."
}

fn counts(verdicts: &[Verdict]) -> String {
    let count = |wanted: Verdict| verdicts.iter().filter(|of| **of == wanted).count();
    Verdict::ALL.map(|wanted| format!("{} {}", count(wanted), wanted.name())).join(", ")
}

fn section(experiment: &dyn Experiment, outcome: Result<&Finding, &Error>) -> String {
    let mut text = format!(
        "<section id=\"{id}\"><h2>{id}</h2>\n<p class=\"paper\">{}, {}</p>\n<p>Claim: {}.</p>\n",
        escaped(experiment.paper()),
        escaped(experiment.figure()),
        escaped(experiment.claim()),
        id = experiment.id(),
    );
    match outcome {
        Err(error) => {
            let reason = escaped(&error.to_string());
            let _ = writeln!(text, "<p class=\"failed\">It failed: {reason}</p>");
        }
        Ok(finding) => text.push_str(&found(finding)),
    }
    text + "</section>\n"
}

fn found(finding: &Finding) -> String {
    let mut text = format!(
        "<p>{}; {}; in the paper: {}.</p>\n<table><tr><th></th><th>claimed</th><th>bar of</th><th>measured</th><th></th></tr>\n",
        escaped(&super::text::verdict(finding)),
        escaped(&finding.scale),
        escaped(finding.paper_scale.unwrap_or("not recorded")),
    );
    for (check, spread) in finding.checks.iter().zip(&finding.spread) {
        let _ = writeln!(
            text,
            "<tr><td>{}</td><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}{}</td><td>{}</td></tr>",
            escaped(&check.what),
            escaped(&relation(check)),
            check.dated(),
            number(check.ours),
            super::text::runs(finding.runs, spread),
            verdict(check.verdict()),
        );
    }
    text.push_str("</table>\n");
    if let Some(cause) = finding.cause {
        let _ = writeln!(text, "<p>Cause: {}</p>", escaped(cause));
    }
    if let Some(plot) = &finding.plot {
        let _ = writeln!(text, "<figure>{}</figure>", plot.svg());
    }
    let _ = writeln!(text, "<p>Command: <code>{}</code></p>", escaped(&finding.command));
    text
}

fn verdict(verdict: Verdict) -> String {
    let class = match verdict {
        Verdict::Confirmed => "confirmed",
        Verdict::Better | Verdict::TrendOnly => "trend",
        Verdict::NotConfirmed => "failed",
    };
    format!("<span class=\"verdict {class}\">{}</span>", verdict.name())
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Check, EXPERIMENTS, Kind, Side, run};
    use super::*;

    #[test]
    fn page_has_all_claims_numbers_and_charts() {
        let experiment = EXPERIMENTS.iter().find(|e| e.id() == "unique-keys").unwrap();
        let mut finding = run(*experiment, 0.01, 2, &mut |_, _| {}).unwrap();
        let kind = Kind::Equal { tolerance: 0.1, side: Side::None };
        finding.checks.push(Check::of_bar("a < b & c".to_owned(), 1.0, 9.0, kind, "2026-11-21"));
        finding.spread.push(finding.spread[0].clone());
        finding.verdict = Verdict::of(&finding.checks);
        finding.cause = Some("it is <made> so");
        let svg = finding.plot.as_ref().map(siltstone_bench::plot::Plot::svg);
        let error = Error::Invalid("no \"disk\"".into());
        let entries = [
            Entry::of(*experiment, 0.01, 2, Ok(&finding), 1.0),
            Entry::of(*experiment, 0.01, 2, Err(&error), 0.0),
            Entry { rules: String::new(), ..Entry::of(*experiment, 0.01, 2, Ok(&finding), 1.0) },
        ];
        let json = serde_json::to_string(&entries).unwrap();
        let entries: Vec<Entry> = serde_json::from_str(&json).unwrap();
        let page = page(&entries, 5, "made here");
        for part in [
            "3 of 5 experiments have run, 1 failed",
            "0 confirmed, 0 differs: better, 0 trend confirmed, 1 not confirmed. Our own bars: 0 confirmed",
            "judged by the rules before",
            "a &lt; b &amp; c",
            "it is &lt;made&gt; so",
            "no &quot;disk&quot;",
            "siltstone-experiments repro run unique-keys --scale 0.01 --runs 2",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(svg.is_none_or(|svg| page.contains(&svg)));
        assert_eq!(page.matches("<section").count(), page.matches("</section>").count());
    }

    #[test]
    fn run_before_a_change_of_its_bars_is_marked_and_counted_as_before() {
        let experiment = *EXPERIMENTS.iter().find(|e| e.id() == "zipf-merge").unwrap();
        let finding = run(experiment, 0.01, 2, &mut |_, _| {}).unwrap();
        let mark = "; bar changed after this run";
        let of = |date: &str| Entry {
            date: date.to_owned(),
            ..Entry::of(experiment, 0.01, 2, Ok(&finding), 1.0)
        };
        for (date, is_marked) in
            [("", true), ("2026-11-25", true), (bars_changed("zipf-merge"), false)]
        {
            assert_eq!(of(date).words().ends_with(mark), is_marked, "{date}");
            assert_eq!(of(date).judged(), Some(finding.verdict));
        }
        // Entries of earlier versions have no date.
        let mut older = serde_json::to_value(of("")).unwrap();
        older.as_object_mut().unwrap().remove("date");
        let older: Entry = serde_json::from_value(older).unwrap();
        assert!(page(&[older], 1, "here").contains(mark));
    }
}
