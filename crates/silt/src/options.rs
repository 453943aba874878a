//! The options of the engine: shape, default, cost, and when to change each.

use std::collections::BTreeMap;

use siltstone_engine::{OptionReader, Result};

/// Old option names with their present ones. Catalogues of existing stores contain the old names,
/// so both are accepted.
pub const RENAMED_OPTIONS: &[(&str, &str)] = &[
    ("slots", "log_store_slots"),
    ("load", "max_load_factor"),
    ("log", "max_log_size"),
    ("hash_stores", "merge_trigger"),
    ("stop", "stop_trigger"),
    ("block", "block_size"),
    ("inline", "inline_value_bytes"),
    ("sort", "sort_memory"),
    ("stores", "experimental.stores"),
    ("convert_rate", "experimental.convert_rate"),
    ("merge_rate", "experimental.merge_rate"),
];

/// The options that never change after the table was created.
pub const FIXED_OPTIONS: &[&str] = &["partitions"];

/// The options of a table. Invalid options are rejected at open, all of them in one error.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Partitions that keys are assigned to by their hash (`partitions`, 4): 1 to 256, fixed when
    /// the table is created. One partition is merged at a time, so more of them need less temporary
    /// disk space for it. Raise for large tables.
    pub partitions: u32,
    /// Slots of a LogStore's cuckoo table (`log_store_slots`, 131,072): 16 to 2^28, rounded up to 4
    /// times a power of two. Each takes six bytes of memory, twelve while a LogStore is converted.
    /// More slots lower write amplification.
    pub log_store_slots: u32,
    /// The load factor at which a LogStore is full (`max_load_factor`, 0.95): 0.1 to 0.97. A lower
    /// one leaves more of each HashStore empty. Tables of some thousand slots can use 0.97.
    pub max_load_factor: f64,
    /// Bytes of log after which the LogStores are full, too (`max_log_size`, 1 GiB): 4 KiB to 2
    /// GiB. Lower it for shorter recovery.
    pub max_log_bytes: u64,
    /// HashStores of a partition that trigger a merge into its SortedStore (`merge_trigger`, 32): 1
    /// to 1,024. Merges of partitions are staggered. More HashStores lower write amplification and
    /// take two bytes of memory per entry until they are merged.
    pub merge_trigger: usize,
    /// HashStores of a partition at which writes stall until one merge has finished
    /// (`stop_trigger`, 96): more than `merge_trigger`. Raise to absorb longer bursts of writes,
    /// for more memory.
    pub stop_trigger: usize,
    /// Target bytes of a SortedStore block (`block_size`, 4 KiB): 1 B to 1 MiB. A block holds the
    /// entries that fit on average, at least one. Larger blocks make the index smaller and each
    /// read longer; 1 indexes every entry.
    pub block_bytes: u64,
    /// Bytes of a HashStore slot, entry included (`inline_value_bytes`, 0): 32 B to 16 MiB, or 0
    /// for the size with the smallest file, where a second read counts as 1 KiB. A longer entry
    /// continues outside of its slot, which costs a second read; a shorter one leaves its slot
    /// partly empty. Set it where few entries are much longer than the others.
    pub inline_bytes: u64,
    /// Bytes of memory in which a merge sorts, and a conversion orders entries (`sort_memory`, 64
    /// MiB): 1 KiB to 1 TiB. A merge with more data writes sorted runs first; a conversion reads
    /// the log once per `sort_memory` of entries. Raise for large tables if memory permits.
    pub sort_bytes: u64,
    /// Bytes of memory for filters and indexes (`index_memory`, 0: no limit). Those above the limit
    /// are not loaded and cost reads: two per HashStore, a binary search per SortedStore. Set it
    /// where memory is scarcer than reads.
    pub index_memory_bytes: u64,
    /// When filters and indexes are loaded (`load_indexes`, `open`): `open` loads them before the
    /// open returns; `background` afterwards, so the open is faster and lookups need more reads for
    /// a while.
    pub loads_in_background: bool,
    /// Which kinds of stores the table uses (`experimental.stores`, `all`): see [`Stores`]. For
    /// comparisons only.
    pub stores: Stores,
    /// Entries per second that are converted to HashStores (`experimental.convert_rate`, 0: no
    /// limit). For experiments: a low rate stalls writes.
    pub convert_rate: u64,
    /// Entries per second that are merged into SortedStores (`experimental.merge_rate`, 0: no
    /// limit). For experiments: a low rate stalls writes.
    pub merge_rate: u64,
}

/// Which kinds of stores a table uses. All but [`All`](Stores::All) are for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    /// LogStores are converted to HashStores, and these are merged into SortedStores (`all`).
    All,
    /// LogStores are never converted (`log`).
    Log,
    /// HashStores are never merged (`log-hash`).
    LogHash,
    /// LogStores accumulate up to the number of HashStores that there would be, and are then
    /// converted and merged together (`log-sorted`).
    LogSorted,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            partitions: 4,
            log_store_slots: 128 << 10,
            max_load_factor: 0.95,
            max_log_bytes: 1 << 30,
            merge_trigger: 32,
            stop_trigger: 96,
            block_bytes: 4 << 10,
            inline_bytes: 0,
            sort_bytes: 64 << 20,
            index_memory_bytes: 0,
            loads_in_background: false,
            stores: Stores::All,
            convert_rate: 0,
            merge_rate: 0,
        }
    }
}

impl Options {
    /// Options from `key=value` pairs; missing ones keep their defaults.
    ///
    /// # Errors
    /// [`InvalidOptions`](siltstone_engine::Error::InvalidOptions) with every mistake.
    pub fn from_map(given: &BTreeMap<String, String>) -> Result<Self> {
        let mut o = Options::default();
        let mut reader = OptionReader::new(given);
        reader.renamed(RENAMED_OPTIONS);
        reader.value("partitions", &mut o.partitions);
        reader.value("log_store_slots", &mut o.log_store_slots);
        reader.value("max_load_factor", &mut o.max_load_factor);
        reader.size("max_log_size", &mut o.max_log_bytes);
        reader.value("merge_trigger", &mut o.merge_trigger);
        reader.value("stop_trigger", &mut o.stop_trigger);
        reader.size("block_size", &mut o.block_bytes);
        reader.size("inline_value_bytes", &mut o.inline_bytes);
        reader.size("sort_memory", &mut o.sort_bytes);
        reader.size("index_memory", &mut o.index_memory_bytes);
        let times = [("open", false), ("background", true)];
        reader.choice("load_indexes", &mut o.loads_in_background, &times);
        use Stores::{All, Log, LogHash, LogSorted};
        let stores = [("all", All), ("log", Log), ("log-hash", LogHash), ("log-sorted", LogSorted)];
        reader.choice("experimental.stores", &mut o.stores, &stores);
        reader.value("experimental.convert_rate", &mut o.convert_rate);
        reader.value("experimental.merge_rate", &mut o.merge_rate);
        o.check(&mut reader);
        reader.finish()?;
        Ok(o)
    }

    fn check(&self, reader: &mut OptionReader<'_>) {
        reader.range("partitions", self.partitions, 1..=256);
        reader.range("log_store_slots", self.log_store_slots, 16..=1 << 28);
        reader.range("max_load_factor", self.max_load_factor, 0.1..=0.97);
        reader.size_range("max_log_size", self.max_log_bytes, 4 << 10..=2 << 30);
        reader.range("merge_trigger", self.merge_trigger, 1..=1024);
        let stop = self.stop_trigger > self.merge_trigger;
        reader.require(stop, "stop_trigger", "more than merge_trigger");
        reader.size_range("block_size", self.block_bytes, 1..=1 << 20);
        let can_inline = matches!(self.inline_bytes, 0 | 0x20..=0x100_0000);
        reader.require(can_inline, "inline_value_bytes", "0, or from 32B to 16MiB");
        reader.size_range("sort_memory", self.sort_bytes, 1 << 10..=1 << 40);
    }

    /// The number of frozen generations at which the oldest is converted, and at which writes
    /// stall.
    pub(crate) fn frozen(&self) -> (usize, usize) {
        match self.stores {
            Stores::All | Stores::LogHash => (1, 2),
            Stores::Log => (usize::MAX, usize::MAX),
            Stores::LogSorted => (self.max_frozen(), self.max_frozen() + 1),
        }
    }

    /// Frozen generations that accumulate where there are no HashStores. With staggered merges the
    /// `P` partitions have up to `(P + 1) / 2 · merge_trigger` HashStores together. LogStores
    /// cannot be staggered: a generation has a LogStore of each partition, so it is converted as a
    /// whole.
    fn max_frozen(&self) -> usize {
        let partitions = self.partitions as usize;
        (self.merge_trigger * (partitions + 1)).div_ceil(2 * partitions)
    }

    /// The number of HashStores of a partition at which they are merged, and at which writes stall.
    pub(crate) fn merge_at(&self) -> (usize, usize) {
        match self.stores {
            Stores::All => (self.merge_trigger, self.stop_trigger),
            Stores::LogSorted => (self.max_frozen(), 2 * self.max_frozen() + self.stop_trigger),
            Stores::Log | Stores::LogHash => (usize::MAX, usize::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_engine::Error;

    fn parse(given: &[(&str, &str)]) -> Result<Options> {
        Options::from_map(&given.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect())
    }

    #[test]
    fn all_mistakes_are_reported_together() {
        let given = [
            ("log_store_slots", "3"),
            ("max_load_factor", "NaN"),
            ("stop_trigger", "4"),
            ("inline_value_bytes", "31B"),
            ("experimental.stores", "few"),
            ("colour", "red"),
        ];
        let Err(Error::InvalidOptions(mistakes)) = parse(&given) else { panic!("accepted") };
        let names: Vec<_> = mistakes.iter().map(|m| m.option.as_str()).collect();
        assert_eq!(
            names,
            [
                "experimental.stores",
                "log_store_slots",
                "max_load_factor",
                "stop_trigger",
                "inline_value_bytes",
                "colour"
            ]
        );
    }

    #[test]
    fn options_are_parsed() {
        let given =
            [("partitions", "2"), ("max_log_size", "1MiB"), ("experimental.stores", "log-sorted")];
        let o = parse(&given).unwrap();
        assert_eq!((o.partitions, o.max_log_bytes, o.stores), (2, 1 << 20, Stores::LogSorted));
    }

    #[test]
    fn old_names_set_the_renamed_options() {
        let values = ["64", "0.9", "1MiB", "3", "8", "1KiB", "64B", "1MiB", "log", "7", "8"];
        siltstone_testkit::check_renamed_options(RENAMED_OPTIONS, &values, Options::from_map);
    }

    #[test]
    fn frozen_generations_accumulate_up_to_the_number_of_hash_stores() {
        for (partitions, merge_trigger, generations) in [(1, 8, 8), (4, 62, 39), (2, 2, 2)] {
            let stores = Stores::LogSorted;
            let o = Options { partitions, merge_trigger, stores, ..Options::default() };
            assert_eq!((o.frozen().0, o.merge_at().0), (generations, generations));
        }
    }
}
