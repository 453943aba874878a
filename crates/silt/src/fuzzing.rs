//! Entry points of the fuzz targets; not part of the public API.
//!
//! Checksums reject nearly every mutated byte. So these functions first compute matching checksums,
//! as an attacker would, and then use the file as the engine does.

use std::sync::Arc;

use siltstone_durable::{VersionEdit, replay_edits};
use siltstone_engine::{Purpose, Result};
use siltstone_table::FileSum;
use siltstone_vfs::{Ram, Vfs};

use crate::file::{Footer, write_derived};
use crate::hash_store::{self, HashStore};
use crate::names::Kind;
use crate::position::Position;
use crate::sorted_store::{self, SortedStore};
use crate::store_entry::StoreEntry;
use crate::version::Edit;

const NUMBER: u64 = 1;
const PURPOSE: Purpose = Purpose::Maintenance;

/// Decodes an edit of the manifest, and replays it.
pub fn edit(bytes: &[u8]) {
    if let Ok(edit) = Edit::decode(bytes) {
        assert_eq!(Edit::decode(&edit.encode()), Ok(edit));
    }
    let _ = replay_edits::<Edit>(&[bytes.to_vec()]);
}

/// Decodes a position of a cursor.
pub fn position(bytes: &[u8]) {
    if let Some(position) = Position::decode(bytes) {
        assert_eq!(position.encode(), bytes);
    }
}

/// Uses the first bytes as the fields of a footer and the others as slots and tails.
pub fn hash_store(bytes: &[u8]) {
    let footer = &hash_store::FOOTER;
    let Some((fields, data)) = bytes.split_at_checked(footer.fields) else { return };
    let meta = hash_store::StoreMeta::decode(fields);
    let mut data = data.to_vec();
    seal_pieces(&mut data, u64::from(meta.slot_bytes));
    let vfs = file(Kind::HashStore, fields, data, footer);
    let Ok((entry, keys)) = HashStore::describe(vfs.as_ref(), NUMBER) else { return };
    let _ = read_hash_store(&vfs, entry, &keys.hash(b"key"));
    if let Ok(Some(store)) = HashStore::open_damaged(&vfs, NUMBER) {
        (0..store.meta().slots.min(1000)).for_each(|slot| drop(store.read_slot(slot)));
    }
}

fn read_hash_store(
    vfs: &Arc<dyn Vfs>,
    entry: StoreEntry,
    hash: &siltstone_structures::HashKey,
) -> Result<()> {
    let store = HashStore::open(vfs, entry, PURPOSE)?;
    let _ = store.get(hash, b"key", PURPOSE);
    let mut scan = store.scan(PURPOSE);
    while let Ok(Some(_)) = scan.next() {}
    store.load(PURPOSE)?;
    let _ = store.get(hash, b"key", PURPOSE);
    store.verify()
}

/// Uses the first bytes as the fields of a footer, then an index after its length, and the others
/// as blocks.
pub fn sorted_store(bytes: &[u8]) {
    let footer = &sorted_store::FOOTER;
    let Some((fields, rest)) = bytes.split_at_checked(footer.fields) else { return };
    let Some((&len, rest)) = rest.split_first_chunk::<2>() else { return };
    let Some((index, data)) = rest.split_at_checked(u16::from_le_bytes(len).into()) else { return };
    let meta = sorted_store::StoreMeta::decode(fields);
    let mut data = data.to_vec();
    let block = if meta.is_even { meta.stride() } else { sorted_store::BLOCK_UNIT };
    seal_pieces(&mut data, block);
    let vfs = file(Kind::SortedStore, fields, data, footer);
    let name = Kind::Index.name(NUMBER);
    let written = write_derived(vfs.as_ref(), &name, NUMBER, index, PURPOSE);
    assert!(written.is_ok(), "writes to memory do not fail");
    let Ok((entry, keys, ..)) = SortedStore::describe(vfs.as_ref(), NUMBER) else { return };
    let _ = read_sorted_store(&vfs, entry, &keys.hash(b"key"));
}

fn read_sorted_store(
    vfs: &Arc<dyn Vfs>,
    entry: StoreEntry,
    hash: &siltstone_structures::HashKey,
) -> Result<()> {
    let store = SortedStore::open(vfs, entry, PURPOSE)?;
    let _ = store.get(hash, b"key", PURPOSE);
    let mut scan = store.scan(PURPOSE);
    while let Ok(Some(_)) = scan.next() {}
    let _ = sorted_store::Scan::after(&*store, hash, PURPOSE);
    store.load(PURPOSE)?;
    let _ = store.get(hash, b"key", PURPOSE);
    store.verify()
}

/// Repairs a table that has one store with these bytes and no manifest.
pub fn repair(kind_and_bytes: &[u8]) {
    let Some((&kind, bytes)) = kind_and_bytes.split_first() else { return };
    let kind = [Kind::HashStore, Kind::SortedStore, Kind::Log][usize::from(kind % 3)];
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let Ok(file) = vfs.create(&kind.name(NUMBER)) else { return };
    if file.write_at(0, bytes, PURPOSE).is_ok() && crate::repair(&vfs).is_ok() {
        let options = crate::Options::default();
        // A fixed seed, so that findings are reproducible.
        let env = siltstone_runtime::Env { seed: 1, ..siltstone_runtime::Env::system(1) };
        let opened = crate::Silt::open(vfs, env, options);
        assert!(opened.is_ok(), "the repaired table does not open");
    }
}

/// A directory with one file: `data`, and a footer with these fields.
fn file(kind: Kind, fields: &[u8], mut data: Vec<u8>, footer: &Footer) -> Arc<dyn Vfs> {
    let at = data.len() as u64;
    data.extend_from_slice(&footer.encode(fields, FileSum::new(NUMBER), at));
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let written = vfs.create(&kind.name(NUMBER)).and_then(|file| file.write_at(0, &data, PURPOSE));
    assert!(written.is_ok(), "writes to memory do not fail");
    vfs
}

/// Writes the checksum of each piece of `len` bytes to its start.
fn seal_pieces(data: &mut [u8], len: u64) {
    let sum = FileSum::new(NUMBER);
    let len = usize::try_from(len).unwrap_or(usize::MAX).max(5);
    for (at, piece) in (0..).step_by(len).zip(data.chunks_mut(len)) {
        if let Some((crc, bytes)) = piece.split_first_chunk_mut::<4>() {
            *crc = sum.of(at, bytes).to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use siltstone_testkit::TestRng;

    #[test]
    fn footer_with_blocks_larger_than_the_file_is_refused() {
        // Found by fuzzing: a reader tried to read a block of 2^53 bytes.
        let meta = crate::sorted_store::StoreMeta {
            partition: 0,
            keys: crate::keys::KeyHasher { seed: 0, partitions: 1 },
            entries: 3,
            hashes: 1,
            hashes_per_block: 0x00ff_ffff,
            lengths: (0, u32::MAX),
            is_even: true,
        };
        super::sorted_store(&[meta.encode(), vec![0, 0], vec![7; 90]].concat());
        super::sorted_store(
            &[
                crate::sorted_store::StoreMeta { hashes: 1 << 60, entries: 1 << 61, ..meta }
                    .encode(),
                vec![0; 99],
            ]
            .concat(),
        );
    }

    #[test]
    fn random_files_are_handled_without_panics() {
        let mut rng = TestRng::new(1);
        for _ in 0..1000 {
            let len = rng.index(600);
            let mut bytes = rng.bytes(len);
            // Small numbers, because few random fields fit a file of this size.
            bytes.iter_mut().take(48).for_each(|byte| *byte &= 0x21 * u8::from(rng.one_in(4)));
            super::hash_store(&bytes);
            super::sorted_store(&bytes);
            super::edit(&bytes);
            super::position(&bytes);
            super::repair(&bytes);
        }
    }
}
