//! The results of a comparison in a file: one JSON object per line and finished run.
//!
//! Each line is appended when its run ends, so a stopped comparison can be resumed. A torn last
//! line is skipped: its run is repeated.
//!
//! Invariant: a result names all that it depends on (the number of keys too), so results of other
//! settings in the same file are left alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use siltstone_bench::report::Report;

/// One finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Name of the group.
    pub group: String,
    /// Name of the store.
    pub store: String,
    /// Keys of the comparison.
    pub keys: u64,
    /// Number of the run, from 0.
    pub run: usize,
    /// The measurements; `None` if it failed.
    pub report: Option<Report>,
    /// Why it failed.
    pub error: Option<String>,
}

/// The finished runs, in memory and, if it was given, in a file.
#[derive(Debug, Default)]
pub struct Record {
    outcomes: Vec<Outcome>,
    file: Option<File>,
}

impl Record {
    /// A record in the file `path`, which is created if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be read and written.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        let outcomes = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Record { outcomes, file: Some(file) })
    }

    /// Whether the run has succeeded.
    pub fn has(&self, group: &str, store: &str, keys: u64, run: usize) -> bool {
        self.of(group, store, keys).any(|done| done.run == run && done.report.is_some())
    }

    /// The runs of a group and a store.
    pub fn of(&self, group: &str, store: &str, keys: u64) -> impl Iterator<Item = &Outcome> {
        self.outcomes
            .iter()
            .filter(move |done| done.group == group && done.store == store && done.keys == keys)
    }

    /// Adds a finished run.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn push(&mut self, outcome: Outcome) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            writeln!(file, "{}", serde_json::json!(outcome))?;
        }
        self.outcomes.push(outcome);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(run: usize, report: Option<Report>) -> Outcome {
        let (group, store) = ("fill".to_owned(), "lsm".to_owned());
        Outcome { group, store, keys: 10, run, report, error: None }
    }

    #[test]
    fn record_with_a_torn_line_is_resumed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("results");
        let mut record = Record::open(&path).unwrap();
        record.push(outcome(0, Some(Report::default()))).unwrap();
        record.push(outcome(1, None)).unwrap();
        drop(record);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"gro").unwrap();
        let mut resumed = Record::open(&path).unwrap();
        assert!(resumed.has("fill", "lsm", 10, 0));
        assert!(!resumed.has("fill", "lsm", 10, 1) && !resumed.has("fill", "lsm", 11, 0));
        resumed.push(outcome(2, Some(Report::default()))).unwrap();
        assert!(Record::open(&path).unwrap().has("fill", "lsm", 10, 2));
    }
}
