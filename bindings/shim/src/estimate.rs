//! Estimated sizes of ranges of keys.
//!
//! The size of a range is estimated in bounded time: the sizes of up to a number of entries are
//! added up. If there are more, the sum is divided by the part of the range that was read, which is
//! interpolated from the keys as numbers.

use store::{Cursor, Error};

/// Entries of a range that are read to estimate its size.
pub const MAX_ENTRIES: u64 = 100_000;

/// The estimated content of a range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
}

/// Estimates the content of the range of a cursor.
///
/// # Errors
/// Those of the cursor.
pub fn estimate(mut cursor: Cursor, max_entries: u64) -> Result<Estimate, Error> {
    let Some(last) = cursor.last()?.map(|entry| entry.key.to_vec()) else {
        return Ok(Estimate::default());
    };
    let (mut read, mut first) = (Estimate::default(), None);
    let mut next = cursor.first()?;
    while let Some(entry) = next {
        let first = first.get_or_insert_with(|| entry.key.to_vec());
        read.bytes += (entry.key.len() + entry.value.len()) as u64;
        read.entries += 1;
        if read.entries == max_entries {
            let part = progress(first, entry.key, &last);
            let whole = |read: u64| (read as f64 / part) as u64;
            return Ok(Estimate { bytes: whole(read.bytes), entries: whole(read.entries) });
        }
        next = cursor.next()?;
    }
    Ok(read)
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
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn estimate_extrapolates_what_it_does_not_read() {
        let scratch = tempfile::tempdir().unwrap();
        let db = store::Db::open_or_create(scratch.path().join("s"), Default::default()).unwrap();
        let table = db.table_or_create("t", "lsm", &Default::default()).unwrap();
        for number in 0..2000u32 {
            table.put(&(number * 1000).to_be_bytes(), &[7; 96]).unwrap();
        }
        let of = |max| estimate(table.cursor().unwrap(), max).unwrap();
        assert_eq!(of(10_000), Estimate { bytes: 200_000, entries: 2000 });
        let bounded = of(500);
        assert!((190_000..210_000).contains(&bounded.bytes), "{bounded:?}");
        assert!((1900..2100).contains(&bounded.entries), "{bounded:?}");
        let empty = table.cursor_range(&b"\xf0"[..]..&b"\xff"[..]).unwrap();
        assert_eq!(estimate(empty, 500).unwrap(), Estimate::default());
    }

    #[test]
    fn progress_is_a_share_of_the_whole() {
        assert!((progress(b"k000", b"k500", b"k999") - 0.55).abs() < 0.1);
        assert_eq!(progress(b"a", b"a", b"a"), 1.0);
        assert!(progress(b"", b"", b"\xff\xff") > 0.0);
    }
}
