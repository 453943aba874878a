//! A trace of requests as the workload to advise on.
//!
//! ```text
//! get KEY            a lookup
//! put KEY BYTES      a write of a value of so many bytes
//! del KEY            a write of none
//! scan KEY           a scan from there
//! # …                a comment
//! ```
//!
//! The keys that occur are all that there are, as popular as they are there. A key is told from others by
//! a hash of 128 bits: memory is 24 bytes a key, whatever its length.
//!
//! Invariant: a line that is malformed refuses the whole trace, by its number.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader};
use std::path::Path;

use siltstone_model::Popularity;
use siltstone_model::advise::Wanted;

use crate::Failure;

/// Reads the workload from a file.
pub(super) fn read(path: &Path) -> Result<Wanted, Failure> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| Failure::file("open", &name, &error))?;
    let mut seen = Seen::default();
    let (hashes, mut line, mut number) =
        ([RandomState::new(), RandomState::new()], Vec::new(), 0u64);
    let mut reader = BufReader::new(file);
    loop {
        line.clear();
        number += 1;
        let read = reader.read_until(b'\n', &mut line);
        if read.map_err(|error| Failure::file("read", &name, &error))? == 0 {
            break;
        }
        seen.line(&line, &hashes)
            .map_err(|reason| Failure::Usage(format!("{name}, line {number}: {reason}")))?;
    }
    seen.wanted().map_err(|reason| Failure::Usage(format!("{name}: {reason}")))
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
    fn line(&mut self, line: &[u8], hashes: &[RandomState; 2]) -> Result<(), String> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let Some(verb) = words.next().filter(|word| !word.starts_with(b"#")) else { return Ok(()) };
        let key = words.next().ok_or("there is no key after the request")?;
        match verb {
            b"get" => self.gets += 1,
            b"scan" => self.scans += 1,
            b"del" => {}
            b"put" => {
                let bytes = words.next().and_then(|word| std::str::from_utf8(word).ok());
                let bytes = bytes.and_then(|word| word.parse::<u64>().ok());
                self.value_bytes += bytes.ok_or("say how many bytes: put KEY BYTES")?;
                self.puts += 1;
            }
            other => {
                let other = other.escape_ascii();
                return Err(format!("'{other}' is unknown; there are get, put, del, scan"));
            }
        }
        let [high, low] = hashes.each_ref().map(|hash| u128::from(hash.hash_one(key)));
        *self.counts.entry(high << 64 | low).or_default() += 1;
        self.key_bytes += key.len() as u64;
        self.requests += 1;
        Ok(())
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
    fn is_a_malformed_line_told_by_its_number() {
        for (text, told) in [
            ("get a\nfetch b\n", "line 2: 'fetch'"),
            ("put a\n", "line 1: say how many"),
            ("put a -1\n", "line 1: say how many"),
            ("get\n", "line 1: there is no key"),
            ("get a\n", "keys is 1"),
            ("", "keys is 0"),
        ] {
            let Err(Failure::Usage(reason)) = wanted(text) else { panic!("taken: {text:?}") };
            assert!(reason.contains(told), "{reason}");
        }
    }
}
