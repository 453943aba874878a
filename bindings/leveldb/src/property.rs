//! Properties and approximate sizes.
//!
//! The size of a range is estimated in bounded time: the sizes of up to [`MAX_ENTRIES`] entries are
//! added up. If there are more, the sum is divided by the part of the range that was read, which is
//! interpolated from the keys as numbers.

use std::ffi::{c_char, c_int};
use std::fmt::Write;

use store::{Error, Stats, Table};

use crate::boundary::{bytes, copy, quietly, text};
use crate::db::leveldb_t;

/// Entries of a range that are read to estimate its size.
const MAX_ENTRIES: u64 = 100_000;

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
            let size = quietly(|| estimate(&db.table, start, limit, MAX_ENTRIES).unwrap_or(0));
            sizes.add(range).write(size);
        }
    }
}

/// The estimated bytes of keys and values from `start` to before `limit`.
fn estimate(table: &Table, start: &[u8], limit: &[u8], max_entries: u64) -> Result<u64, Error> {
    let mut cursor = table.cursor_range(start..limit)?;
    let Some(last) = cursor.last()?.map(|entry| entry.key.to_vec()) else { return Ok(0) };
    let (mut size, mut entries, mut first) = (0, 0, None);
    let mut next = cursor.first()?;
    while let Some(entry) = next {
        let first = first.get_or_insert_with(|| entry.key.to_vec());
        size += (entry.key.len() + entry.value.len()) as u64;
        entries += 1;
        if entries == max_entries {
            return Ok((size as f64 / progress(first, entry.key, &last)) as u64);
        }
        next = cursor.next()?;
    }
    Ok(size)
}

/// The position of `key` between `first` and `last`, above 0 and up to 1, interpolated from the
/// first 8 bytes after the prefix that `first` and `last` share.
fn progress(first: &[u8], key: &[u8], last: &[u8]) -> f64 {
    let shared = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let number = |key: &[u8]| {
        let mut digits = [0; 8];
        for (digit, byte) in digits.iter_mut().zip(&key[shared.min(key.len())..]) {
            *digit = *byte;
        }
        u64::from_be_bytes(digits)
    };
    let (first, key, last) = (number(first), number(key), number(last));
    // One more on both sides, so that keys that differ later only do not divide by zero.
    let (done, whole) = (key.saturating_sub(first), last.saturating_sub(first));
    ((done as f64 + 1.0) / (whole as f64 + 1.0)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_extrapolates_what_it_does_not_read() {
        let scratch = tempfile::tempdir().unwrap();
        let db = store::Db::open_or_create(scratch.path().join("s"), Default::default()).unwrap();
        let table = db.table_or_create("t", "lsm", &Default::default()).unwrap();
        for number in 0..2000u32 {
            table.put(&(number * 1000).to_be_bytes(), &[7; 96]).unwrap();
        }
        let (start, limit) = ([0; 4], 2_000_000u32.to_be_bytes());
        assert_eq!(estimate(&table, &start, &limit, 10_000).unwrap(), 200_000);
        let bounded = estimate(&table, &start, &limit, 500).unwrap();
        assert!((190_000..210_000).contains(&bounded), "{bounded}");
        assert_eq!(estimate(&table, b"\xf0", b"\xff", 500).unwrap(), 0);
        assert!(estimate(&table, b"\xff", b"\xf0", 500).is_err());
    }

    #[test]
    fn progress_is_a_share_of_the_whole() {
        assert!((progress(b"k000", b"k500", b"k999") - 0.55).abs() < 0.1);
        assert_eq!(progress(b"a", b"a", b"a"), 1.0);
        assert!(progress(b"", b"", b"\xff\xff") > 0.0);
    }

    #[test]
    fn unknown_properties_have_no_value() {
        let stats = Stats::default();
        assert_eq!(property(&stats, "num-files-at-level3").as_deref(), Some("0"));
        assert_eq!(property(&stats, "num-files-at-level"), None);
        assert_eq!(property(&stats, "nosuchprop"), None);
        assert!(property(&stats, "stats").is_some());
    }
}
