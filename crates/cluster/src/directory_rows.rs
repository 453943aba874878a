//! The rows of a table with the directories of the group's members.
//!
//! The leader proposes a row for each member whose directory it knows. What is committed holds for
//! all time: a node that runs on another directory has forgotten what it has acknowledged. Log and
//! snapshots carry the rows as any others. All integers are little endian, but for that in the key.
//!
//! ```text
// ANCHOR: layout
//! key   := 0xff 0xc0 0xfe "directory"  node:u64, big endian
//! value := version:u8  directory:u64
// ANCHOR_END: layout
//! ```
//!
//! A reader ignores rows of a newer version. Earlier programs do not read these rows.

use std::collections::BTreeMap;

use siltstone_engine::{Engine, KeyRange, Op, Result, WriteBatch};

const PREFIX: &[u8] = b"\xff\xc0\xfedirectory";
const VERSION: u8 = 1;

/// The context of an entry that writes such rows, and nothing else. Requests have other lengths.
pub(crate) const CONTEXT: &[u8] = b"directories";

/// Adds a row to the batch.
pub(crate) fn put(batch: &mut WriteBatch, node: u64, directory: u64) {
    let mut value = vec![VERSION];
    value.extend_from_slice(&directory.to_le_bytes());
    batch.put(&[PREFIX, &node.to_be_bytes()].concat(), &value);
}

/// The rows of a batch.
pub(crate) fn of_batch(batch: &WriteBatch) -> BTreeMap<u64, u64> {
    let rows = batch.iter().filter_map(|op| match op {
        Op::Put { key, value, .. } => decode(key, value),
        _ => None,
    });
    rows.collect()
}

/// The rows of a table.
pub(crate) fn read(table: &dyn Engine) -> Result<BTreeMap<u64, u64>> {
    let mut rows = BTreeMap::new();
    let mut cursor = table.range(KeyRange::prefix(PREFIX), None)?;
    let mut is_there = cursor.first()?;
    while is_there {
        rows.extend(decode(cursor.key(), cursor.value()));
        is_there = cursor.next()?;
    }
    Ok(rows)
}

fn decode(key: &[u8], value: &[u8]) -> Option<(u64, u64)> {
    let node = key.strip_prefix(PREFIX)?;
    let [VERSION, directory @ ..] = value else { return None };
    Some((
        u64::from_be_bytes(node.try_into().ok()?),
        u64::from_le_bytes(directory.try_into().ok()?),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip_and_others_are_ignored() {
        let mut batch = WriteBatch::new();
        put(&mut batch, 3, 1 << 63 | 30);
        put(&mut batch, 1, 10);
        batch.put(b"\xff\xc0\xfedirectory", b"\x01").put(b"key", b"value").delete(b"key");
        batch.put(b"\xff\xc0\xfedirectory\0\0\0\0\0\0\0\x05", b"\x02newer");
        assert_eq!(of_batch(&batch), BTreeMap::from([(1, 10), (3, 1 << 63 | 30)]));
    }
}
