//! The bars of all experiments: what each check claims, read from `bars.toml`.
//!
//! The file describes its own keys. An experiment looks a bar up by its own name and the check's,
//! and gives it the measured number; the result is a [`Check`], which nothing else can make.
//!
//! Invariants: every bar in the code is in the file and the other way around; the sources of
//! experiments hold no claimed number, tolerance or kind of check. Tests check both.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer, Serialize};

use super::{Check, Kind, Origin, Side};

/// Bars by experiment and check.
type Bars = BTreeMap<String, BTreeMap<String, Bar>>;

/// A bar as it stands in the file; the file describes the keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bar {
    #[serde(skip_serializing_if = "Option::is_none")]
    equal: Option<Claimed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_least: Option<Claimed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most: Option<Claimed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    above: Option<Claimed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    below: Option<Claimed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<Claimed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<Origin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tolerance: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    better: Option<Better>,
    #[serde(skip_serializing_if = "Option::is_none")]
    without: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trend_from: Option<f64>,
    /// Section, figure or table of the paper.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    /// The day on which the bar was fixed.
    #[serde(deserialize_with = "day")]
    fixed: String,
    /// Changes since then, oldest first.
    #[serde(default)]
    changes: Vec<Change>,
}

/// The claimed number, several in the order of the paper, or one that follows from the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Claimed {
    One(f64),
    Several(Vec<f64>),
    Word(Word),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Computed,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Better {
    Less,
    More,
}

/// A change of a bar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    #[serde(deserialize_with = "day")]
    date: String,
    reason: String,
}

fn day<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    toml::value::Datetime::deserialize(from).map(|day| day.to_string())
}

static BARS: LazyLock<Bars> =
    LazyLock::new(|| read(include_str!("../../bars.toml")).unwrap_or_else(|e| invalid(&e)));

/// Reads and validates bars.
fn read(text: &str) -> Result<Bars, String> {
    let bars: Bars = toml::from_str(text).map_err(|error| error.to_string())?;
    for (experiment, checks) in &bars {
        for (check, bar) in checks {
            bar.validate().map_err(|error| format!("{experiment}.{check}: {error}"))?;
        }
    }
    Ok(bars)
}

/// The bar of a check of an experiment.
///
/// # Panics
/// If the file has no such bar, which a test of all names in the code excludes.
pub(super) fn bar(experiment: &str, check: &str) -> &'static Bar {
    let bar = BARS.get(experiment).and_then(|checks| checks.get(check));
    bar.unwrap_or_else(|| invalid(&format!("no bar {experiment}.{check}")))
}

/// The bars of an experiment, by check.
pub fn bars_of(experiment: &str) -> &'static BTreeMap<String, Bar> {
    static NONE: BTreeMap<String, Bar> = BTreeMap::new();
    BARS.get(experiment).unwrap_or(&NONE)
}

/// The day on which the bars of an experiment were changed last; empty if it has none.
pub fn bars_changed(experiment: &str) -> &'static str {
    bars_of(experiment).values().map(Bar::changed).max().unwrap_or_default()
}

fn invalid(reason: &str) -> ! {
    panic!("experiments/bars.toml: {reason}")
}

impl Bar {
    /// The day of the last change, or on which the bar was fixed.
    pub fn changed(&self) -> &str {
        self.changes.last().map_or(&self.fixed, |change| &change.date)
    }

    /// The only claimed number.
    pub(super) fn claimed(&self) -> f64 {
        self.numbers()[0]
    }

    /// The claimed numbers, in the order of the paper.
    pub(super) fn numbers(&self) -> Vec<f64> {
        let per = self.per.unwrap_or(1.0);
        match self.relation() {
            Claimed::One(number) => vec![number / per],
            Claimed::Several(numbers) => numbers.iter().map(|number| number / per).collect(),
            Claimed::Word(Word::Computed) => invalid("a computed bar has no number"),
        }
    }

    /// A measured number against the bar.
    pub(super) fn check(&'static self, what: impl Into<String>, ours: f64) -> Check {
        self.check_one_of(0, what, ours)
    }

    /// A measured number against one of several claimed ones.
    pub(super) fn check_one_of(
        &'static self,
        index: usize,
        what: impl Into<String>,
        ours: f64,
    ) -> Check {
        self.judged(what.into(), self.numbers()[index], ours)
    }

    /// A measured number against a claimed one that follows from the run.
    pub(super) fn check_computed(
        &'static self,
        what: impl Into<String>,
        claimed: f64,
        ours: f64,
    ) -> Check {
        match self.relation() {
            Claimed::Word(Word::Computed) => self.judged(what.into(), claimed, ours),
            _ => invalid("the bar has a number, which cannot be computed"),
        }
    }

    fn judged(&'static self, what: String, claimed: f64, ours: f64) -> Check {
        let kind = self.kind(claimed).unwrap_or_else(|| invalid("a number is not a bar"));
        Check::of_bar(what, claimed, ours, kind, self.changed())
    }

    fn relations(&self) -> impl Iterator<Item = &Claimed> {
        let all =
            [&self.equal, &self.at_least, &self.at_most, &self.above, &self.below, &self.number];
        all.into_iter().flatten()
    }

    fn relation(&self) -> &Claimed {
        self.relations().next().unwrap_or_else(|| invalid("a bar has no number"))
    }

    /// The kind of check, whose tolerance is relative to the claimed number.
    fn kind(&self, claimed: f64) -> Option<Kind> {
        if self.equal.is_some() {
            let tolerance = self.tolerance.or(self.within.map(|within| within / claimed))?;
            return Some(Kind::Equal { tolerance, side: self.side() });
        }
        if self.above.is_some() {
            return Some(Kind::Above);
        }
        if self.below.is_some() {
            return Some(Kind::Below);
        }
        let kind = if self.at_least.is_some() { Kind::AtLeast } else { Kind::AtMost };
        self.of.map(kind)
    }

    fn side(&self) -> Side {
        match (self.better, self.without, self.trend_from) {
            (Some(Better::Less), ..) => Side::Less,
            (Some(Better::More), ..) => Side::More,
            (None, Some(without), None) => Side::Effect(without),
            (None, Some(without), Some(from)) => Side::EffectFrom { without, from },
            (None, None, _) => Side::None,
        }
    }

    fn validate(&self) -> Result<(), &'static str> {
        if self.relations().count() != 1 {
            return Err("one of equal, at_least, at_most, above, below and number is needed");
        }
        let is_bound = self.at_least.is_some() || self.at_most.is_some();
        let is_order = self.above.is_some() || self.below.is_some();
        let tolerances = [self.tolerance, self.within].into_iter().flatten().count();
        let has_side = self.better.is_some() || self.without.is_some();
        if tolerances != usize::from(self.equal.is_some()) {
            return Err("equal needs a tolerance or within, and nothing else may have one");
        }
        if has_side && self.equal.is_none() || self.better.is_some() && self.without.is_some() {
            return Err("only equal may have better or without, and not both");
        }
        if self.trend_from.is_some() && self.without.is_none() {
            return Err("trend_from needs without");
        }
        if self.of.is_some() != is_bound {
            return Err("at_least and at_most need of, and nothing else may have it");
        }
        if is_order && *self.relation() != Claimed::One(1.0) {
            return Err("above and below compare with 1");
        }
        if self.equal.is_none() && *self.relation() == Claimed::Word(Word::Computed) {
            return Err("only equal may be computed");
        }
        let days: Vec<_> = std::iter::once(&self.fixed)
            .chain(self.changes.iter().map(|change| &change.date))
            .collect();
        if !days.is_sorted() {
            return Err("the changes are not in the order of their days");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::super::EXPERIMENTS;
    use super::*;

    /// The sources of this directory without their tests, by name.
    fn sources() -> Vec<(String, String)> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/repro");
        let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let read = |path: std::path::PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            (name, text.split("#[cfg(test)]").next().unwrap().to_owned())
        };
        files.map(read).collect()
    }

    /// The names in all calls of `bar`; both must be literals.
    fn asked_for(text: &str) -> Result<BTreeSet<(String, String)>, String> {
        let mut names = BTreeSet::new();
        let mut rest = text;
        while let Some(at) = rest.find("bar(") {
            let is_longer_name =
                rest[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
            let is_definition = rest[..at].ends_with("fn ");
            rest = &rest[at + "bar(".len()..];
            if is_longer_name || is_definition {
                continue;
            }
            let mut literal = |before: &str| {
                let text = rest.trim_start().strip_prefix(before)?.trim_start();
                let (name, after) = text.strip_prefix('"')?.split_once('"')?;
                rest = after;
                Some(name.to_owned())
            };
            let both = literal("").and_then(|experiment| Some((experiment, literal(",")?)));
            names.insert(both.ok_or_else(|| rest.chars().take(60).collect::<String>())?);
        }
        Ok(names)
    }

    #[test]
    fn bars_of_code_and_file_are_the_same() {
        let mut asked = BTreeSet::new();
        for (name, text) in sources() {
            asked.extend(asked_for(&text).unwrap_or_else(|call| panic!("{name}: bar({call}")));
        }
        let in_file: BTreeSet<_> = BARS
            .iter()
            .flat_map(|(experiment, checks)| {
                checks.keys().map(|check| (experiment.clone(), check.clone()))
            })
            .collect();
        let missing: Vec<_> = asked.difference(&in_file).collect();
        let unused: Vec<_> = in_file.difference(&asked).collect();
        assert!(missing.is_empty() && unused.is_empty(), "missing {missing:?}, unused {unused:?}");
        let experiments: BTreeSet<_> = EXPERIMENTS.iter().map(|e| e.id().to_owned()).collect();
        assert_eq!(BARS.keys().cloned().collect::<BTreeSet<_>>(), experiments);
    }

    #[test]
    fn call_with_a_name_that_is_no_literal_is_found() {
        let names = |text| asked_for(text).map(|names| names.into_iter().collect::<Vec<_>>());
        let one = [("a".to_owned(), "b".to_owned())];
        assert_eq!(names("bar(\n  \"a\",\n  \"b\",\n)").unwrap(), one);
        assert_eq!(names("is_bar(x) fn bar(x) bar(\"a\", \"b\")").unwrap(), one);
        assert!(names("bar(\"a\", name)").is_err() && names("bar(id, \"b\")").is_err());
    }

    #[test]
    fn experiments_hold_no_bars() {
        let judge = ["bars.rs", "verdict.rs", "text.rs", "runs.rs", "page.rs", "mod.rs"];
        let words = ["claimed:", "tolerance", "Check {", "of_bar", "Side::", "Origin::"];
        for (name, text) in sources().iter().filter(|(name, _)| !judge.contains(&&**name)) {
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in code {
                for word in words.into_iter().chain(["AtLeast", "AtMost", "Kind::Equal"]) {
                    assert!(!line.contains(word) || line.contains(" -> Check {"), "{name}: {line}");
                }
            }
        }
    }

    #[test]
    fn malformed_bars_are_refused() {
        let bar = |rest: &str| read(&format!("[a.b]\nfixed = 2026-11-21\n{rest}"));
        assert!(bar("equal = 2.0\ntolerance = 0.1").is_ok());
        for rest in [
            "",
            "equal = 2.0",
            "equal = 2.0\nat_least = 2.0\ntolerance = 0.1",
            "equal = 2.0\ntolerance = 0.1\nwithin = 0.1",
            "equal = 2.0\ntolerance = 0.1\nbetter = \"less\"\nwithout = 1.0",
            "equal = 2.0\ntolerance = 0.1\ntrend_from = 1.5",
            "equal = \"any\"\ntolerance = 0.1",
            "at_least = 2.0",
            "at_least = 2.0\nof = \"ours\"\ntolerance = 0.1",
            "above = 1.5",
            "number = \"computed\"",
            "above = 1.0\nunknown = 1.0",
            "above = 1.0\nchanges = [{ date = 2026-11-20, reason = \"earlier\" }]",
            "above = 1.0\n[a.b]\nfixed = 2026-11-21\nabove = 1.0",
        ] {
            assert!(bar(rest).is_err(), "{rest}");
        }
    }

    #[test]
    fn bar_gives_number_kind_and_day() {
        let text = "[a.b]\nequal = [4.0, 8.0]\nper = 2.0\nwithin = 0.5\nwithout = 1.0\n\
                    fixed = 2026-11-21\nchanges = [{ date = 2026-11-26, reason = \"r\" }]";
        let bars: &'static Bars = Box::leak(Box::new(read(text).unwrap()));
        let check = bars["a"]["b"].check_one_of(1, "x", 3.9);
        assert_eq!((check.claimed, check.ours, check.dated()), (4.0, 3.9, "2026-11-26"));
        assert_eq!(check.kind, Kind::Equal { tolerance: 0.125, side: Side::Effect(1.0) });
    }
}
