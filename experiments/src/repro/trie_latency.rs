//! `trie-latency`: latency of reads with concurrent writes.
//!
//! A table is loaded on the disk of this machine and read with direct I/O, by one client that reads
//! or writes at random: one read in twenty, every other, nineteen in twenty operations, as fast as
//! it can. Reads are of existing keys, uniformly; writes overwrite such keys; only reads are timed.
//! Differences from the paper: its client has eight cores and an SSD of 2014, this one shares two
//! cores with flushes and compactions; the store is at most a hundredth of 1 TB. The comparable
//! result is whether writes affect reads.
//!
//! Source: LSM-trie paper, Table 3.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::RngExt;
use siltstone_bench::engines::{Storage, Target, default_directory};
use siltstone_bench::generate::{KeySpace, ValueSize, Values, stream};
use siltstone_engine::{Durability, Engine, Result, WriteBatch};

use super::bars::bar;
use super::trie_bench::PAPER;
use super::{Experiment, Measurement};

const ITEMS: f64 = 4e6;
const KEY_BYTES: usize = 16;
const READS: f64 = 40_000.0;
/// Writes per batch while loading.
const BATCH: u64 = 100;
/// Shares of reads of Table 3.
const SHARES: [f64; 3] = [0.05, 0.5, 0.95];

pub(super) struct TrieLatency;

impl Experiment for TrieLatency {
    fn id(&self) -> &'static str {
        "trie-latency"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "Table 3"
    }

    fn claim(&self) -> &'static str {
        "read latency hardly depends on how much is written concurrently: the 95th and 99th percentiles are \
         within a seventh of each other with 5, 50 and 95 % reads, and below 1 ms"
    }

    fn cause(&self) -> Option<&'static str> {
        Some(
            "one client in a closed loop: with 5 % reads it causes twenty times as many flushes \
             and compactions per read as with 95 %, and two cores and one virtual disk with one \
             queue serve both: a read waits behind their requests, or for a thread in the kernel",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let (items, reads) = ((ITEMS * scale) as u64, (READS * scale.min(1.0)) as u64);
        let target = Target {
            engine: "trie".to_owned(),
            options: [("htable_size".to_owned(), "4MiB".to_owned())].into(),
            storage: Storage::Direct(default_directory()),
            keep: false,
            background_threads: 2,
        };
        let opened = target.open(1)?;
        let mut client = Client::new(&*opened.engine, items)?;
        client.load(progress)?;
        let mut found = Vec::new();
        for share in SHARES {
            let latencies = client.mix(share, reads)?;
            let at = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
            found.push([0.95, 0.99].map(at));
        }
        let mut checks = Vec::new();
        let percentiles = [
            ("95th", bar("trie-latency", "spread-95")),
            ("99th", bar("trie-latency", "spread-99")),
        ];
        for (at, (name, bar)) in percentiles.into_iter().enumerate() {
            let spread = |of: &dyn Fn(usize) -> f64| {
                let all: Vec<f64> = (0..SHARES.len()).map(of).collect();
                all.iter().copied().fold(0.0, f64::max)
                    / all.iter().copied().fold(f64::MAX, f64::min)
            };
            checks.push(bar.check(
                format!("{name} percentile, largest over smallest of three mixes"),
                spread(&|mix| found[mix][at]),
            ));
        }
        let table = bar("trie-latency", "table-99").numbers();
        for ((share, paper), ours) in SHARES.iter().zip(table).zip(&found) {
            checks.push(bar("trie-latency", "percentile-99").check(
                format!("99th percentile in µs, {:.0} % reads (there {})", 100.0 * share, paper),
                ours[1],
            ));
        }
        let details: Vec<_> =
            found.iter().map(|[p95, p99]| format!("{p95:.0} and {p99:.0}")).collect();
        let scale = format!(
            "{items} items of 16 + 1 to 200 bytes, tables of 4 MiB, {reads} reads per mix; µs at 95 and 99 %: {}",
            details.join(", ")
        );
        Ok(Measurement { scale, checks, plot: None })
    }
}

struct Client<'e> {
    engine: &'e dyn Engine,
    space: KeySpace,
    items: u64,
    values: Values,
    rng: siltstone_bench::generate::Rng,
    batch: WriteBatch,
    key: Vec<u8>,
}

impl<'e> Client<'e> {
    fn new(engine: &'e dyn Engine, items: u64) -> Result<Self> {
        let space = KeySpace::new(KEY_BYTES, items)?;
        let mut rng = stream(1, 0);
        let values = Values::new(ValueSize::Uniform(1, 200), 0.0, &mut rng);
        let (batch, key) = (WriteBatch::new(), Vec::new());
        Ok(Client { engine, space, items, values, rng, batch, key })
    }

    fn put(&mut self, n: u64) {
        self.space.write(n, &mut self.key);
        self.batch.put(&self.key, self.values.next(&mut self.rng));
    }

    fn write(&mut self) -> Result<()> {
        self.engine.write(&self.batch, Durability::Buffered)?;
        self.batch.clear();
        Ok(())
    }

    /// Writes every item once, and runs all due background work.
    fn load(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        for n in 0..self.items {
            self.put(n);
            if n % BATCH == BATCH - 1 || n + 1 == self.items {
                self.write()?;
                progress(n, self.items);
            }
        }
        self.engine.flush()?;
        self.engine.maintain()
    }

    /// Latencies in nanoseconds of `reads` reads, which are the share `share` of all operations.
    fn mix(&mut self, share: f64, reads: u64) -> Result<Histogram<u64>> {
        let mut latencies = Histogram::new_with_bounds(1, 3_600_000_000_000, 3)
            .map_err(|e| siltstone_engine::Error::Invalid(e.to_string()))?;
        let mut done = 0;
        while done < reads {
            let n = self.rng.random_range(0..self.items);
            if !self.rng.random_bool(share) {
                self.put(n);
                self.write()?;
                continue;
            }
            self.space.write(n, &mut self.key);
            let began = Instant::now();
            let found = self.engine.get(&self.key)?;
            let took: Duration = began.elapsed();
            if found.is_none() {
                let what = format!("item {n} is missing");
                return Err(siltstone_engine::Error::Invalid(what));
            }
            latencies.saturating_record(took.as_nanos().max(1) as u64);
            done += 1;
        }
        Ok(latencies)
    }
}
