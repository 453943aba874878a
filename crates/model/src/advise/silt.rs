//! The advisor's model of `silt`: its settings for a workload, and what they cost.
//!
//! A fraction of a byte of index per entry, and one read per lookup.
//!
//! ```text
//! settings    4 partitions of 131,072 slots; as many HashStores before a merge as memory allows
//! memory      6 B per slot of a LogStore, two during a conversion; 2 B per entry of a HashStore,
//!             half of them present on average; the trie over the blocks of the SortedStore
//! ```
//!
//! Source: Lim, thesis, sections 2.4 and 4.5; the trie's bits per key are those of `cargo bench -p
//! siltstone-structures --bench ect -- 16777216`.

use super::costs::Costs;
use super::design::{Design, Settings, size};
use super::requirements::Requirements;
use crate::Silt;
use crate::error::InvalidParameter;

pub(super) const DESIGN: Design = Design {
    engine: "silt",
    is_ordered: false,
    is_durable: true,
    has_versions: false,
    has_history: false,
    fit,
};

const OCCUPANCY: f64 = 0.95;
const BLOCK_BYTES: f64 = 4096.0;
/// Overhead in bytes per item in the log, in a HashStore's slot, and in the SortedStore.
const LOG_BYTES: f64 = 16.0;
const SLOT_BYTES: f64 = 8.0;
const SORTED_BYTES: f64 = 6.0;
/// False-positive rate per HashStore of a lookup: tags of 15 bits, two buckets of four slots.
const FALSE_POSITIVES: f64 = 8.0 / 32768.0;

#[derive(Debug, Clone)]
struct Stores {
    partitions: f64,
    slots: f64,
    hash_stores: f64,
    sort: f64,
}

fn fit(wanted: &Requirements) -> Result<Box<dyn Settings>, String> {
    let mut stores =
        Stores { partitions: 4.0, slots: 131_072.0, hash_stores: 64.0, sort: 64.0 * 1048576.0 };
    // A LogStore should contain a small share of a partition's keys.
    while stores.slots * OCCUPANCY * 8.0 > wanted.keys() / stores.partitions
        && stores.slots > 4096.0
    {
        stores.slots /= 2.0;
    }
    if stores.slots * OCCUPANCY >= wanted.keys() / stores.partitions {
        return Err("it is meant for more keys".to_owned());
    }
    if let Some(memory) = wanted.memory_bytes {
        let is_over = |stores: &Stores| stores.memory(wanted).iter().sum::<f64>() > memory;
        // If merges dominate the writes, memory is used to make them rarer.
        let merged = |stores: &Stores| {
            wanted.keys() / (stores.slots * OCCUPANCY * stores.partitions * stores.hash_stores)
        };
        while merged(&stores) > 3.0 && stores.hash_stores < 512.0 {
            stores.hash_stores *= 2.0;
        }
        while is_over(&stores) && stores.hash_stores > 8.0 {
            stores.hash_stores /= 2.0;
        }
        while is_over(&stores) && stores.sort > 8.0 * 1048576.0 {
            stores.sort /= 2.0;
        }
    }
    Ok(Box::new(stores))
}

impl Stores {
    /// Bytes of memory that grow with the number of keys, and other bytes.
    fn memory(&self, wanted: &Requirements) -> [f64; 2] {
        let entries_per_block = (BLOCK_BYTES / (wanted.item_bytes() + SORTED_BYTES)).max(1.0);
        let sorted = wanted.keys() * trie_bits(entries_per_block) / 8.0;
        let slots = self.slots * self.partitions;
        let hash = 2.0 * slots * self.hash_stores / 2.0;
        [sorted + hash, 2.0 * 6.0 * slots + 2.0 * self.sort]
    }
}

/// Bits per key of a trie over blocks of this many entries.
fn trie_bits(entries: f64) -> f64 {
    // Measured points; linear interpolation and extrapolation of the logarithms.
    const POINTS: [(f64, f64); 5] =
        [(1.0, 2.50), (2.0, 2.30), (4.0, 1.38), (8.0, 0.83), (16.0, 0.51)];
    let next = POINTS.iter().position(|(at, _)| entries <= *at).unwrap_or(POINTS.len() - 1).max(1);
    let ((a, low), (b, high)) = (POINTS[next - 1], POINTS[next]);
    let slope = (high / low).ln() / (b / a).ln();
    low * (entries / a).powf(slope)
}

impl Settings for Stores {
    fn costs(&self, wanted: &Requirements) -> Result<Costs, InvalidParameter> {
        let one = wanted.popularity.part(self.partitions);
        let silt =
            Silt { table_slots: self.slots, occupancy: OCCUPANCY, hash_stores: self.hash_stores };
        let mut writes = silt.write_amplification(&one)?;
        let item = wanted.item_bytes();
        let overheads = [LOG_BYTES, SLOT_BYTES, SORTED_BYTES];
        for ((_, cost), overhead) in writes.by_stage.iter_mut().zip(overheads) {
            *cost *= (item + overhead) / item;
        }
        let [index_bytes, buffer_bytes] = self.memory(wanted);
        let stores = self.hash_stores / 2.0;
        Ok(Costs {
            write_amplification: writes.total(),
            writes,
            reads_per_lookup: 1.0 + stores * FALSE_POSITIVES,
            index_bytes,
            buffer_bytes,
            // All HashStores, and one partition twice during its merge.
            space_bytes: (item + SORTED_BYTES) * wanted.keys() * (1.0 + 1.0 / self.partitions)
                + (item + SLOT_BYTES) * self.slots * self.partitions * self.hash_stores,
        })
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        vec![
            ("partitions", self.partitions.to_string()),
            ("log_store_slots", self.slots.to_string()),
            ("merge_trigger", self.hash_stores.to_string()),
            ("stop_trigger", (3.0 * self.hash_stores).to_string()),
            ("sort_memory", size(self.sort)),
        ]
    }

    fn scaled(&self, share: f64) -> Box<dyn Settings> {
        // Four times a power of two.
        let slots = (self.slots * share).max(1024.0).log2().round().exp2();
        Box::new(Stores { slots, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trie_bits_match_measurements_and_decrease() {
        assert!((trie_bits(1.0) - 2.5).abs() < 1e-9 && (trie_bits(8.0) - 0.83).abs() < 1e-9);
        assert!((trie_bits(16.0) - 0.51).abs() < 1e-9);
        let bits: Vec<f64> = (0..12).map(|power| trie_bits(1.5f64.powi(power))).collect();
        assert!(bits.windows(2).all(|pair| pair[0] > pair[1] && pair[1] > 0.0), "{bits:?}");
    }
}
