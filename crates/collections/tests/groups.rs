//! Operations of a group pass metadata on, and write them once.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use siltstone::transaction::Overlay;
use siltstone::{Durability, ManualClock};
use siltstone_collections::{
    Collections, End, EngineRows, Error, Hash, KeyMetadata, Keyspace, List, NextMetadata,
    OverlayRows, WriteSet, stored_key,
};
use siltstone_faults::FaultyVfs;
use support::open;

/// Writes of a group so far, above a table.
struct Group {
    _disk: FaultyVfs,
    collections: Collections,
    keyspace: Keyspace,
    writes: Overlay,
    metadata: Option<KeyMetadata>,
}

impl Group {
    fn new() -> Self {
        let (disk, clock) = (FaultyVfs::new(1), Arc::new(ManualClock::at(1000)));
        let collections = open(&disk, &clock, 1).unwrap();
        // The format marker is written here.
        let push = |writes: &mut WriteSet<'_>| {
            List::open(writes, b"first")?.push(End::Back, b"element");
            Ok(())
        };
        collections.with(&[b"first"], Durability::Buffered, push).unwrap();
        let keyspace = Keyspace::open(collections.table().engine().as_ref(), 1000).unwrap();
        let writes = Overlay::default();
        Group { _disk: disk, collections, keyspace, writes, metadata: None }
    }

    /// Runs an operation; returns its result and the number of rows that it writes.
    fn run<T>(
        &mut self,
        operation: impl FnOnce(&mut WriteSet<'_>) -> Result<T, Error>,
    ) -> Result<(T, usize), Error> {
        let below = EngineRows::newest(self.collections.table().engine().as_ref());
        let rows = OverlayRows { below: &below, writes: &self.writes, now: 1000 };
        let mut writes = WriteSet::new(&rows, &self.keyspace, 1000);
        writes.join_group(self.metadata.as_ref());
        let result = operation(&mut writes)?;
        let (batch, next) = writes.take_group_batch();
        self.writes.apply(&batch);
        if let NextMetadata::Other(metadata) = next {
            self.metadata = metadata;
        }
        Ok((result, batch.len()))
    }

    fn push(&mut self, key: &[u8]) -> (u64, usize) {
        self.run(|writes| {
            let mut list = List::open(writes, key)?;
            list.push(End::Back, b"element");
            Ok(list.len())
        })
        .unwrap()
    }

    fn len(&mut self, key: &[u8]) -> u64 {
        self.run(|writes| Ok(List::open(writes, key)?.len())).unwrap().0
    }

    fn has_row(&self, key: &[u8]) -> bool {
        matches!(self.writes.get(&stored_key(key)), Some(Some(_)))
    }
}

#[test]
fn metadata_pass_from_operation_to_operation_and_are_written_for_another_collection() {
    let mut group = Group::new();
    // Element and owner; then the element alone.
    assert_eq!([group.push(b"a"), group.push(b"a")], [(1, 2), (2, 1)]);
    assert!(!group.has_row(b"a") && group.metadata.as_ref().unwrap().is_unsaved());
    assert_eq!(group.push(b"b"), (1, 3), "element and owner of b, metadata of a");
    assert!(group.has_row(b"a") && !group.has_row(b"b"));
    // What is only read replaces what it has written.
    assert_eq!(group.len(b"a"), 2);
    assert!(group.has_row(b"b") && !group.metadata.as_ref().unwrap().is_unsaved());
    assert_eq!((group.push(b"a"), group.len(b"b"), group.len(b"a")), ((3, 1), 1, 3));
}

#[test]
fn failed_operation_leaves_the_metadata_as_they_were() {
    let mut group = Group::new();
    group.push(b"a");
    let wrong = group.run(|writes| Hash::open(writes, b"a").map(|hash| hash.len()));
    assert!(matches!(wrong, Err(Error::WrongType { .. })));
    for key in [b"a", b"b"] {
        let failed = group.run(|writes| {
            List::open(writes, key)?.push(End::Front, b"lost");
            Hash::open(writes, key).map(|hash| hash.len())
        });
        assert!(failed.is_err());
        assert_eq!((group.len(b"a"), group.len(b"b")), (1, 0));
    }
    assert_eq!(group.push(b"a"), (2, 1));
}

#[test]
fn removed_and_renamed_collections_leave_no_metadata_behind() {
    let mut group = Group::new();
    group.push(b"a");
    assert!(group.run(|writes| Ok(writes.rename(b"a", b"b")?)).unwrap().0);
    assert_eq!((group.len(b"a"), group.len(b"b")), (0, 1));
    group.push(b"b");
    assert!(group.run(|writes| Ok(writes.set_expiry(b"b", Some(2000))?)).unwrap().0);
    let stored = group.run(|writes| Ok(writes.stored(b"b")?)).unwrap().0.unwrap();
    assert_eq!((stored.entry.expires_at, stored.metadata.unwrap().count), (Some(2000), 2));
    group.push(b"b");
    assert!(group.run(|writes| Ok(writes.remove(b"b")?)).unwrap().0);
    assert_eq!((group.len(b"b"), group.push(b"b").0), (0, 1));
    // The last element takes the list with it.
    group.run(|writes| Ok(List::open(writes, b"b")?.pop(End::Back)?)).unwrap();
    assert_eq!((group.len(b"b"), group.has_row(b"b"), group.push(b"b").0), (0, false, 1));
}
