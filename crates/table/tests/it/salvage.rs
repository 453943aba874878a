//! Salvage of damaged logs and SSTables: every intact record and entry, and the lost extents.

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Error, Loss, Purpose, Result};
use siltstone_table::log::replay;
use siltstone_table::{
    Compression, EntryRef, FileKind, FileNumber, Kind, LogSalvage, ReplayHandler, SalvageItem,
    SegmentLink, TableOptions, TableWriter, WalWriter, salvage_chain, salvage_table,
};
use siltstone_vfs::{Mode, Ram, Vfs};

fn log_name(number: u64) -> String {
    FileKind::Log.name(FileNumber(number))
}

fn bytes_of(vfs: &dyn Vfs, name: &str) -> Vec<u8> {
    let file = vfs.open(name, Mode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes, Purpose::Maintenance).unwrap();
    bytes
}

fn put(vfs: &dyn Vfs, name: &str, bytes: &[u8]) {
    let file = vfs.open(name, Mode::ReadWrite).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    file.write_at(0, bytes, Purpose::Maintenance).unwrap();
}

/// Logs 3, 5 and 8 with ten records of 10,000 bytes each, whose first byte is 1 and whose second
/// byte is a counter. The last log is sealed; its length is returned too.
fn chain() -> (Arc<dyn Vfs>, Vec<u64>, u64) {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let mut log = WalWriter::create(&vfs, 3, SegmentLink::default()).unwrap();
    let mut positions = Vec::new();
    for number in 0..30u8 {
        if let Some(next) = [(10, 5), (20, 8)].iter().find(|(at, _)| *at == number) {
            log.rotate(next.1).unwrap();
        }
        let record = [number; 10_000];
        log.append([[&[1][..], &record]], &mut positions).unwrap();
    }
    let end = log.seal().unwrap();
    (vfs, positions, end.bytes)
}

/// The numbers of the readable records of a log.
fn readable(vfs: &dyn Vfs, log: &LogSalvage) -> Vec<u8> {
    let mut found = Vec::new();
    let visit = |salvaged: SalvageItem<'_>| {
        if let SalvageItem::Record { bytes, .. } = salvaged {
            assert!(bytes.len() == 10_001 && bytes[1..].iter().all(|byte| *byte == bytes[1]));
            found.push(bytes[1]);
        }
        Ok(())
    };
    log.visit(vfs, visit).unwrap();
    found
}

#[test]
fn intact_log_has_no_gaps() {
    let (vfs, _, end) = chain();
    let logs = salvage_chain(vfs.as_ref(), Some(3), Some((8, end)), None).unwrap();
    assert!(logs.iter().all(|log| log.damage.is_none() && log.gaps.is_empty()), "{logs:?}");
    let all = logs.iter().flat_map(|log| readable(vfs.as_ref(), log));
    assert_eq!(all.collect::<Vec<_>>(), (0..30).collect::<Vec<_>>());
}

#[test]
fn flipped_bit_costs_only_its_own_record() {
    let (vfs, positions, end) = chain();
    let intact = bytes_of(vfs.as_ref(), &log_name(5));
    for at in (0..intact.len()).step_by(997) {
        let mut bytes = intact.clone();
        bytes[at] ^= 4;
        put(vfs.as_ref(), &log_name(5), &bytes);
        let logs = salvage_chain(vfs.as_ref(), Some(3), Some((8, end)), None).unwrap();
        let [before, log, behind] = &logs[..] else { panic!("{logs:?}") };
        assert!(before.damage.is_none() && behind.damage.is_none());
        assert!(log.damage.is_some(), "byte {at}");
        let found = readable(vfs.as_ref(), log);
        for (number, position) in (10u8..20).zip(&positions[10..20]) {
            let is_lost = log.gaps.iter().any(|gap| gap.contains(position));
            assert_eq!(is_lost, !found.contains(&number), "byte {at}, record {number}");
        }
        assert!(found.len() >= 9, "byte {at}: {found:?}");
    }
}

#[test]
fn missing_or_truncated_log_is_detected_by_next_link() {
    let (vfs, positions, end) = chain();
    let len = bytes_of(vfs.as_ref(), &log_name(3)).len() as u64;
    // Truncated at a record boundary, which looks like an end.
    let file = vfs.open(&log_name(3), Mode::ReadWrite).unwrap();
    file.set_len(positions[4]).unwrap();
    let logs = salvage_chain(vfs.as_ref(), Some(3), Some((8, end)), None).unwrap();
    let cut = &logs[0];
    assert_eq!(readable(vfs.as_ref(), cut), [0, 1, 2, 3]);
    assert!(cut.gaps.iter().any(|gap| gap.contains(&(len - 1)) && gap.contains(&positions[4])));
    vfs.remove(&log_name(5)).unwrap();
    let logs = salvage_chain(vfs.as_ref(), Some(3), Some((8, end)), None).unwrap();
    let [_, missing, last] = &logs[..] else { panic!("{logs:?}") };
    assert_eq!((missing.number, &missing.file), (5, &None));
    assert_eq!(readable(vfs.as_ref(), last).len(), 10);
    // Obsolete logs are not missing.
    assert_eq!(salvage_chain(vfs.as_ref(), Some(8), Some((8, end)), None).unwrap().len(), 1);
}

#[test]
fn swapped_logs_are_read_under_their_own_numbers() {
    let (vfs, _, end) = chain();
    let [one, two] = [3, 5].map(|number| bytes_of(vfs.as_ref(), &log_name(number)));
    put(vfs.as_ref(), &log_name(3), &two);
    put(vfs.as_ref(), &log_name(5), &one);
    let logs = salvage_chain(vfs.as_ref(), Some(3), Some((8, end)), None).unwrap();
    let found: Vec<u8> = logs.iter().flat_map(|log| readable(vfs.as_ref(), log)).collect();
    assert_eq!(found, (0..30).collect::<Vec<_>>());
    assert!(logs[0].damage.is_some() && logs[1].damage.is_some() && logs[2].damage.is_none());
    // A copy is not a swap: a log of another keyspace must not be accepted.
    put(vfs.as_ref(), &log_name(5), &two);
    let logs = salvage_chain(vfs.as_ref(), Some(3), Some((8, end)), None).unwrap();
    assert_eq!(readable(vfs.as_ref(), &logs[0]), [0; 0]);
    assert_eq!(readable(vfs.as_ref(), &logs[1]).len(), 10);
}

#[test]
fn records_beyond_stated_length_are_ignored() {
    let (vfs, positions, _) = chain();
    let log = salvage_chain(vfs.as_ref(), Some(8), None, None).unwrap().remove(0);
    assert_eq!(readable(vfs.as_ref(), &log).len(), 10);
    // As if a recovery had kept five records and continued in another log.
    let mut next =
        WalWriter::create(&vfs, 9, SegmentLink { number: 8, bytes: positions[25] }).unwrap();
    next.append([[&[1][..], &[99; 10_000]]], &mut Vec::new()).unwrap();
    let logs = salvage_chain(vfs.as_ref(), Some(8), None, None).unwrap();
    assert_eq!(readable(vfs.as_ref(), &logs[0]), [20, 21, 22, 23, 24]);
}

struct IgnoreRecords;

impl ReplayHandler for IgnoreRecords {
    fn begin(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn record(&mut self, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

#[test]
fn replay_error_names_log_at_which_chain_breaks() {
    let replay = |vfs: &dyn Vfs| replay(vfs, 3, Some(8), None, &mut IgnoreRecords);
    let named = |vfs: &Arc<dyn Vfs>| match replay(vfs.as_ref()) {
        Err(Error::Corruption { file, reason, .. }) => (file, reason),
        other => panic!("{other:?}"),
    };
    let (vfs, positions, _) = chain();
    let mut bytes = bytes_of(vfs.as_ref(), &log_name(3));
    bytes[positions[4] as usize + 100] ^= 1;
    put(vfs.as_ref(), &log_name(3), &bytes);
    let (file, reason) = named(&vfs);
    assert!(file == log_name(3) && reason.contains(&log_name(5)), "{file}: {reason}");

    let (vfs, ..) = chain();
    vfs.remove(&log_name(5)).unwrap();
    let (file, reason) = named(&vfs);
    assert!(file == log_name(5) && reason.contains("missing"), "{file}: {reason}");

    let (vfs, ..) = chain();
    vfs.remove(&log_name(8)).unwrap();
    assert_eq!(named(&vfs).0, log_name(8));
}

const ENTRIES: u64 = 2000;

/// An SSTable of about eighty blocks.
fn table(compression: Compression) -> Vec<u8> {
    let vfs = Ram::new();
    let options = TableOptions { block_bytes: 1024, compression, ..TableOptions::default() };
    let number = FileNumber(7);
    let mut writer =
        TableWriter::create(&vfs, "table", number, options, Purpose::Maintenance).unwrap();
    for i in 0..ENTRIES {
        let (key, value) = (key(i), format!("value {i} {i} {i} {i}"));
        let value = value.as_bytes();
        let kind = Kind::Put;
        writer.add(EntryRef { key: &key, sequence: i + 1, kind, expires_at: 0, value }).unwrap();
    }
    writer.finish().unwrap();
    bytes_of(&vfs, "table")
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

/// The salvaged entries, and the losses.
fn salvaged(bytes: &[u8], was: usize) -> (Vec<u64>, Vec<Loss>) {
    let file = siltstone_table::BytesFile::new(bytes);
    let mut found = Vec::new();
    let losses = salvage_table(
        &file,
        "table",
        (FileKind::Table, FileNumber(7)),
        Some(was as u64),
        |entry| {
            let i = entry.sequence - 1;
            assert_eq!(entry.key, key(i));
            assert_eq!(entry.value, format!("value {i} {i} {i} {i}").as_bytes());
            found.push(i);
            Ok(())
        },
    );
    (found, losses.unwrap())
}

/// Asserts that every entry is salvaged, or within the key range of a loss.
fn assert_all_accounted_for(found: &[u64], losses: &[Loss]) {
    for i in (0..ENTRIES).filter(|i| !found.contains(i)) {
        let is_reported = losses.iter().any(|loss| {
            let Some(keys) = &loss.keys else { return true };
            keys.after.as_ref().is_none_or(|after| *after < key(i))
                && keys.before.as_ref().is_none_or(|before| key(i) < *before)
        });
        assert!(is_reported, "entry {i}: {losses:?}");
    }
}

#[test]
fn table_without_footer_filter_or_index_loses_no_entry() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd { level: 1 }] {
        let intact = table(compression);
        let data = intact.len().saturating_sub(10_000);
        for at in (data..intact.len()).step_by(101).chain(intact.len() - 44..intact.len()) {
            let mut bytes = intact.clone();
            bytes[at] ^= 0x40;
            let (found, losses) = salvaged(&bytes, intact.len());
            assert_all_accounted_for(&found, &losses);
            // The index and everything after it.
            if at >= intact.len() - 44 {
                assert_eq!((found.len() as u64, losses), (ENTRIES, vec![]), "byte {at}");
            }
        }
    }
}

#[test]
fn damaged_block_without_index_costs_only_its_own_entries() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd { level: 1 }] {
        let intact = table(compression);
        let without_footer = &intact[..intact.len() - 20];
        for at in (0..without_footer.len() / 3).step_by(3001) {
            let mut bytes = without_footer.to_vec();
            bytes[at] ^= 1;
            let (found, losses) = salvaged(&bytes, intact.len());
            assert!(found.len() as u64 > ENTRIES - 300, "{compression:?} {at}: {}", found.len());
            assert_eq!(losses.len(), 1, "{losses:?}");
            let Range { start, end } = losses[0].bytes;
            assert!(start <= at as u64 && (at as u64) < end);
            assert_all_accounted_for(&found, &losses);
        }
    }
}

#[test]
fn truncated_table_loses_its_tail() {
    let intact = table(Compression::None);
    for len in (0..intact.len()).step_by(1711) {
        let (found, losses) = salvaged(&intact[..len], intact.len());
        assert!(found.iter().copied().eq(0..found.len() as u64));
        assert_all_accounted_for(&found, &losses);
        if (found.len() as u64) < ENTRIES {
            assert_eq!(losses.last().unwrap().bytes.end, intact.len() as u64);
        }
    }
}
