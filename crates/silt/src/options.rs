//! The engine's options, with what each default costs and when to change it.

use std::collections::BTreeMap;

use siltstone_engine::{OptionReader, Result};

// ANCHOR: options
/// How a table of this engine is kept. Refused whole at open if it cannot be.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Instances of SILT that keys are divided among by their hash (`partitions`, 4). One is merged
    /// at a time, so more of them take less space for it. Fixed when the table is made.
    pub partitions: u32,
    /// Slots of a LogStore's table (`slots`, 131,072), rounded up to 4 times a power of two. Six bytes
    /// of memory each, twice while a LogStore is converted; more slots write less.
    pub slots: u32,
    /// The share of the slots that are taken when a LogStore is full (`load`, 0.95). Tables of some
    /// thousand slots take 0.97; below, more of a HashStore is empty.
    pub load: f64,
    /// Bytes of log after which LogStores are full, too (`log`, 1 GiB); at most 2 GiB.
    pub log_bytes: u64,
    /// HashStores of a partition that are merged into its SortedStore (`hash_stores`, 32), partitions
    /// taking turns. More write less and take two bytes an entry in memory until they are merged.
    pub hash_stores: usize,
    /// HashStores of a partition at which writers stop until one is merged (`stop`, 96).
    pub stop: usize,
    /// Bytes of a block of the SortedStore that its index finds (`block`, 4 KiB): as many entries as
    /// fit on average, at least one. More entries a block make a smaller index; 1 finds every entry
    /// by itself.
    pub block_bytes: u64,
    /// Bytes of a slot of a HashStore (`inline`, 0: as many as make the file smallest, where a second read
    /// counts like 1 KiB), from 32 B to 16 MiB. An entry that does not fit has its rest behind the slots
    /// and costs that read; one that does leaves the slot partly empty.
    pub inline_bytes: u64,
    /// Bytes of memory in which a merge sorts (`sort`, 64 MiB), and as many in which a conversion brings
    /// entries into the order of slots. What a merge has more is sorted in runs that are written once
    /// more; a conversion reads the log once for each `sort` bytes of entries.
    pub sort_bytes: u64,
    /// Bytes that filters and indexes may take in memory (`index_memory`, 0: no limit). Those over it
    /// stay on the medium and cost reads: two for a HashStore, a search by halves for a SortedStore.
    pub index_memory_bytes: u64,
    /// Whether the table opens before its filters and indexes are in memory (`load_indexes`, `open`;
    /// or `background`): it answers at once then, with more reads for a while.
    pub loads_in_background: bool,
    /// Which kinds of stores there are (`stores`, `all`).
    pub stores: Stores,
    /// Entries a second that are converted to HashStores (`convert_rate`, 0: no limit).
    pub convert_rate: u64,
    /// Entries a second that are merged into SortedStores (`merge_rate`, 0: no limit).
    pub merge_rate: u64,
}

/// Which kinds of stores a table has; all but [`All`](Stores::All) are for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    /// LogStores are converted, HashStores merged (`all`).
    All,
    /// LogStores stay as they are (`log`).
    Log,
    /// HashStores are never merged (`log-hash`).
    LogHash,
    /// As many LogStores wait as there would be HashStores at most, and are merged at once
    /// (`log-sorted`).
    LogSorted,
}
// ANCHOR_END: options

impl Default for Options {
    fn default() -> Self {
        Options {
            partitions: 4,
            slots: 128 << 10,
            load: 0.95,
            log_bytes: 1 << 30,
            hash_stores: 32,
            stop: 96,
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
    /// Options from `key=value` pairs; what is not given keeps its default.
    ///
    /// # Errors
    /// [`InvalidOptions`](siltstone_engine::Error::InvalidOptions) with every mistake.
    pub fn from_map(given: &BTreeMap<String, String>) -> Result<Self> {
        let mut o = Options::default();
        let mut reader = OptionReader::new(given);
        reader.value("partitions", &mut o.partitions);
        reader.value("slots", &mut o.slots);
        reader.value("load", &mut o.load);
        reader.size("log", &mut o.log_bytes);
        reader.value("hash_stores", &mut o.hash_stores);
        reader.value("stop", &mut o.stop);
        reader.size("block", &mut o.block_bytes);
        reader.size("inline", &mut o.inline_bytes);
        reader.size("sort", &mut o.sort_bytes);
        reader.size("index_memory", &mut o.index_memory_bytes);
        reader.with("load_indexes", &mut o.loads_in_background, |text| match text {
            "open" => Ok(false),
            "background" => Ok(true),
            _ => Err(format!("'{text}' is not open or background")),
        });
        reader.with("stores", &mut o.stores, |text| match text {
            "all" => Ok(Stores::All),
            "log" => Ok(Stores::Log),
            "log-hash" => Ok(Stores::LogHash),
            "log-sorted" => Ok(Stores::LogSorted),
            _ => Err(format!("'{text}' is not one of all, log, log-hash, log-sorted")),
        });
        reader.value("convert_rate", &mut o.convert_rate);
        reader.value("merge_rate", &mut o.merge_rate);
        o.check(&mut reader);
        reader.finish()?;
        Ok(o)
    }

    fn check(&self, reader: &mut OptionReader<'_>) {
        let mut require = |holds, name, reason| reader.require(holds, name, reason);
        require((1..=256).contains(&self.partitions), "partitions", "from 1 to 256");
        require((16..=1 << 28).contains(&self.slots), "slots", "from 16 to 268435456");
        require((0.1..=0.97).contains(&self.load), "load", "from 0.1 to 0.97");
        require((4 << 10..=2 << 30).contains(&self.log_bytes), "log", "from 4KiB to 2GiB");
        require((1..=1024).contains(&self.hash_stores), "hash_stores", "from 1 to 1024");
        require(self.stop > self.hash_stores, "stop", "more than hash_stores");
        require((1..=1 << 20).contains(&self.block_bytes), "block", "from 1B to 1MiB");
        let can_inline = matches!(self.inline_bytes, 0 | 0x20..=0x100_0000);
        require(can_inline, "inline", "0, or from 32B to 16MiB");
        require((1 << 10..=1 << 40).contains(&self.sort_bytes), "sort", "from 1KiB to 1TiB");
    }

    /// Generations that wait before the oldest is converted, and that there may be at once.
    pub(crate) fn frozen(&self) -> (usize, usize) {
        match self.stores {
            Stores::All | Stores::LogHash => (1, 2),
            Stores::Log => (usize::MAX, usize::MAX),
            Stores::LogSorted => (self.waiting(), self.waiting() + 1),
        }
    }

    /// Generations that wait where there are no HashStores. Partitions that take turns to merge have
    /// `(P + 1) / 2 · hash_stores` HashStores together at most. LogStores cannot take turns: one log is
    /// of all partitions, so a generation, which has a LogStore of each, goes whole.
    fn waiting(&self) -> usize {
        let partitions = self.partitions as usize;
        (self.hash_stores * (partitions + 1)).div_ceil(2 * partitions)
    }

    /// HashStores of a partition at which they are merged, and at which writers stop.
    pub(crate) fn merge_at(&self) -> (usize, usize) {
        match self.stores {
            Stores::All => (self.hash_stores, self.stop),
            Stores::LogSorted => (self.waiting(), 2 * self.waiting() + self.stop),
            Stores::Log | Stores::LogHash => (usize::MAX, usize::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_engine::Error;

    #[test]
    fn is_every_mistake_named_at_once() {
        let given = [
            ("slots", "3"),
            ("load", "NaN"),
            ("stop", "4"),
            ("inline", "31B"),
            ("stores", "few"),
            ("colour", "red"),
        ];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let Err(Error::InvalidOptions(mistakes)) = Options::from_map(&given) else {
            panic!("accepted")
        };
        let names: Vec<_> = mistakes.iter().map(|m| m.option.as_str()).collect();
        assert_eq!(names, ["stores", "slots", "load", "stop", "inline", "colour"]);
    }

    #[test]
    fn are_options_read_as_written() {
        let given = [("partitions", "2"), ("log", "1MiB"), ("stores", "log-sorted")];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let o = Options::from_map(&given).unwrap();
        assert_eq!((o.partitions, o.log_bytes, o.stores), (2, 1 << 20, Stores::LogSorted));
    }

    #[test]
    fn do_as_many_log_stores_wait_as_hash_stores_would() {
        for (partitions, hash_stores, generations) in [(1, 8, 8), (4, 62, 39), (2, 2, 2)] {
            let stores = Stores::LogSorted;
            let o = Options { partitions, hash_stores, stores, ..Options::default() };
            assert_eq!((o.frozen().0, o.merge_at().0), (generations, generations));
        }
    }
}
