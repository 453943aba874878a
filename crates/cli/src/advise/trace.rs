//! A trace of requests as the workload to advise on.
//!
//! The format is the lab's: [`siltstone_lab::trace`].
//!
//! The keys that occur are all that there are, as popular as they are there. A key is told from others by
//! a hash of 128 bits: memory is 24 bytes a key, whatever its length.
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use siltstone_lab::trace::{Line, Verb, each_line};
use siltstone_model::Popularity;
use siltstone_model::advise::Wanted;

use crate::Failure;

/// Reads the workload from a file.
pub(super) fn read(path: &Path) -> Result<Wanted, Failure> {
    let hashes = [RandomState::new(), RandomState::new()];
    let mut seen = Seen::default();
    each_line(path, &mut |line| {
        if let Line::Request(verb, key) = line {
            seen.request(verb, &key, &hashes);
        }
        Ok(())
    })?;
    seen.wanted().map_err(|reason| Failure::Usage(format!("{}: {reason}", path.display())))
}

#[derive(Default)]
struct Seen {
    counts: HashMap<u128, u64>,
    key_bytes: u64,
    requests: u64,
    gets: u64,
    scans: u64,
    puts: u64,
    value_bytes: u64,
}

impl Seen {
    fn request(&mut self, verb: Verb, key: &[u8], hashes: &[RandomState; 2]) {
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

    fn wanted(self) -> Result<Wanted, String> {
        let counts: Vec<u64> = self.counts.into_values().collect();
        let popularity = Popularity::empirical(&counts).map_err(|bad| bad.to_string())?;
        let share = |part: u64| part as f64 / self.requests as f64;
        // Without a single write nobody knows; what is common will do.
        let value = if self.puts > 0 { self.value_bytes as f64 / self.puts as f64 } else { 100.0 };
        let mut wanted = Wanted::new(popularity, share(self.key_bytes), value);
        (wanted.reads, wanted.scans) = (share(self.gets), share(self.scans));
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(text: &str) -> Result<Wanted, Failure> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path())
    }

    #[test]
    fn are_mix_sizes_and_popularity_those_of_the_trace() {
        let wanted =
            wanted("# a trace\nget aa\nput aa 10\n\nput bb 30\nscan cc\ndel aa\n").unwrap();
        assert_eq!(wanted.keys(), 3.0);
        assert_eq!((wanted.key_bytes, wanted.value_bytes), (2.0, 20.0));
        assert_eq!((wanted.reads, wanted.scans), (0.2, 0.2));
    }

    #[test]
    fn is_what_is_no_workload_refused_by_file() {
        for (text, told) in
            [("get a\nfetch b\n", "line 2: 'fetch'"), ("get a\n", "keys is 1"), ("", "keys is 0")]
        {
            let reason = wanted(text).unwrap_err().to_string();
            assert!(reason.contains(told), "{reason}");
        }
    }
}
