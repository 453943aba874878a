//! A trace of requests as the workload of `advise`.
//!
//! The file has the format of [`siltstone_bench::trace`]. The keys in the trace are taken to be all
//! keys of the table, and their frequencies to be their popularity. Keys are distinguished by a
//! hash of 128 bits, so memory is 24 bytes per key, whatever its length.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use siltstone_bench::trace::{Line, Verb, each_line};
use siltstone_model::Popularity;
use siltstone_model::advise::Requirements;

use crate::outcome::Failure;

/// Reads the workload from a file.
pub(super) fn read(path: &Path) -> Result<Requirements, Failure> {
    let hashes = [RandomState::new(), RandomState::new()];
    let mut summary = TraceSummary::default();
    each_line(path, &mut |line| {
        if let Line::Request(verb, key) = line {
            summary.add(verb, &key, &hashes);
        }
        Ok(())
    })?;
    summary.requirements().map_err(|reason| Failure::Usage(format!("{}: {reason}", path.display())))
}

#[derive(Default)]
struct TraceSummary {
    counts: HashMap<u128, u64>,
    key_bytes: u64,
    requests: u64,
    gets: u64,
    scans: u64,
    puts: u64,
    value_bytes: u64,
}

impl TraceSummary {
    fn add(&mut self, verb: Verb, key: &[u8], hashes: &[RandomState; 2]) {
        match verb {
            Verb::Get => self.gets += 1,
            Verb::Scan { .. } => self.scans += 1,
            Verb::Delete => {}
            Verb::Put { bytes } => {
                self.puts += 1;
                self.value_bytes += u64::from(bytes);
            }
        }
        let [high, low] = hashes.each_ref().map(|hash| u128::from(hash.hash_one(key)));
        *self.counts.entry(high << 64 | low).or_default() += 1;
        self.key_bytes += key.len() as u64;
        self.requests += 1;
    }

    fn requirements(self) -> Result<Requirements, String> {
        let counts: Vec<u64> = self.counts.into_values().collect();
        let popularity = Popularity::empirical(&counts).map_err(|bad| bad.to_string())?;
        let share = |part: u64| part as f64 / self.requests as f64;
        // Without any put the size is unknown; a common one is assumed.
        let value = if self.puts > 0 { self.value_bytes as f64 / self.puts as f64 } else { 100.0 };
        let mut requirements = Requirements::new(popularity, share(self.key_bytes), value);
        (requirements.reads, requirements.scans) = (share(self.gets), share(self.scans));
        Ok(requirements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirements(text: &str) -> Result<Requirements, Failure> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path())
    }

    #[test]
    fn mix_sizes_and_popularity_come_from_the_trace() {
        let requirements =
            requirements("# a trace\nget aa\nput aa 10\n\nput bb 30\nscan cc\ndel aa\n").unwrap();
        assert_eq!(requirements.keys(), 3.0);
        assert_eq!((requirements.key_bytes, requirements.value_bytes), (2.0, 20.0));
        assert_eq!((requirements.reads, requirements.scans), (0.2, 0.2));
    }

    #[test]
    fn invalid_trace_is_refused_with_the_reason() {
        for (text, expected) in
            [("get a\nfetch b\n", "line 2: 'fetch'"), ("get a\n", "keys is 1"), ("", "keys is 0")]
        {
            let reason = requirements(text).unwrap_err().to_string();
            assert!(reason.contains(expected), "{reason}");
        }
    }
}
