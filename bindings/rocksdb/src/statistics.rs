//! Statistics of databases: counters by RocksDB's numbers, and latencies of gets and writes.
//!
//! ```text
//!   options ─┐
//!   a copy  ─┴─▶ Statistics ─▶ open tables: their counters, read when the program asks
//!                     ├─────── what closed ones have counted
//!                     └─────── latencies, measured at each call
//! ```
//!
//! As in RocksDB they belong to options and their copies, and count all databases that are opened
//! with these. Counters that the store does not have are 0.

use std::ffi::c_char;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use shim::boundary::{Pointer, copy};
use store::{Engine, Stats};

use crate::exports::exports;
use crate::options::Options;

/// The number of RocksDB's counter of the bytes that gets return.
const BYTES_READ: u32 = 62;
/// The number of RocksDB's histogram of the latency of gets.
const DB_GET: u32 = 0;
/// The number of RocksDB's histogram of the latency of writes.
const DB_WRITE: u32 = 1;

/// The precision of latencies.
const SIGNIFICANT_DIGITS: u8 = 2;

/// The value of a counter.
type Read = fn(&Stats) -> u64;

/// RocksDB's number and name of each counter that the store has.
const TICKERS: [(u32, &str, Read); 16] = [
    (0, "rocksdb.block.cache.miss", |stats| counter(stats, "block_cache_misses")),
    (1, "rocksdb.block.cache.hit", |stats| counter(stats, "block_cache_hits")),
    (12, "rocksdb.block.cache.data.miss", |stats| counter(stats, "block_cache_misses")),
    (13, "rocksdb.block.cache.data.hit", |stats| counter(stats, "block_cache_hits")),
    (52, "rocksdb.compaction.key.drop.range_del", |stats| counter(stats, "range_deleted_entries")),
    (53, "rocksdb.compaction.key.drop.user", |stats| counter(stats, "compaction_filter_drops")),
    (58, "rocksdb.number.keys.written", |stats| stats.writes),
    (59, "rocksdb.number.keys.read", |stats| stats.gets),
    (61, "rocksdb.bytes.written", |stats| stats.user_bytes_written),
    (63, "rocksdb.number.db.seek", |stats| stats.seeks),
    (76, "rocksdb.stall.micros", |stats| {
        stats.stall.slowdown_us + stats.stall.flush_us + stats.stall.compaction_us
    }),
    (84, "rocksdb.wal.synced", |stats| stats.io.get("log").map_or(0, |io| io.syncs)),
    (85, "rocksdb.wal.bytes", |stats| stats.io.get("log").map_or(0, |io| io.bytes_written)),
    (94, "rocksdb.compact.read.bytes", |stats| {
        stats.io.get("compaction").map_or(0, |io| io.bytes_read)
    }),
    (95, "rocksdb.compact.write.bytes", |stats| {
        stats.io.get("compaction").map_or(0, |io| io.bytes_written)
    }),
    (96, "rocksdb.flush.write.bytes", |stats| {
        stats.io.get("flush").map_or(0, |io| io.bytes_written)
    }),
];

fn counter(stats: &Stats, name: &str) -> u64 {
    stats.counters.get(name).copied().unwrap_or(0)
}

type Counts = [u64; TICKERS.len()];

/// What the databases of some options have counted.
#[derive(Debug, Default)]
pub struct Statistics {
    tables: Mutex<Tables>,
    bytes_read: AtomicU64,
    gets: Histogram,
    writes: Histogram,
}

#[derive(Debug, Default)]
struct Tables {
    open: Vec<Weak<dyn Engine>>,
    /// The sums of those that were closed.
    closed: Counts,
}

impl Statistics {
    /// Counts what a table counts.
    pub fn begin(&self, table: &Arc<dyn Engine>) {
        self.tables.lock().open.push(Arc::downgrade(table));
    }

    /// Keeps what a table has counted, before it is closed.
    pub fn finish(&self, table: &Arc<dyn Engine>) {
        let mut tables = self.tables.lock();
        let known = tables.open.len();
        let closing = Arc::downgrade(table);
        tables.open.retain(|open| !open.ptr_eq(&closing));
        if tables.open.len() < known {
            add(&mut tables.closed, table.as_ref());
        }
    }

    fn counts(&self) -> Counts {
        let tables = self.tables.lock();
        let mut counts = tables.closed;
        for table in tables.open.iter().filter_map(Weak::upgrade) {
            add(&mut counts, table.as_ref());
        }
        counts
    }

    fn ticker(&self, number: u32) -> u64 {
        if number == BYTES_READ {
            return self.bytes_read.load(Relaxed);
        }
        let at = TICKERS.iter().position(|(known, ..)| *known == number);
        at.map_or(0, |at| self.counts()[at])
    }

    fn histogram(&self, number: u32) -> HistogramData {
        match number {
            DB_GET => self.gets.data(),
            DB_WRITE => self.writes.data(),
            _ => HistogramData::default(),
        }
    }

    /// Measures a write until the timer is dropped.
    pub fn time_write(&self) -> Timer<'_> {
        Timer { histogram: &self.writes, began: Instant::now() }
    }

    /// Measures a get until the timer is dropped.
    pub fn time_get(&self) -> Timer<'_> {
        Timer { histogram: &self.gets, began: Instant::now() }
    }

    /// Counts the bytes of a value that a get returns.
    pub fn count_read(&self, bytes: usize) {
        self.bytes_read.fetch_add(bytes as u64, Relaxed);
    }

    fn text(&self) -> String {
        let counts = self.counts();
        let mut text = String::new();
        // Writing to a string does not fail.
        for ((_, name, _), count) in TICKERS.iter().zip(counts) {
            let _ = writeln!(text, "{name} COUNT : {count}");
        }
        let _ = writeln!(text, "rocksdb.bytes.read COUNT : {}", self.ticker(BYTES_READ));
        for (name, number) in
            [("rocksdb.db.get.micros", DB_GET), ("rocksdb.db.write.micros", DB_WRITE)]
        {
            let HistogramData { median, p95, p99, max, count, sum, .. } = self.histogram(number);
            let _ = writeln!(
                text,
                "{name} P50 : {median:.6} P95 : {p95:.6} P99 : {p99:.6} P100 : {max:.6} \
                 COUNT : {count} SUM : {sum}"
            );
        }
        text
    }
}

fn add(counts: &mut Counts, table: &dyn Engine) {
    let stats = table.stats();
    for (count, (.., read)) in counts.iter_mut().zip(TICKERS) {
        *count += read(&stats);
    }
}

/// A running measurement.
#[derive(Debug)]
pub struct Timer<'a> {
    histogram: &'a Histogram,
    began: Instant,
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        // Part of a microsecond counts as one.
        self.histogram.record(self.began.elapsed().as_nanos().div_ceil(1000) as u64);
    }
}

/// Times in microseconds.
#[derive(Debug)]
struct Histogram(Mutex<(hdrhistogram::Histogram<u64>, u64)>);

impl Default for Histogram {
    fn default() -> Self {
        let times = hdrhistogram::Histogram::new(SIGNIFICANT_DIGITS);
        Histogram(Mutex::new((times.expect("the digits are from 0 to 5"), 0)))
    }
}

impl Histogram {
    fn record(&self, micros: u64) {
        let (times, sum) = &mut *self.0.lock();
        times.saturating_record(micros);
        *sum += micros;
    }

    fn data(&self) -> HistogramData {
        let (times, sum) = &*self.0.lock();
        if times.is_empty() {
            return HistogramData::default();
        }
        let percentile = |share| times.value_at_quantile(share) as f64;
        HistogramData {
            median: percentile(0.5),
            p95: percentile(0.95),
            p99: percentile(0.99),
            average: *sum as f64 / times.len() as f64,
            std_dev: times.stdev(),
            max: times.max() as f64,
            min: times.min() as f64,
            count: times.len(),
            sum: *sum,
        }
    }
}

/// A summary of times in microseconds.
#[derive(Debug, Clone, Default)]
pub struct HistogramData {
    median: f64,
    p95: f64,
    p99: f64,
    average: f64,
    std_dev: f64,
    max: f64,
    min: f64,
    count: u64,
    sum: u64,
}

exports! {
    /// Counts what databases do that are opened with these options or copies of them.
    fn rocksdb_options_enable_statistics(options: &mut Options) {
        options.statistics = Some(Arc::default())
    }

    /// All counters and latencies as text, to be freed; NULL if they are not enabled.
    fn rocksdb_options_statistics_get_string(options: &Options) -> Pointer<c_char> {
        let text = options.statistics.as_ref().map(|statistics| statistics.text());
        text.map_or(Pointer::null(), |text| Pointer(copy(text.as_bytes())))
    }

    /// A counter by RocksDB's number. 0 if the store does not have it.
    fn rocksdb_options_statistics_get_ticker_count(options: &Options, number: u32) -> u64 {
        options.statistics.as_ref().map_or(0, |statistics| statistics.ticker(number))
    }

    /// Latencies by RocksDB's number: of gets and of writes. Others are empty.
    fn rocksdb_options_statistics_get_histogram_data(
        options: &Options, number: u32, data: &mut HistogramData
    ) {
        let statistics = options.statistics.as_ref();
        *data = statistics.map(|statistics| statistics.histogram(number)).unwrap_or_default()
    }

    /// An empty summary.
    fn rocksdb_statistics_histogram_data_create() -> Pointer<HistogramData> {
        Pointer::new(HistogramData::default())
    }

    /// Frees a summary.
    fn rocksdb_statistics_histogram_data_destroy(data: Option<Box<HistogramData>>) {
        drop(data)
    }

    /// The median, in microseconds.
    fn rocksdb_statistics_histogram_data_get_median(data: &HistogramData) -> f64 {
        data.median
    }

    /// The 95th percentile, in microseconds.
    fn rocksdb_statistics_histogram_data_get_p95(data: &HistogramData) -> f64 {
        data.p95
    }

    /// The 99th percentile, in microseconds.
    fn rocksdb_statistics_histogram_data_get_p99(data: &HistogramData) -> f64 {
        data.p99
    }

    /// The average, in microseconds.
    fn rocksdb_statistics_histogram_data_get_average(data: &HistogramData) -> f64 {
        data.average
    }

    /// The standard deviation, in microseconds.
    fn rocksdb_statistics_histogram_data_get_std_dev(data: &HistogramData) -> f64 {
        data.std_dev
    }

    /// The longest time, in microseconds.
    fn rocksdb_statistics_histogram_data_get_max(data: &HistogramData) -> f64 {
        data.max
    }

    /// The shortest time, in microseconds.
    fn rocksdb_statistics_histogram_data_get_min(data: &HistogramData) -> f64 {
        data.min
    }

    /// How many times were measured.
    fn rocksdb_statistics_histogram_data_get_count(data: &HistogramData) -> u64 {
        data.count
    }

    /// The sum of all times, in microseconds.
    fn rocksdb_statistics_histogram_data_get_sum(data: &HistogramData) -> u64 {
        data.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_the_percentiles_of_what_was_recorded() {
        let histogram = Histogram::default();
        (1..=100).for_each(|micros| histogram.record(micros));
        let data = histogram.data();
        assert_eq!((data.count, data.sum, data.min, data.max), (100, 5050, 1.0, 100.0));
        assert_eq!((data.median, data.p95, data.p99), (50.0, 95.0, 99.0));
        assert!((data.std_dev - 28.866).abs() < 0.01, "{}", data.std_dev);
    }
}
