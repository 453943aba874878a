//! A trace in memory.
//!
//! ```text
//! keys      k e y 1 k e y 2 k e y 1 …           all keys, concatenated
//! requests  | verb | position of its key | time |  24 bytes each
//! ```
//!
//! Invariant: the key of every request is within `keys`, and times do not decrease.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use siltstone_engine::{Error, MAX_VALUE_BYTES, Result};

use super::{Line, Verb, each_line};

/// Bytes of values in a prelude of a trace without puts.
const DEFAULT_VALUE_BYTES: u32 = 100;

/// The requests of a trace.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    keys: Vec<u8>,
    requests: Vec<PackedRequest>,
    distinct: u64,
    largest_value: u32,
}

#[derive(Debug, Clone, Copy)]
struct PackedRequest {
    verb: Verb,
    key_bytes: u32,
    key_start: u64,
    at_us: u64,
}

/// A request of a trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request<'a> {
    /// The operation.
    pub verb: Verb,
    /// The key.
    pub key: &'a [u8],
    /// Arrival time since the first request.
    pub at: Duration,
}

impl Trace {
    /// Reads a trace from a file.
    ///
    /// # Errors
    /// As [`each_line`]; [`Error::Invalid`] for a trace without requests, decreasing times, or
    /// values above the limit.
    pub fn read(path: &Path) -> Result<Self> {
        let (mut trace, mut at) = (Trace::default(), Duration::ZERO);
        each_line(path, &mut |line| {
            match line {
                Line::Time(time) if time < at => return Err("time goes back".to_owned()),
                Line::Time(time) => at = time,
                Line::Request(Verb::Put { bytes }, _) if bytes as usize > MAX_VALUE_BYTES => {
                    return Err(format!("a value has at most {MAX_VALUE_BYTES} bytes"));
                }
                Line::Request(verb, key) => trace.push(verb, &key, at),
            }
            Ok(())
        })?;
        if trace.requests.is_empty() {
            return Err(Error::Invalid(format!("{}: there is no request in it", path.display())));
        }
        trace.distinct = trace.first_accesses().len() as u64;
        Ok(trace)
    }

    fn push(&mut self, verb: Verb, key: &[u8], at: Duration) {
        if let Verb::Put { bytes } = verb {
            self.largest_value = self.largest_value.max(bytes);
        }
        let packed = PackedRequest {
            verb,
            key_bytes: key.len() as u32,
            key_start: self.keys.len() as u64,
            at_us: u64::try_from(at.as_micros()).unwrap_or(u64::MAX),
        };
        self.keys.extend_from_slice(key);
        self.requests.push(packed);
    }

    /// Number of requests; at least one in a trace that was read from a file.
    pub fn len(&self) -> u64 {
        self.requests.len() as u64
    }

    /// Whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Number of distinct keys.
    pub fn distinct_keys(&self) -> u64 {
        self.distinct
    }

    /// Bytes of the largest value.
    pub fn largest_value(&self) -> usize {
        self.largest_value as usize
    }

    /// Request `i`, modulo the number of requests.
    pub fn get(&self, i: u64) -> Request<'_> {
        let packed = &self.requests[(i % self.len()) as usize];
        let at = Duration::from_micros(packed.at_us);
        Request { verb: packed.verb, key: self.key(packed), at }
    }

    /// The operations of all requests.
    pub fn verbs(&self) -> impl Iterator<Item = Verb> {
        self.requests.iter().map(|packed| packed.verb)
    }

    /// The initial data that the trace needs: a write of each key that it reads before it writes
    /// it, with the size of the key's first put, or else with the mean size.
    pub fn prelude(&self) -> Trace {
        let sizes = self.verbs().filter_map(|verb| match verb {
            Verb::Put { bytes } => Some(f64::from(bytes)),
            _ => None,
        });
        let (count, sum) = sizes.fold((0u64, 0.0), |(count, sum), size| (count + 1, sum + size));
        let mean =
            if count > 0 { (sum / count as f64).round() as u32 } else { DEFAULT_VALUE_BYTES };
        let mut firsts: Vec<_> = self.first_accesses().into_iter().collect();
        // In the order of the trace, for reproducibility.
        firsts.sort_unstable_by_key(|(_, first)| first.request);
        let mut trace = Trace::default();
        for (key, first) in firsts.into_iter().filter(|(_, first)| first.is_read) {
            trace.push(Verb::Put { bytes: first.put.unwrap_or(mean) }, key, Duration::ZERO);
            trace.distinct += 1;
        }
        trace
    }

    /// The first access to each key.
    fn first_accesses(&self) -> HashMap<&[u8], FirstAccess> {
        let mut firsts: HashMap<&[u8], FirstAccess> = HashMap::new();
        for (request, packed) in self.requests.iter().enumerate() {
            let is_read = matches!(packed.verb, Verb::Get | Verb::Scan { .. });
            let first = firsts.entry(self.key(packed));
            let first = first.or_insert(FirstAccess { request, is_read, put: None });
            if let (Verb::Put { bytes }, None) = (packed.verb, first.put) {
                first.put = Some(bytes);
            }
        }
        firsts
    }

    fn key(&self, packed: &PackedRequest) -> &[u8] {
        let start = packed.key_start as usize;
        &self.keys[start..start + packed.key_bytes as usize]
    }
}

impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && (0..self.len()).all(|i| self.get(i) == other.get(i))
    }
}

/// The first access to a key.
struct FirstAccess {
    request: usize,
    is_read: bool,
    /// Size of its first put.
    put: Option<u32>,
}

#[cfg(test)]
pub(crate) mod tests {

    use super::*;

    pub(crate) fn trace(text: &str) -> Result<Trace> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Trace::read(file.path())
    }

    #[test]
    fn requests_are_read_in_order_with_times() {
        let trace = trace("put a 10\n@ 0.5\nget a\nscan b 3\n@ 2\ndel \\x20\n").unwrap();
        let half = Duration::from_millis(500);
        let expected = [
            (Verb::Put { bytes: 10 }, &b"a"[..], Duration::ZERO),
            (Verb::Get, b"a", half),
            (Verb::Scan { entries: 3 }, b"b", half),
            (Verb::Delete, b" ", Duration::from_secs(2)),
        ];
        assert_eq!(trace.len(), 4);
        for (i, (verb, key, at)) in expected.into_iter().enumerate() {
            assert_eq!(trace.get(i as u64), Request { verb, key, at });
            assert_eq!(
                trace.get(i as u64 + 4),
                Request { verb, key, at },
                "after the end from the start"
            );
        }
        assert_eq!((trace.distinct_keys(), trace.largest_value()), (3, 10));
    }

    #[test]
    fn prelude_contains_keys_read_before_written() {
        let trace = trace("get b\nput a 10\nget a\nscan c\ndel d\nget d\nput b 30\nput b 5\n");
        let prelude = trace.unwrap().prelude();
        let puts: Vec<_> = (0..prelude.len()).map(|i| prelude.get(i)).collect();
        let put = |bytes, key| Request { verb: Verb::Put { bytes }, key, at: Duration::ZERO };
        // b has its own size, c the mean of 10, 30 and 5.
        assert_eq!(puts, [put(30, b"b"), put(15, b"c")]);
    }

    #[test]
    fn invalid_traces_are_refused() {
        for (text, message) in [
            ("# nothing\n", "no request"),
            ("@ 2\nget a\n@ 1\n", "line 3: time goes back"),
            ("put a 4294967295\n", "line 1: a value"),
        ] {
            let Err(Error::Invalid(reason)) = trace(text) else { panic!("taken: {text:?}") };
            assert!(reason.contains(message), "{reason}");
        }
    }
}
