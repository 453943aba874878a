//! Reads options from `key=value` pairs: present and old names, and the valid ranges.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use siltstone_engine::options::{parse_duration, parse_size};
use siltstone_engine::{OptionReader, Result};
use siltstone_table::Compression;
use siltstone_table::block::dictionary::{MAX_DICTIONARY_BYTES, MIN_DICTIONARY_BYTES};
use siltstone_vfs::PmemPool;

use super::{CompactionPriority, HotBudget, L0Policy, Options};

/// Old names of options and their present ones. [`Options::from_map`] accepts both, because the
/// catalogues of existing stores contain old names.
pub const RENAMED_OPTIONS: &[(&str, &str)] = &[
    ("table", "target_file_size"),
    ("block", "block_size"),
    ("filter_bits", "filter_bits_per_key"),
    ("jobs", "max_compactions"),
    ("subcompactions", "max_subcompactions"),
    ("level0", "l0_policy"),
    ("container", "l0_capacity"),
    ("l0_compact", "experimental.l0_compaction_trigger"),
    ("l0_slow", "experimental.l0_slowdown_trigger"),
    ("l0_stop", "experimental.l0_stop_trigger"),
    ("level_sizes", "experimental.level_sizes"),
    ("restart", "experimental.block_restart_interval"),
    ("range_filter", "experimental.range_filter"),
    ("select", "experimental.compaction_pri"),
    ("nvm", "pmem.size"),
    ("hints", "pmem.hints"),
    ("triad_log", "triad.log"),
    ("triad_mem", "triad.mem"),
    ("triad_disk", "triad.disk"),
    ("hot", "triad.hot_keys"),
    ("flush_threshold", "triad.flush_threshold"),
    ("overlap", "triad.min_overlap"),
    ("log_ahead", "triad.prefetch"),
];

/// A smaller pool would have no space for a useful run.
const MIN_POOL_BYTES: u64 = 16 * PmemPool::DEFAULT_PAGE_BYTES as u64;
const MAX_POOL_BYTES: u64 = 8 << 40;
const ZSTD_LEVELS: RangeInclusive<i32> = 1..=19;

impl Options {
    /// Options from `key=value` pairs; the others have their defaults. Accepts old names too.
    ///
    /// # Errors
    /// [`InvalidOptions`](siltstone_engine::Error::InvalidOptions) with all mistakes.
    pub fn from_map(given: &BTreeMap<String, String>) -> Result<Self> {
        Options::default().with(given)
    }

    /// These options with others in place of those in `given`.
    ///
    /// # Errors
    /// As from [`from_map`](Self::from_map).
    pub(super) fn with(&self, given: &BTreeMap<String, String>) -> Result<Self> {
        let mut o = self.clone();
        let mut reader = OptionReader::new(given);
        reader.renamed(RENAMED_OPTIONS);
        reader.size("memtable", &mut o.memtable_bytes);
        reader.value("memtables", &mut o.memtables);
        reader.with("levels", &mut o.level_bytes, |text| {
            // A comma separates options on the command line, so levels are joined by colons.
            text.split(':').map(parse_size).collect()
        });
        reader.size("target_file_size", &mut o.target_file_bytes);
        reader.size("cache", &mut o.cache_bytes);
        reader.size("log_retention", &mut o.log_retention_bytes);
        reader.with("log_retention_time", &mut o.log_retention_time, parse_duration);
        let mut block_bytes = o.file.block_bytes as u64;
        reader.size("block_size", &mut block_bytes);
        o.file.block_bytes = block_bytes as usize;
        reader.value("filter_bits_per_key", &mut o.file.filter_bits_per_key);
        reader.with("compression", &mut o.file.compression, parse_compression);
        reader.with("bottommost_compression", &mut o.bottommost_compression, |text| match text {
            "same" => Ok(None),
            _ => parse_compression(text).map(Some).map_err(|reason| format!("{reason}, or same")),
        });
        reader.size("compression_dict_size", &mut o.compression_dict_bytes);
        reader.size("blob_threshold", &mut o.blob_threshold_bytes);
        reader.value("blob_gc_ratio", &mut o.blob_gc_ratio);
        reader.value("max_compactions", &mut o.max_compactions);
        reader.value("max_subcompactions", &mut o.max_subcompactions);
        let policies = [
            ("whole", L0Policy::Whole),
            ("sliced", L0Policy::Sliced),
            ("columns", L0Policy::Columns),
            ("novelsm", L0Policy::NoveLsm),
            // Old names.
            ("rows", L0Policy::Whole),
            ("triangle", L0Policy::Sliced),
            ("matrix", L0Policy::Columns),
        ];
        let policies = policies.map(|(name, policy)| (name, Some(policy)));
        reader.choice("l0_policy", &mut o.level0.policy, &policies);
        reader.with("l0_capacity", &mut o.level0.capacity_bytes, size_or_default);
        reader.flag("triad.log", &mut o.triad.log);
        reader.with("triad.prefetch", &mut o.triad.prefetch_bytes, size_or_default);
        reader.flag("triad.mem", &mut o.triad.mem);
        reader.with("triad.hot_keys", &mut o.triad.hot, |text| match (text, text.parse()) {
            ("auto", _) => Ok(HotBudget::Auto),
            (_, Ok(share)) if (0.0..=1.0).contains(&share) => Ok(HotBudget::Share(share)),
            _ => Err(format!("'{text}' is neither auto nor a share from 0 to 1")),
        });
        reader.value("triad.flush_threshold", &mut o.triad.flush_threshold);
        reader.flag("triad.disk", &mut o.triad.disk);
        reader.value("triad.min_overlap", &mut o.triad.min_overlap);
        reader.size("pmem.size", &mut o.pmem_bytes);
        reader.flag("pmem.hints", &mut o.hints);
        reader.value("experimental.l0_compaction_trigger", &mut o.level0.compaction_trigger);
        reader.value("experimental.l0_slowdown_trigger", &mut o.level0.slowdown_trigger);
        reader.value("experimental.l0_stop_trigger", &mut o.level0.stop_trigger);
        let level_sizes = [("given", false), ("model", true)];
        reader.choice("experimental.level_sizes", &mut o.sizes_by_model, &level_sizes);
        reader.require(
            cfg!(feature = "model") || !o.sizes_by_model,
            "experimental.level_sizes",
            "this program was built without the model: build it with the feature 'model' of the \
             crate siltstone",
        );
        reader.value("experimental.block_restart_interval", &mut o.file.restart_interval);
        reader.flag("experimental.range_filter", &mut o.file.range_filter);
        use CompactionPriority::{MinOverlap, RoundRobin};
        let priorities = [
            ("min_overlap", MinOverlap),
            ("round_robin", RoundRobin),
            // Old names.
            ("overlap", MinOverlap),
            ("round-robin", RoundRobin),
        ];
        reader.choice("experimental.compaction_pri", &mut o.compaction_priority, &priorities);
        o.check(&mut reader);
        reader.finish()?;
        Ok(o)
    }

    fn check(&self, reader: &mut OptionReader<'_>) {
        const COMPACTION_TRIGGER: &str = "experimental.l0_compaction_trigger";
        const SLOWDOWN_TRIGGER: &str = "experimental.l0_slowdown_trigger";
        const STOP_TRIGGER: &str = "experimental.l0_stop_trigger";
        let (l0, file, triad) = (&self.level0, &self.file, &self.triad);
        reader.size_range("memtable", self.memtable_bytes, 4 << 10..=4 << 30);
        reader.range("memtables", self.memtables, 2..=64);
        reader.size_range("target_file_size", self.target_file_bytes, 1 << 10..=16 << 30);
        reader.size_range("block_size", file.block_bytes as u64, 256..=4 << 20);
        reader.range("experimental.block_restart_interval", file.restart_interval, 1..=1024);
        reader.range("filter_bits_per_key", file.filter_bits_per_key, 0.0..=64.0);
        let dictionary_sizes = MIN_DICTIONARY_BYTES as u64..=MAX_DICTIONARY_BYTES as u64;
        let dictionary_bytes = self.compression_dict_bytes;
        reader.require(
            dictionary_bytes == 0 || dictionary_sizes.contains(&dictionary_bytes),
            "compression_dict_size",
            "0, or from 256B to 1MiB",
        );
        let bottommost = self.bottommost_table_options().compression;
        reader.require(
            dictionary_bytes == 0 || matches!(bottommost, Compression::Zstd { .. }),
            "compression_dict_size",
            "a dictionary needs bottommost_compression=zstd",
        );
        reader.range("blob_gc_ratio", self.blob_gc_ratio, 0.05..=0.95);
        reader.range("max_compactions", self.max_compactions, 1..=64);
        reader.range("max_subcompactions", self.max_subcompactions, 1..=64);
        let mut require = |holds, name, reason| reader.require(holds, name, reason);
        require((1..=16).contains(&self.level_bytes.len()), "levels", "from 1 to 16 sizes");
        require(
            self.level_bytes.is_sorted_by(|a, b| a < b) && self.level_bytes[0] > 0,
            "levels",
            "each level must be larger than the one before, e.g. 256MiB:2560MiB:25GiB",
        );
        require(
            self.blob_threshold_bytes == 0 || (32..=4 << 30).contains(&self.blob_threshold_bytes),
            "blob_threshold",
            "0, or from 32B to 4GiB",
        );
        reader.range("triad.flush_threshold", triad.flush_threshold, 0.0..=0.9);
        reader.range("triad.min_overlap", triad.min_overlap, 0.01..=0.99);
        let mut require = |holds, name, reason| reader.require(holds, name, reason);
        let is_sliced = self.is_l0_sliced();
        let given = l0.capacity_bytes.unwrap_or(0);
        require(
            !is_sliced
                || (given == 0 && self.pmem_bytes > 0)
                || self.l0_capacity(0) >= self.memtable_bytes.saturating_mul(2),
            "l0_capacity",
            "0, or at least two memtables",
        );
        require(is_sliced || given == 0, "l0_policy", "whole and novelsm have no l0_capacity");
        require(
            self.pmem_bytes == 0 || (MIN_POOL_BYTES..=MAX_POOL_BYTES).contains(&self.pmem_bytes),
            "pmem.size",
            "0, or from 64KiB to 8TiB",
        );
        let is_novelsm = self.l0_policy() == L0Policy::NoveLsm;
        require(
            !is_novelsm || (64 << 10..=8 << 30).contains(&self.pmem_bytes),
            "pmem.size",
            "with l0_policy=novelsm from 64KiB to 8GiB: two memtables of half of it each",
        );
        require(!is_novelsm || !triad.mem, "triad.mem", "l0_policy=novelsm cannot retain hot keys");
        require(l0.compaction_trigger >= 1, COMPACTION_TRIGGER, "at least 1");
        let slowdown = l0.slowdown_trigger > l0.compaction_trigger;
        require(slowdown, SLOWDOWN_TRIGGER, "more than experimental.l0_compaction_trigger");
        let stop = l0.stop_trigger > l0.slowdown_trigger;
        require(stop, STOP_TRIGGER, "more than experimental.l0_slowdown_trigger");
    }
}

/// `none`, `lz4`, `zstd` or `zstd:LEVEL`.
fn parse_compression(text: &str) -> std::result::Result<Compression, String> {
    let (name, level) =
        text.split_once(':').map_or((text, None), |(name, level)| (name, Some(level)));
    let compression = match (name, level) {
        ("none", None) => Compression::None,
        ("lz4", None) => Compression::Lz4,
        ("zstd", None) => Compression::Zstd { level: 1 },
        ("zstd", Some(level)) => match level.parse() {
            Ok(level) if ZSTD_LEVELS.contains(&level) => Compression::Zstd { level },
            _ => return Err(format!("'{level}' is no level of zstd from 1 to 19")),
        },
        _ => return Err(format!("'{text}' is none of none, lz4, zstd and zstd:LEVEL")),
    };
    match compression.missing_codec() {
        Some(codec) => Err(codec.advice()),
        None => Ok(compression),
    }
}

fn size_or_default(text: &str) -> std::result::Result<Option<u64>, String> {
    parse_size(text).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_engine::Error;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    #[test]
    fn options_are_parsed() {
        let o = Options::from_map(&map(&[
            ("memtable", "1MiB"),
            ("levels", "4MiB:40MiB"),
            ("compression", "lz4"),
            ("experimental.compaction_pri", "round_robin"),
            ("l0_policy", "columns"),
        ]))
        .unwrap();
        assert_eq!(o.memtable_bytes, 1 << 20);
        assert_eq!(o.level_bytes, [4 << 20, 40 << 20]);
        assert_eq!(o.file.compression, Compression::Lz4);
        assert_eq!(o.compaction_priority, CompactionPriority::RoundRobin);
        assert_eq!(o.level0.policy, Some(L0Policy::Columns));
    }

    #[test]
    fn compression_has_a_level_and_that_of_the_last_level_its_own() {
        let of = |pairs: &[(&str, &str)]| Options::from_map(&map(pairs));
        let zstd = |level| Compression::Zstd { level };
        let o = of(&[("compression", "zstd:19")]).unwrap();
        assert_eq!(o.table_options().compression, zstd(19));
        assert_eq!(o.table_options(), o.bottommost_table_options());
        let given = [
            ("compression", "lz4"),
            ("bottommost_compression", "zstd"),
            ("compression_dict_size", "16KiB"),
        ];
        let o = of(&given).unwrap();
        let (upper, bottommost) = (o.table_options(), o.bottommost_table_options());
        assert_eq!((upper.compression, upper.dictionary_bytes), (Compression::Lz4, 0));
        assert_eq!((bottommost.compression, bottommost.dictionary_bytes), (zstd(1), 16 << 10));
        for (bad, reason) in [
            (("compression", "zstd:0"), "level"),
            (("compression", "lz4:1"), "none of"),
            (("compression", "same"), "none of"),
            (("bottommost_compression", "zstd:20"), "or same"),
            (("compression_dict_size", "1KiB"), "needs bottommost_compression=zstd"),
            (("compression_dict_size", "2MiB"), "to 1MiB"),
        ] {
            let error = of(&[bad]).unwrap_err().to_string();
            assert!(error.contains(bad.0) && error.contains(reason), "{error}");
        }
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let bad = map(&[
            ("memtable", "1"),
            ("levels", "4MiB:1MiB"),
            ("experimental.l0_stop_trigger", "2"),
            ("filter_bits_per_key", "NaN"),
            ("colour", "red"),
        ]);
        let Err(Error::InvalidOptions(mistakes)) = Options::from_map(&bad) else {
            panic!("accepted")
        };
        let names: Vec<_> = mistakes.iter().map(|m| m.option.as_str()).collect();
        let stop = "experimental.l0_stop_trigger";
        assert_eq!(names, ["memtable", "filter_bits_per_key", "levels", stop, "colour"]);
    }

    #[test]
    fn old_names_and_values_mean_the_same_as_the_new_ones() {
        let values = [
            "1MiB",
            "1KiB",
            "7",
            "3",
            "4",
            "columns",
            "256MiB",
            "5",
            "6",
            "7",
            "model",
            "8",
            "off",
            "round_robin",
            "1GiB",
            "off",
            "off",
            "on",
            "on",
            "0.25",
            "0.125",
            "0.75",
            "1MiB",
        ];
        siltstone_testkit::check_renamed_options(RENAMED_OPTIONS, &values, Options::from_map);
        let priority = "experimental.compaction_pri";
        for (name, old, new) in [
            ("l0_policy", "rows", "whole"),
            ("l0_policy", "triangle", "sliced"),
            ("l0_policy", "matrix", "columns"),
            (priority, "overlap", "min_overlap"),
            (priority, "round-robin", "round_robin"),
        ] {
            let [old, new] = [old, new].map(|value| Options::from_map(&map(&[(name, value)])));
            assert_eq!(old.unwrap(), new.unwrap());
        }
    }

    #[test]
    fn extreme_numbers_are_accepted_or_reported_without_overflow() {
        for name in [
            "memtable",
            "target_file_size",
            "l0_capacity",
            "pmem.size",
            "cache",
            "triad.prefetch",
            "blob_threshold",
            "compression_dict_size",
            "levels",
            "experimental.l0_stop_trigger",
        ] {
            for value in ["18446744073709551615", "9223372036854775808", "16777216TiB", "0", "-1"] {
                let map = [(name.to_owned(), value.to_owned())].into();
                if let Err(error) = Options::from_map(&map) {
                    assert!(error.to_string().contains(name), "{name}={value}: {error}");
                }
            }
        }
    }
}
