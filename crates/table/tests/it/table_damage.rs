//! Damaged tables: found, named, and salvaged as far as they can be.

use crate::rows::{
    COMPRESSIONS, NUMBER, Row, check, documents, open, small, with_dictionary, write,
};
use crate::support::new_vfs;
use siltstone_engine::{Error, Purpose};
use siltstone_structures::hash64;
use siltstone_table::{Compression, FileKind, FileNumber, Table, salvage_table};

#[test]
fn flipped_bit_is_corruption_at_open_or_verify() {
    for compression in COMPRESSIONS {
        let (_, mut bytes) = small(compression);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let outcome = Table::from_bytes(&bytes, NUMBER).and_then(|table| check(&table));
            assert!(matches!(outcome, Err(Error::Corruption { .. })), "bit {bit}: {outcome:?}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        check(&Table::from_bytes(&bytes, NUMBER).unwrap()).unwrap();
    }
}

/// A table with a dictionary, and where that lies in it.
fn small_with_dictionary() -> (Vec<Row>, Vec<u8>, std::ops::Range<usize>) {
    let vfs = new_vfs();
    let rows = documents(120);
    write(&vfs, &rows, with_dictionary());
    let bytes = vfs.read_raw("000012.sst").unwrap();
    assert_eq!(bytes[bytes.len() - 16], 5, "the format version");
    let magic = [0x37, 0xA4, 0x30, 0xEC];
    let start = bytes.windows(4).position(|four| four == magic).unwrap();
    let len = open(&vfs, None).unwrap().dictionary_bytes();
    (rows, bytes, start..start + len)
}

#[test]
fn flipped_byte_of_table_with_dictionary_is_corruption_and_of_the_dictionary_is_named() {
    let (rows, mut bytes, dictionary) = small_with_dictionary();
    for at in 0..bytes.len() {
        bytes[at] ^= 1 << (at % 8);
        let outcome = Table::from_bytes(&bytes, NUMBER).and_then(|table| check(&table));
        let Err(Error::Corruption { offset, reason, .. }) = outcome else {
            panic!("byte {at}: {outcome:?}")
        };
        if dictionary.contains(&at) {
            assert!(reason.contains("dictionary"), "{reason}");
            assert_eq!(offset, dictionary.start as u64);
        }
        bytes[at] ^= 1 << (at % 8);
    }
    let table = Table::from_bytes(&bytes, NUMBER).unwrap();
    for row in &rows {
        let found = table.get(&row.key, hash64(&row.key), row.sequence, Purpose::Get).unwrap();
        assert_eq!(found.unwrap().value(), row.value);
    }
}

#[test]
fn table_without_its_dictionary_is_salvaged_up_to_the_blocks_that_need_it() {
    let (rows, intact, dictionary) = small_with_dictionary();
    let salvage = |bytes: &[u8]| {
        let file = siltstone_table::BytesFile::new(bytes);
        let (mut found, len) = (0, intact.len() as u64);
        let kind = (FileKind::Table, NUMBER);
        let losses = salvage_table(&file, "000012.sst", kind, Some(len), |entry| {
            found += u64::from(rows.contains(&Row::of(entry)));
            Ok(())
        });
        (found, losses.unwrap())
    };
    let damaged = |places: &[usize]| {
        let mut bytes = intact.clone();
        places.iter().for_each(|&at| bytes[at] ^= 0x20);
        salvage(&bytes)
    };
    let (footer, data_bytes) = (intact.len() - 30, dictionary.start as u64);
    assert_eq!(damaged(&[]), (rows.len() as u64, vec![]));
    // The dictionary is found without the directory.
    assert_eq!(damaged(&[footer]), (rows.len() as u64, vec![]));
    let (found, losses) = damaged(&[footer, 3]);
    assert!(found > rows.len() as u64 - 10 && losses.len() == 1, "{found} {losses:?}");
    // Every block needs it.
    for places in [&[dictionary.start + 9][..], &[dictionary.start + 9, footer]] {
        let (found, losses) = damaged(places);
        let lost: u64 = losses.iter().map(|loss| loss.bytes.end - loss.bytes.start).sum();
        assert!(found == 0 && lost >= data_bytes, "{found} {losses:?}");
    }
}

#[test]
fn flipped_byte_never_changes_result() {
    let (rows, mut bytes) = small(Compression::None);
    for at in 0..bytes.len() {
        bytes[at] ^= 0x11;
        if let Ok(table) = Table::from_bytes(&bytes, NUMBER) {
            for row in &rows {
                match table.get(&row.key, hash64(&row.key), row.sequence, Purpose::Get) {
                    Ok(found) => assert_eq!(found.unwrap().value(), row.value, "byte {at}"),
                    Err(error) => assert!(error.is_corruption()),
                }
            }
        }
        bytes[at] ^= 0x11;
    }
}

#[test]
fn truncated_or_extended_table_does_not_open() {
    let (_, bytes) = small(Compression::None);
    for len in 0..bytes.len() {
        let cut = Table::from_bytes(&bytes[..len], NUMBER).err();
        assert!(cut.is_some_and(|error| error.is_corruption()), "{len}");
    }
    for extra in [1, 44, 512] {
        let mut longer = bytes.clone();
        longer.resize(bytes.len() + extra, 0);
        assert!(Table::from_bytes(&longer, NUMBER).is_err());
        longer.drain(..extra);
        assert!(Table::from_bytes(&longer, NUMBER).is_err());
    }
}

#[test]
fn misplaced_or_foreign_block_is_detected() {
    let (_, bytes) = small(Compression::None);
    assert!(Table::from_bytes(&bytes, FileNumber(13)).err().unwrap().is_corruption());
    let table = Table::from_bytes(&bytes, NUMBER).unwrap();
    // Swap two blocks of equal length.
    let first = table.approximate_offset(b"key000") as usize..;
    assert_eq!(first.start, 0);
    let offsets: Vec<_> = {
        let mut all: Vec<_> =
            (0..20).map(|i| table.approximate_offset(format!("key{i:03}").as_bytes())).collect();
        all.dedup();
        all.into_iter().map(|at| at as usize).collect()
    };
    let (a, b) = offsets
        .windows(2)
        .zip(offsets.windows(2).skip(1))
        .find(|(x, y)| x[1] - x[0] == y[1] - y[0])
        .map(|(x, y)| (x[0]..x[1], y[0]..y[1]))
        .expect("two adjacent blocks of equal length");
    let mut swapped = bytes.clone();
    swapped[a.clone()].copy_from_slice(&bytes[b.clone()]);
    swapped[b].copy_from_slice(&bytes[a]);
    assert!(check(&Table::from_bytes(&swapped, NUMBER).unwrap()).unwrap_err().is_corruption());
}

#[test]
fn newer_version_is_rejected_by_name() {
    let (_, mut bytes) = small(Compression::None);
    let footer = bytes.len() - 44;
    bytes[footer + 28] = 9;
    // As a newer program would: with the right checksum, seeded with number and offset.
    let seed = crc32c::crc32c(&NUMBER.0.to_le_bytes());
    let seed = crc32c::crc32c_append(seed, &(footer as u64).to_le_bytes());
    let crc = crc32c::crc32c_append(seed, &bytes[footer..footer + 32]);
    bytes[footer + 32..footer + 36].copy_from_slice(&crc.to_le_bytes());
    match Table::from_bytes(&bytes, NUMBER) {
        Err(Error::Refused { reason, .. }) => assert!(reason.contains("format 9"), "{reason}"),
        other => panic!("{:?}", other.err()),
    }
}
