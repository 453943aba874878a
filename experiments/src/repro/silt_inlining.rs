//! `silt-inlining`: space against reads for items of any size in slots of one size.
//!
//! The thesis's figure 2.7 is computed: sizes from 4 B to 1 MiB follow a Zipf distribution, a slot
//! has 4 bytes of lengths and 4 of an offset, and the rest of an item that does not fit is stored
//! elsewhere, at the cost of a second read. So is the chart here. Items with the quantiles of the
//! same distribution are then stored: in HashStores with slots of several sizes (`inline`), and in
//! a SortedStore, whose blocks have any length and need neither a second read nor empty space.
//! Reads from storage are counted.
//!
//! Empty slots of the cuckoo table in HashStores are not counted, as in the figure. Ours have 13
//! bytes instead of the offset and a checksum for each piece.
//!
//! Source: Lim, thesis (2015), section 2.3, figure 2.7.

use std::sync::Arc;

use siltstone_bench::engines::{OpenEngine, Storage, Target};
use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::{Durability, ManualClock, Result, WriteBatch};
use siltstone_runtime::Env;

use super::bars::bar;
use super::silt_table::PAPER;
use super::{Check, Experiment, Measurement};

const SMALLEST: f64 = 4.0;
const LARGEST: usize = 1 << 20;
const HEADER: f64 = 4.0;
const POINTER: f64 = 4.0;
/// The exponents of the figure.
const EXPONENTS: [f64; 5] = [1.0, 1.25, 1.5, 1.75, 2.0];
/// Stored items per distribution at scale 1.
const ITEMS: f64 = 900.0;
/// Measured slot sizes in bytes.
const SLOTS: [u64; 4] = [64, 512, 4 << 10, 32 << 10];

pub(super) struct SiltInlining;

/// Reads and space of slots of one size: reads per GET, and bytes stored per byte of data.
fn slots(sizes: &[(f64, f64)], slot: f64) -> (f64, f64) {
    let (mut reads, mut space, mut data) = (0.0, 0.0, 0.0);
    for &(size, share) in sizes {
        let room = slot - HEADER;
        let rest = if size <= room { 0.0 } else { size - (room - POINTER).max(0.0) };
        reads += share * if rest > 0.0 { 2.0 } else { 1.0 };
        space += share * (slot + rest);
        data += share * size;
    }
    (reads, space / data)
}

/// Sizes and their frequencies, in steps of a twentieth.
fn zipf(exponent: f64) -> Vec<(f64, f64)> {
    let mut sizes = Vec::new();
    let (mut at, mut total) = (SMALLEST, 0.0);
    while at <= LARGEST as f64 {
        let next = (at * 1.05).max(at + 1.0).floor();
        let weight: f64 = (at as u64..next as u64).map(|size| (size as f64).powf(-exponent)).sum();
        sizes.push((at, weight));
        total += weight;
        at = next;
    }
    sizes.iter_mut().for_each(|(_, weight)| *weight /= total);
    sizes
}

impl Experiment for SiltInlining {
    fn id(&self) -> &'static str {
        "silt-inlining"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 2.7"
    }

    fn claim(&self) -> &'static str {
        "larger slots trade space for reads, from 2 reads down to 1; blocks of any length need neither"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        // With exponent 1 the mean item has 84 KB, and all are in memory.
        let items = (ITEMS * scale).clamp(100.0, 9_000.0) as u64;
        let total = (EXPONENTS.len() * (SLOTS.len() + 1)) as u64;
        let (mut series, mut done) = (Vec::new(), 0);
        let mut worst = Worst::default();
        for exponent in EXPONENTS {
            let sizes = zipf(exponent);
            let points: Vec<(f64, f64)> = (3..=20)
                .map(|log2| slots(&sizes, f64::from(1 << log2) + HEADER + POINTER))
                .map(|(reads, space)| (space, reads))
                .collect();
            let is_falling = points.windows(2).all(|pair| pair[1].1 <= pair[0].1 + 1e-9);
            worst.rises |= !is_falling;
            worst.ends = worst.ends.max(points[points.len() - 1].1);
            let points = points.into_iter().map(|(space, reads)| (space.log2(), reads)).collect();
            series.push(Line { name: format!("exp = {exponent}"), points, is_reference: true });

            let stored: Vec<(f64, f64)> =
                quantiles(&sizes, items).map(|size| (size, 1.0)).collect();
            let mut found = Vec::new();
            for slot in SLOTS {
                let (reads, space) = slots(&stored, slot as f64);
                let (reads, space) = (reads / items as f64, space);
                let ours = StoreFigures::in_slots(slot, &stored)?;
                worst.reads = furthest(worst.reads, ours.reads / reads);
                worst.space = furthest(worst.space, ours.space / space);
                found.push((ours.space.log2(), ours.reads));
                done += 1;
                progress(done, total);
            }
            found.sort_by(|a, b| a.0.total_cmp(&b.0));
            let name = format!("exp = {exponent}, stored");
            series.push(Line { name, points: found, is_reference: false });
            let blocks = StoreFigures::in_blocks(&stored)?;
            worst.block_reads = worst.block_reads.max(blocks.reads);
            worst.block_space = worst.block_space.max(blocks.space_with_headers);
            done += 1;
            progress(done, total);
        }
        Ok(Measurement {
            scale: format!("{items} items of each distribution stored; the figure computed"),
            checks: worst.checks(),
            plot: Some(Plot::Lines(Lines {
                title: "SILT: reads and space when items are inlined".to_owned(),
                x: "log2 of the bytes stored per byte of data".to_owned(),
                y: "reads per GET".to_owned(),
                series,
            })),
        })
    }
}

/// The ratio that is further from 1.
fn furthest(a: f64, b: f64) -> f64 {
    if a.ln().abs() >= b.ln().abs() { a } else { b }
}

/// The largest deviations over all distributions.
struct Worst {
    /// Whether computed reads ever increase with the slot.
    rises: bool,
    /// Computed reads per GET with the largest slots.
    ends: f64,
    /// Measured over computed values.
    reads: f64,
    space: f64,
    block_reads: f64,
    block_space: f64,
}

impl Default for Worst {
    fn default() -> Self {
        Worst {
            rises: false,
            ends: 1.0,
            reads: 1.0,
            space: 1.0,
            block_reads: 0.0,
            block_space: 0.0,
        }
    }
}

impl Worst {
    fn checks(&self) -> Vec<Check> {
        vec![
            bar("silt-inlining", "monotonic").check(
                "reads never increase with the slot (1: true)",
                f64::from(u8::from(!self.rises)),
            ),
            bar("silt-inlining", "largest-slots")
                .check("reads per GET with slots for the largest", self.ends),
            bar("silt-inlining", "slot-reads")
                .check("HashStores' reads per GET over the figure's, where furthest", self.reads),
            bar("silt-inlining", "slot-bytes")
                .check("HashStores' bytes over the figure's, where furthest", self.space),
            bar("silt-inlining", "block-reads")
                .check("reads per GET in blocks of any length", self.block_reads),
            bar("silt-inlining", "block-bytes")
                .check("bytes in blocks over items with 4 bytes of lengths", self.block_space),
        ]
    }
}

/// Measurements of items in stores of one kind.
struct StoreFigures {
    /// Reads per GET.
    reads: f64,
    /// Bytes stored per byte of data, without empty slots.
    space: f64,
    /// The same, with 4 bytes of lengths per item counted as data.
    space_with_headers: f64,
}

impl StoreFigures {
    fn in_slots(slot: u64, sizes: &[(f64, f64)]) -> Result<Self> {
        let inline = slot.to_string();
        let table =
            table(sizes, &[("experimental.stores", "log-hash"), ("inline_value_bytes", &inline)])?;
        let stores = &table.engine.stats().levels[1];
        let slots = table_slots(sizes.len()) as u64 * stores.files;
        let empty = (slots - stores.entries) * slot;
        Self::of(&table, sizes, stores.bytes - empty)
    }

    fn in_blocks(sizes: &[(f64, f64)]) -> Result<Self> {
        let table = table(sizes, &[("merge_trigger", "1")])?;
        let bytes = table.engine.stats().levels[2].bytes;
        Self::of(&table, sizes, bytes)
    }

    fn of(table: &OpenEngine, sizes: &[(f64, f64)], bytes: u64) -> Result<Self> {
        for key in 0..sizes.len() as u32 {
            table.engine.get(&key.to_le_bytes())?;
        }
        let data: f64 = sizes.iter().map(|(size, _)| size).sum();
        let stats = table.engine.stats();
        Ok(StoreFigures {
            reads: stats.io["get"].reads as f64 / stats.gets_found as f64,
            space: bytes as f64 / data,
            space_with_headers: bytes as f64 / (data + HEADER * sizes.len() as f64),
        })
    }
}

fn table_slots(items: usize) -> u32 {
    // Below the load at which a second table would be started.
    (items as u32 * 10 / 9).next_power_of_two()
}

/// A table of items of these sizes, all in one LogStore, converted and merged according to the
/// options.
fn table(sizes: &[(f64, f64)], more: &[(&str, &str)]) -> Result<OpenEngine> {
    let slots = table_slots(sizes.len()).to_string();
    let base = [("partitions", "1"), ("log_store_slots", &slots), ("max_load_factor", "0.97")];
    let options = base.iter().chain(more);
    let target = Target {
        engine: "silt".to_owned(),
        options: options.map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
        storage: Storage::Ram,
        keep: false,
        background_threads: 1,
    };
    let table = target.open_in(Env::replayable(Arc::new(ManualClock::at(0)), 1))?;
    let mut batch = WriteBatch::new();
    for (key, (size, _)) in (0u32..).zip(sizes) {
        let key = key.to_le_bytes();
        batch.clear();
        batch.put(&key, &vec![1; *size as usize - key.len()]);
        table.engine.write(&batch, Durability::Buffered)?;
    }
    table.engine.flush()?;
    table.engine.maintain()?;
    Ok(table)
}

/// `count` quantiles of the distribution.
fn quantiles(sizes: &[(f64, f64)], count: u64) -> impl Iterator<Item = f64> {
    let (mut at, mut sum) = (0, 0.0);
    (0..count).map(move |i| {
        let wanted = (i as f64 + 0.5) / count as f64;
        while at + 1 < sizes.len() && sum + sizes[at].1 < wanted {
            sum += sizes[at].1;
            at += 1;
        }
        sizes[at].0
    })
}
