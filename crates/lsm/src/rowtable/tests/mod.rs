//! Tests of RowTables, and their helpers: entries, pools, and expected results from plain vectors.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod damage;
mod lookup_cost;
mod row_stacks;
mod single_row;

use std::sync::Arc;

use proptest::prelude::*;
use siltstone_engine::Purpose;
use siltstone_table::{EntryRef, Kind, kind};
use siltstone_vfs::{PmemPool, Ram, Vfs};

use super::{RowBuilder, RowTable, RowTableIter, RowVersion};
use crate::live_range::LiveRange;

const PURPOSE: Purpose = Purpose::Flush;
const POOL_BYTES: u64 = 4 << 20;

/// One version of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    key: Vec<u8>,
    sequence: u64,
    kind: Kind,
    expires_at: u64,
    value: Vec<u8>,
}

impl Entry {
    fn put(key: &[u8], sequence: u64, value: &[u8]) -> Self {
        Entry { key: key.into(), sequence, kind: Kind::Put, expires_at: 0, value: value.into() }
    }

    fn borrow(&self) -> EntryRef<'_> {
        EntryRef {
            key: &self.key,
            sequence: self.sequence,
            kind: self.kind,
            expires_at: self.expires_at,
            value: &self.value,
        }
    }

    fn to_version(&self) -> RowVersion {
        RowVersion {
            sequence: self.sequence,
            kind: self.kind,
            expires_at: self.expires_at,
            value: self.value.clone(),
        }
    }
}

fn claims(vfs: &dyn Vfs, page_bytes: usize) -> siltstone_vfs::PageClaims {
    PmemPool::open(vfs.map("pool", POOL_BYTES).unwrap(), page_bytes).unwrap()
}

fn pool(page_bytes: usize) -> PmemPool {
    claims(&Ram::new(), page_bytes).ready()
}

fn try_build(
    pool: &PmemPool,
    number: u64,
    previous: Option<&Arc<RowTable>>,
    entries: &[Entry],
) -> siltstone_engine::Result<Arc<RowTable>> {
    let mut builder = RowBuilder::new(pool, number, previous.cloned(), PURPOSE)?;
    for entry in entries {
        builder.add(entry.borrow())?;
    }
    builder.finish().map(Arc::new)
}

fn build(
    pool: &PmemPool,
    number: u64,
    previous: Option<&Arc<RowTable>>,
    entries: &[Entry],
) -> Arc<RowTable> {
    try_build(pool, number, previous, entries).unwrap()
}

/// Sorts in run order, each version once.
fn sort(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by(|a, b| kind::compare((&a.key, a.sequence), (&b.key, b.sequence)));
    entries.dedup_by(|a, b| a.key == b.key && a.sequence == b.sequence);
    entries
}

fn live_entries(entries: &[Entry], live: &LiveRange) -> Vec<Entry> {
    entries.iter().filter(|entry| live.contains(&entry.key)).cloned().collect()
}

fn lookup(entries: &[Entry], key: &[u8], at: u64) -> Option<RowVersion> {
    entries.iter().find(|e| e.key == key && e.sequence <= at).map(Entry::to_version)
}

fn current_entry(iter: &RowTableIter) -> Option<Entry> {
    iter.valid().then(|| Entry {
        key: iter.key().to_vec(),
        sequence: iter.sequence(),
        kind: iter.kind(),
        expires_at: iter.expires_at(),
        value: iter.value().to_vec(),
    })
}

/// All entries of an iterator, forwards.
fn all_entries(row: &Arc<RowTable>) -> Vec<Entry> {
    let mut iter = RowTableIter::new(row.clone(), PURPOSE);
    let mut all = Vec::new();
    iter.first().unwrap();
    while let Some(entry) = current_entry(&iter) {
        all.push(entry);
        iter.next().unwrap();
    }
    all
}

/// Keys with much in common: prefixes, keys that are prefixes of others, zeros at the end, equal
/// but for a late byte.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(vec![0u8, b'a', b'b', 0xff]);
    let beginning = prop::sample::select(vec![&b""[..], b"a", b"user:", b"aaaaaaaaaaaa"]);
    (beginning, prop::collection::vec(byte, 0..6)).prop_map(|(start, end)| [start, &end].concat())
}

fn entry() -> impl Strategy<Value = Entry> {
    let value_len = prop_oneof![8 => 0..40usize, 2 => 0..700usize, 1 => 900..3000usize];
    (key(), 1..60u64, 0..3u8, 1..1000u64, value_len).prop_map(|(key, sequence, bits, at, len)| {
        let kind = Kind::from_bits(bits).unwrap();
        let fill = (sequence as u8).wrapping_add(key.len() as u8);
        Entry {
            expires_at: if kind == Kind::PutExpiring { at } else { 0 },
            value: if kind == Kind::Delete { Vec::new() } else { vec![fill; len] },
            key,
            sequence,
            kind,
        }
    })
}

fn entries(max_count: usize) -> impl Strategy<Value = Vec<Entry>> {
    prop::collection::vec(entry(), 1..max_count).prop_map(sort)
}
