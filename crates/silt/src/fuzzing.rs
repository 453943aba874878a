//! What the fuzz targets reach behind the checksums: not for users.
//!
//! A checksum lets hardly any mutated byte through, so these make the checksums fit the bytes first,
//! as a hostile hand would, and then do with the file all that the engine does with one.
//!
//! Source: ours.

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_vfs::{Ram, Vfs};

use crate::file::{FileSum, Footer, write_derived};
use crate::hash_store::{self, HashStore};
use crate::names::Kind;
use crate::position::Position;
use crate::sorted_store::{self, SortedStore};
use crate::version::{Edit, StoreEntry, fold};

const NUMBER: u64 = 1;
const PURPOSE: Purpose = Purpose::Maintenance;

/// Reads an edit of the manifest, and folds it.
pub fn edit(bytes: &[u8]) {
    if let Ok(edit) = Edit::decode(bytes) {
        assert_eq!(Edit::decode(&edit.encode()), Ok(edit));
    }
    let _ = fold(&[bytes.to_vec()]);
}

/// Reads a position of a cursor.
pub fn position(bytes: &[u8]) {
    if let Some(position) = Position::decode(bytes) {
        assert_eq!(position.encode(), bytes);
    }
}

/// Takes the first bytes as the fields of a footer and the others as slots and rests.
pub fn hash_store(bytes: &[u8]) {
    let footer = &hash_store::FOOTER;
    let Some((fields, data)) = bytes.split_at_checked(footer.fields) else { return };
    let shape = hash_store::Shape::decode(fields);
    let mut data = data.to_vec();
    seal_pieces(&mut data, u64::from(shape.slot_bytes));
    let vfs = file(Kind::HashStore, fields, data, footer);
    let Ok((entry, keys)) = HashStore::describe(vfs.as_ref(), NUMBER) else { return };
    let _ = read_hash_store(&vfs, entry, &keys.hash(b"key"));
    if let Ok(Some(store)) = HashStore::open_damaged(&vfs, NUMBER) {
        (0..store.shape().slots.min(1000)).for_each(|slot| drop(store.read_slot(slot)));
    }
}

fn read_hash_store(
    vfs: &Arc<dyn Vfs>,
    entry: StoreEntry,
    hash: &siltstone_structures::HashKey,
) -> Result<()> {
    let store = HashStore::open(vfs, entry, PURPOSE)?;
    let _ = store.get(hash, b"key", PURPOSE);
    let mut walk = store.walk(PURPOSE);
    while let Ok(Some(_)) = walk.next() {}
    store.load(PURPOSE)?;
    let _ = store.get(hash, b"key", PURPOSE);
    store.verify()
}

/// Takes the first bytes as the fields of a footer, then an index with its length before it, and the
/// others as blocks.
pub fn sorted_store(bytes: &[u8]) {
    let footer = &sorted_store::FOOTER;
    let Some((fields, rest)) = bytes.split_at_checked(footer.fields) else { return };
    let Some((&len, rest)) = rest.split_first_chunk::<2>() else { return };
    let Some((index, data)) = rest.split_at_checked(u16::from_le_bytes(len).into()) else { return };
    let shape = sorted_store::Shape::decode(fields);
    let mut data = data.to_vec();
    let block = if shape.is_even { shape.stride() } else { sorted_store::BLOCK_UNIT };
    seal_pieces(&mut data, block);
    let vfs = file(Kind::SortedStore, fields, data, footer);
    let name = Kind::Index.name(NUMBER);
    let written = write_derived(vfs.as_ref(), &name, NUMBER, index, PURPOSE);
    assert!(written.is_ok(), "memory takes everything");
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
    let mut walk = store.walk(PURPOSE);
    while let Ok(Some(_)) = walk.next() {}
    let _ = sorted_store::Walk::behind(&*store, hash, PURPOSE);
    store.load(PURPOSE)?;
    let _ = store.get(hash, b"key", PURPOSE);
    store.verify()
}

/// Repairs a table of one store whose bytes are these, without a manifest.
pub fn repair(kind_and_bytes: &[u8]) {
    let Some((&kind, bytes)) = kind_and_bytes.split_first() else { return };
    let kind = [Kind::HashStore, Kind::SortedStore, Kind::Log][usize::from(kind % 3)];
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let Ok(file) = vfs.create(&kind.name(NUMBER)) else { return };
    if file.write_at(0, bytes, PURPOSE).is_ok() && crate::repair(&vfs).is_ok() {
        let options = crate::Options::default();
        // A finding must come again.
        let env = siltstone_runtime::Env { seed: 1, ..siltstone_runtime::Env::system(1) };
        let opened = crate::Silt::open(vfs, env, options);
        assert!(opened.is_ok(), "what was repaired does not open");
    }
}

/// A medium with one file: pieces, and a footer of these fields.
fn file(kind: Kind, fields: &[u8], mut data: Vec<u8>, footer: &Footer) -> Arc<dyn Vfs> {
    let at = data.len() as u64;
    data.extend_from_slice(&footer.encode(fields, FileSum::new(NUMBER), at));
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let written = vfs.create(&kind.name(NUMBER)).and_then(|file| file.write_at(0, &data, PURPOSE));
    assert!(written.is_ok(), "memory takes everything");
    vfs
}

/// Puts the checksum before each piece of this length.
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
    use siltstone_testkit::Dice;

    #[test]
    fn is_a_footer_of_blocks_larger_than_the_file_refused() {
        // Found by fuzzing: a block of 2^53 bytes was to be read.
        let shape = crate::sorted_store::Shape {
            partition: 0,
            keys: crate::keys::Keys { seed: 0, partitions: 1 },
            entries: 3,
            hashes: 1,
            hashes_a_block: 0x00ff_ffff,
            lengths: (0, u32::MAX),
            is_even: true,
        };
        super::sorted_store(&[shape.encode(), vec![0, 0], vec![7; 90]].concat());
        super::sorted_store(
            &[
                crate::sorted_store::Shape { hashes: 1 << 60, entries: 1 << 61, ..shape }.encode(),
                vec![0; 99],
            ]
            .concat(),
        );
    }

    #[test]
    fn do_a_thousand_random_files_do_no_harm() {
        let mut dice = Dice::new(1);
        for _ in 0..1000 {
            let len = dice.index(600);
            let mut bytes = dice.bytes(len);
            // Small numbers, or no shape is one that a file of this size can have.
            bytes.iter_mut().take(48).for_each(|byte| *byte &= 0x21 * u8::from(dice.one_in(4)));
            super::hash_store(&bytes);
            super::sorted_store(&bytes);
            super::edit(&bytes);
            super::position(&bytes);
            super::repair(&bytes);
        }
    }
}
