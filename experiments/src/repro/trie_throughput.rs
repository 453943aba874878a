//! `trie-throughput`: puts per second that the paper's devices would allow, compared with other
//! stores.
//!
//! The paper writes up to 1 TB on an SSD of 230 MB/s for writes and 298 MB/s for reads, and on a
//! disk of 144 and 138. Here each store takes the same writes in memory; the bytes that it writes
//! and reads, for log and compactions, are converted to time on those devices, one request after
//! the other. So the figure shows the cost of the designs, not of this machine's processor or disk.
//! Differences: LevelDB and RocksDB are `lsm` configured like LevelDB (tenfold levels, four tables
//! in level 0, round-robin selection); SILT is `silt`; wear-levelling, the cause of the paper's
//! third step, is not included.
//!
//! Invariant: all stores take the same keys and values in the same order.
//!
//! Source: LSM-trie paper, figures 10 and 11, Table 2.

use siltstone_bench::generate::Draw;
use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::{Error, Result, Stats};

use super::bars::bar;
use super::trie_bench::{Load, PAPER, Run};
use super::{Experiment, Measurement};

/// Bytes per second of sequential writes and reads of a device (Table 2).
type Device = [f64; 2];
const SSD: Device = [230e6, 298e6];
const DISK: Device = [144e6, 138e6];
/// Bytes per memtable of all stores.
const TABLE_BYTES: u64 = 64 << 10;

pub(super) struct TrieThroughput;

impl Experiment for TrieThroughput {
    fn id(&self) -> &'static str {
        "trie-throughput"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 10"
    }

    fn claim(&self) -> &'static str {
        "on a disk more than twice the puts of the other stores on an SSD, and no fewer as the last level \
         grows; under Zipf a third of the items never gets there"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let load = Load { table_bytes: TABLE_BYTES, levels: 5, ..Load::of(8e6, scale) };
        let zipf = Load { draw: Draw::Zipf { skew: 0.99 }, ..load };
        let memtable = TABLE_BYTES.to_string();
        let levels =
            [10, 100, 1000, 10_000].map(|times| (TABLE_BYTES * times).to_string()).join(":");
        let leveldb = [
            ("memtable", memtable.as_str()),
            ("target_file_size", &memtable),
            ("levels", &levels),
            ("l0_capacity", "0"),
            ("triad.log", "off"),
            ("experimental.compaction_pri", "round_robin"),
            ("experimental.l0_compaction_trigger", "4"),
            ("max_compactions", "1"),
        ];
        // Four partitions, each with LogStores of a memtable's number of items.
        let slots = (TABLE_BYTES / 116).next_power_of_two().to_string();
        let silt =
            [("partitions", "4"), ("log_store_slots", slots.as_str()), ("sort_memory", "1TiB")];
        let trie = Run::of(load, &[("gc_garbage_ratio", "1")], progress)?;
        let skewed = Run::of(zipf, &[("gc_garbage_ratio", "1")], progress)?;
        let leveldb = Run::of_engine("lsm", load, &leveldb, progress)?;
        let silt = Run::of_engine("silt", load, &silt, progress)?;

        let ends = |run: &Run, device| rate(&Stats::default(), &run.settled, device);
        let others = ends(&leveldb, SSD).max(ends(&silt, SSD));
        let [first, _, .., last] = &trie.cycles[..] else {
            let reason = "fewer than three complete cycles; use a larger scale".to_owned();
            return Err(Error::Invalid(reason));
        };
        let middle = &trie.cycles[trie.cycles.len() / 2].1;
        let (early, late) = (rate(&first.1, middle, SSD), rate(middle, &last.1, SSD));
        // Without collection in the last level.
        let left = skewed.settled.levels.iter().map(|level| level.entries).sum::<u64>();
        let checks = vec![
            bar("trie-throughput", "disk").check(
                "puts on the disk over those of the best other store on the SSD",
                ends(&trie, DISK) / others,
            ),
            bar("trie-throughput", "over-lsm").check(
                format!(
                    "puts on the SSD ({:.0} K/s) over `lsm`'s made like LevelDB",
                    ends(&trie, SSD) / 1e3
                ),
                ends(&trie, SSD) / ends(&leveldb, SSD),
            ),
            bar("trie-throughput", "over-silt")
                .check("the same over `silt`'s", ends(&trie, SSD) / ends(&silt, SSD)),
            bar("trie-throughput", "growth")
                .check("puts in the last half of the cycles over the first half's", late / early),
            bar("trie-throughput", "never-there").check(
                "share of the items that never reach the last level, Zipf 0.99",
                1.0 - left as f64 / skewed.settled.writes as f64,
            ),
            bar("trie-throughput", "zipf-over-uniform").check(
                "write amplification under Zipf over that under uniform keys",
                skewed.amplification() / trie.amplification(),
            ),
        ];
        let series = [
            ("LSM-trie, SSD", &trie, SSD),
            ("LSM-trie, disk", &trie, DISK),
            ("LSM-trie, SSD, Zipf", &skewed, SSD),
            ("lsm as LevelDB, SSD", &leveldb, SSD),
            ("silt, SSD", &silt, SSD),
        ];
        let plot = Lines {
            title: "Puts per second that the paper's devices let through".to_owned(),
            x: "items written".to_owned(),
            y: "thousand puts per second".to_owned(),
            series: series.map(|(name, run, device)| line(name, run, device)).to_vec(),
        };
        let amplification = |run: &Run| format!("{:.1}", run.amplification());
        let scale = format!(
            "{}; bytes written per byte of the user: LSM-trie {}, under Zipf {}, lsm as LevelDB {}, silt {}",
            load.words(),
            amplification(&trie),
            amplification(&skewed),
            amplification(&leveldb),
            amplification(&silt)
        );
        Ok(Measurement { scale, checks, plot: Some(Plot::Lines(plot)) })
    }

    fn cause(&self) -> Option<&'static str> {
        Some(
            "the 20 times are of 1 TB, where LevelDB has seven levels and SILT rewrites its \
             SortedStore for each of thousands of HashStores; here the model of LevelDB has four \
             levels, and at scale 1 SILT merges into about 600 MB",
        )
    }
}

/// Puts per second between two times, if the device only serves the counted requests.
fn rate(before: &Stats, after: &Stats, [write, read]: Device) -> f64 {
    let bytes = |stats: &Stats| {
        stats.io.values().fold([0, 0], |[w, r], io| [w + io.bytes_written, r + io.bytes_read])
    };
    let ([w0, r0], [w1, r1]) = (bytes(before), bytes(after));
    let seconds = (w1 - w0) as f64 / write + (r1 - r0) as f64 / read;
    (after.writes - before.writes) as f64 / seconds
}

/// The rate of each step, over items.
fn line(name: &str, run: &Run, device: Device) -> Line {
    let pairs = run.steps.windows(2);
    let points = pairs.map(|pair| (pair[1].0 as f64, rate(&pair[0].1, &pair[1].1, device) / 1e3));
    Line { name: name.to_owned(), points: points.collect(), is_reference: false }
}
