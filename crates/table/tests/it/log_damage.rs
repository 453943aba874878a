//! Damaged and torn logs: what is reported as corruption, and what a crash may leave.

use siltstone_engine::Error;
use siltstone_table::log::parse_log;
use siltstone_table::{LogEnd, LogMode};

use crate::log::{BLOCK, NUMBER, contents, record, three, writer};
use crate::support::new_vfs;

fn sealed_log(sizes: &[usize]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let vfs = new_vfs();
    let mut log = writer(&vfs);
    let records: Vec<_> = sizes.iter().enumerate().map(|(i, &len)| record(i, len)).collect();
    for bytes in &records {
        log.append(&[bytes]).unwrap();
        log.sync().unwrap();
    }
    log.seal().unwrap();
    (records, vfs.read_raw("log").unwrap())
}

#[test]
fn flipped_byte_of_sealed_log_is_detected_or_harmless() {
    let (records, mut bytes) = sealed_log(&[20, 0, 33_000, 5]);
    let seal_block = bytes.len() - 24 - 7 - 16;
    assert_eq!(seal_block, 2 * BLOCK);
    for at in 0..bytes.len() {
        bytes[at] ^= 0x40;
        let sealed = parse_log(&bytes, NUMBER, LogMode::Sealed);
        assert!(matches!(sealed, Err(Error::Corruption { .. })), "byte {at}: {sealed:?}");
        match parse_log(&bytes, NUMBER, LogMode::Recover) {
            Err(error) => assert!(error.is_corruption(), "byte {at}"),
            // Only a flip in the seal leaves the log readable, as an unsealed one with all records.
            Ok((read, LogEnd::Torn { .. })) => {
                assert!(at >= seal_block + 24, "byte {at}");
                assert!(contents(read) == records, "byte {at}");
            }
            Ok((_, end)) => panic!("byte {at} reads as {end:?}"),
        }
        bytes[at] ^= 0x40;
    }
}

#[test]
fn truncated_log_yields_prefix() {
    let (records, bytes) = sealed_log(&[20, 0, 33_000, 5]);
    for len in 0..bytes.len() {
        let cut = &bytes[..len];
        assert!(parse_log(cut, NUMBER, LogMode::Sealed).unwrap_err().is_corruption(), "{len}");
        // The lost bytes leave no evidence, and earlier block headers make no claim about later
        // bytes, so there is no evidence of corruption either.
        let (read, _) = parse_log(cut, NUMBER, LogMode::Recover).unwrap();
        assert!(records.starts_with(&contents(read)), "{len}");
    }
    let mut longer = bytes.clone();
    longer.push(1);
    assert!(parse_log(&longer, NUMBER, LogMode::Recover).unwrap_err().is_corruption());
}

#[test]
fn zeros_after_seal_are_accepted_only_in_recover_mode() {
    let (records, mut bytes) = sealed_log(&[20, 0, 33_000, 5]);
    bytes.resize(bytes.len() + 2 * BLOCK, 0);
    let (read, end) = parse_log(&bytes, NUMBER, LogMode::Recover).unwrap();
    assert!(contents(read) == records && end == LogEnd::Sealed);
    assert!(parse_log(&bytes, NUMBER, LogMode::Sealed).unwrap_err().is_corruption());
    *bytes.last_mut().unwrap() = 1;
    assert!(parse_log(&bytes, NUMBER, LogMode::Recover).unwrap_err().is_corruption());
}

#[test]
fn damage_before_synced_records_is_corruption_else_torn_tail() {
    let (positions, mut bytes) = three(true);
    bytes[positions[1] as usize + 100] ^= 1;
    let error = parse_log(&bytes, NUMBER, LogMode::Recover).unwrap_err();
    assert!(
        matches!(&error, Error::Corruption { offset, .. } if *offset == positions[1]),
        "{error}"
    );

    let (positions, mut bytes) = three(false);
    bytes[positions[1] as usize + 100] ^= 1;
    let (read, end) = parse_log(&bytes, NUMBER, LogMode::Recover).unwrap();
    // The third record is intact but not returned: the record before it is lost.
    assert_eq!(read.len(), 1);
    assert_eq!(end, LogEnd::Torn { dropped_bytes: bytes.len() as u64 - positions[1] });
}

#[test]
fn later_block_header_proves_durability() {
    for sync in [true, false] {
        let vfs = new_vfs();
        let mut log = writer(&vfs);
        let lost = log.append(&[&record(0, 10_000)]).unwrap();
        if sync {
            log.sync().unwrap();
        }
        // A record over three blocks: its headers are evidence, its later fragments are not.
        log.append(&[&record(1, 80_000)]).unwrap();
        let mut bytes = vfs.read_raw("log").unwrap();
        bytes[lost as usize..20_000].fill(0);
        let outcome = parse_log(&bytes, NUMBER, LogMode::Recover);
        assert_eq!(outcome.is_err(), sync, "{outcome:?}");
    }
}

#[test]
fn block_of_another_log_or_offset_is_rejected() {
    let (_, bytes) = three(true);
    let (read, end) = parse_log(&bytes, NUMBER + 1, LogMode::Recover).unwrap();
    assert!(read.is_empty() && matches!(end, LogEnd::Torn { .. }));
    let mut moved = vec![0; BLOCK];
    moved.extend_from_slice(&bytes);
    let (read, _) = parse_log(&moved, NUMBER, LogMode::Recover).unwrap();
    assert!(read.is_empty());
}
