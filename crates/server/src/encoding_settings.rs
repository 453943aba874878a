//! Sizes up to which Redis would store a value compactly: Redis's `hash-max-listpack-entries` and
//! others.
//!
//! Values lie in the table in one way at any size. The settings decide what OBJECT ENCODING returns
//! and, for `hll-sparse-max-bytes`, which of Redis's two formats a HyperLogLog has. Of the settings
//! that have no effect here, those that programs change are accepted, so that they go on: how Redis
//! compresses lists, in which thread it frees memory, how often it does background work.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use siltstone_collections::{CompactLimit, EncodingLimits};

/// A setting.
struct EncodingSetting {
    name: &'static str,
    /// Its name before Redis 7.0, if it had another one.
    old_name: Option<&'static str>,
    default: i64,
}

const fn setting(
    name: &'static str,
    old_name: Option<&'static str>,
    default: i64,
) -> EncodingSetting {
    EncodingSetting { name, old_name, default }
}

const HASH_ENTRIES: usize = 0;
const HASH_VALUE: usize = 1;
const LIST_SIZE: usize = 2;
const SET_INTEGERS: usize = 3;
const SET_ENTRIES: usize = 4;
const SET_VALUE: usize = 5;
const SORTED_SET_ENTRIES: usize = 6;
const SORTED_SET_VALUE: usize = 7;
const SPARSE_BYTES: usize = 8;

const SETTINGS: [EncodingSetting; 11] = [
    setting("hash-max-listpack-entries", Some("hash-max-ziplist-entries"), 512),
    setting("hash-max-listpack-value", Some("hash-max-ziplist-value"), 64),
    setting("list-max-listpack-size", Some("list-max-ziplist-size"), -2),
    setting("set-max-intset-entries", None, 512),
    setting("set-max-listpack-entries", None, 128),
    setting("set-max-listpack-value", None, 64),
    setting("zset-max-listpack-entries", Some("zset-max-ziplist-entries"), 128),
    setting("zset-max-listpack-value", Some("zset-max-ziplist-value"), 64),
    setting("hll-sparse-max-bytes", None, 3000),
    // Without effect.
    setting("list-compress-depth", None, 0),
    setting("hz", None, 10),
];

/// Bytes of a list whose number of elements is limited.
const COUNTED_LIST_BYTES: usize = 8 << 10;

/// The values of the settings.
pub(crate) struct EncodingSettings([AtomicI64; SETTINGS.len()]);

impl Default for EncodingSettings {
    fn default() -> Self {
        EncodingSettings(std::array::from_fn(|at| AtomicI64::new(SETTINGS[at].default)))
    }
}

impl EncodingSettings {
    /// Names, also old ones, and values.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, i64)> {
        let named = |(setting, value): (&'static EncodingSetting, &AtomicI64)| {
            let value = value.load(Relaxed);
            let names = [Some(setting.name), setting.old_name];
            names.into_iter().flatten().map(move |name| (name, value))
        };
        SETTINGS.iter().zip(&self.0).flat_map(named)
    }

    /// The setting with a name: its number, and its smallest value.
    pub(crate) fn find(name: &str) -> Option<(usize, i64)> {
        let at = SETTINGS
            .iter()
            .position(|setting| setting.name == name || setting.old_name == Some(name))?;
        Some((at, if at == LIST_SIZE { i64::from(i32::MIN) } else { 0 }))
    }

    /// Sets the value of a setting by its number.
    pub(crate) fn set(&self, at: usize, value: i64) {
        self.0[at].store(value, Relaxed);
    }

    fn size(&self, at: usize) -> usize {
        usize::try_from(self.0[at].load(Relaxed)).unwrap_or(0)
    }

    /// Maximum size of a sparse HyperLogLog.
    pub(crate) fn sparse_bytes(&self) -> usize {
        self.size(SPARSE_BYTES)
    }

    /// Limits of collections.
    pub(crate) fn limits(&self) -> EncodingLimits {
        let limit = |entries: usize, value: usize| CompactLimit {
            max_count: self.size(entries) as u64,
            max_bytes: self.size(value),
        };
        EncodingLimits {
            hash: limit(HASH_ENTRIES, HASH_VALUE),
            list: list_limit(self.0[LIST_SIZE].load(Relaxed)),
            set: limit(SET_ENTRIES, SET_VALUE),
            set_integers: self.size(SET_INTEGERS) as u64,
            sorted_set: limit(SORTED_SET_ENTRIES, SORTED_SET_VALUE),
        }
    }
}

/// A positive size is a number of elements, -1 to -5 are 4 KiB to 64 KiB.
fn list_limit(size: i64) -> CompactLimit {
    match size {
        0.. => CompactLimit { max_count: size.max(1) as u64, max_bytes: COUNTED_LIST_BYTES },
        _ => CompactLimit { max_count: u64::MAX, max_bytes: 2048 << size.max(-5).unsigned_abs() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_size_is_a_count_or_a_power_of_two() {
        let of = |size| (list_limit(size).max_count, list_limit(size).max_bytes);
        assert_eq!(of(0), (1, 8192));
        assert_eq!(of(5), (5, 8192));
        assert_eq!([-1, -2, -5, -6].map(|size| of(size).1), [4096, 8192, 65536, 65536]);
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        assert_eq!(EncodingSettings::default().limits(), EncodingLimits::DEFAULT);
    }
}
