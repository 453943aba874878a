//! Properties and approximate sizes.

use std::ffi::{c_char, c_int};
use std::fmt::Write;

use shim::estimate::{Estimate, MAX_ENTRIES, estimate};
use store::Stats;

use crate::db::leveldb_t;
use shim::boundary::{bytes, copy, quietly, text};

/// The value of a property, to be freed with leveldb_free(): leveldb.num-files-at-level<N>,
/// leveldb.stats, leveldb.sstables, leveldb.approximate-memory-usage. NULL for another name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_property_value(
    db: &leveldb_t,
    propname: *const c_char,
) -> *mut c_char {
    // SAFETY: the caller passes a NUL-terminated string.
    let name = unsafe { text(propname) };
    let value = quietly(|| property(&db.table.stats(), name.ok()?.strip_prefix("leveldb.")?));
    value.map_or(std::ptr::null_mut(), |value| copy(value.as_bytes()))
}

fn property(stats: &Stats, name: &str) -> Option<String> {
    if let Some(number) = name.strip_prefix("num-files-at-level") {
        let level = format!("L{}", number.parse::<u32>().ok()?);
        let level = stats.levels.iter().find(|known| known.name == level);
        return Some(level.map_or(0, |level| level.files).to_string());
    }
    match name {
        "stats" => {
            let mut text = "Level    Files   Size(MB)  Written(MB)\n".to_owned();
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            for level in &stats.levels {
                let (size, written) = (mib(level.bytes), mib(level.bytes_written));
                let row = format!("{:<8}{:>6}{size:>11.1}{written:>13.1}", level.name, level.files);
                text = text + &row + "\n";
            }
            Some(text)
        }
        "sstables" => {
            let mut text = String::new();
            for level in &stats.levels {
                let (name, files, bytes) = (&level.name, level.files, level.bytes);
                writeln!(text, "--- level {name} ---\n {files} files, {bytes} bytes").ok()?;
            }
            Some(text)
        }
        "approximate-memory-usage" => Some(stats.memory_bytes().to_string()),
        _ => None,
    }
}

/// Estimates the bytes of keys and values in each of `num_ranges` ranges, from a start key to
/// before a limit key. Reads up to 100000 entries per range. 0 after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_approximate_sizes(
    db: &leveldb_t,
    num_ranges: c_int,
    range_start_key: *const *const c_char,
    range_start_key_len: *const usize,
    range_limit_key: *const *const c_char,
    range_limit_key_len: *const usize,
    sizes: *mut u64,
) {
    for range in 0..usize::try_from(num_ranges).unwrap_or(0) {
        // SAFETY: the caller passes arrays of `num_ranges` keys, lengths and sizes.
        unsafe {
            let start = bytes(*range_start_key.add(range), *range_start_key_len.add(range));
            let limit = bytes(*range_limit_key.add(range), *range_limit_key_len.add(range));
            let cursor = db.table.cursor_range(start..limit);
            let estimated: Estimate = quietly(|| {
                cursor.and_then(|found| estimate(found, MAX_ENTRIES)).unwrap_or_default()
            });
            sizes.add(range).write(estimated.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_properties_have_no_value() {
        let stats = Stats::default();
        assert_eq!(property(&stats, "num-files-at-level3").as_deref(), Some("0"));
        assert_eq!(property(&stats, "num-files-at-level"), None);
        assert_eq!(property(&stats, "nosuchprop"), None);
        assert!(property(&stats, "stats").is_some());
    }
}
