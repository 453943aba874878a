//! SSTable lookups and iteration, compared with a sorted list, and detection of damage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::rows::{
    COMPRESSIONS, NUMBER, Row, check, documents, open, rows, small, with_dictionary, write,
};
use crate::support::new_vfs;
use proptest::prelude::*;
use siltstone_engine::{Error, Purpose};
use siltstone_structures::{BloomProbe, hash64};
use siltstone_table::kind::compare;
use siltstone_table::{
    BlockCache, Compression, EXTERNAL_SEQUENCE, EntryRef, FileKind, FileNumber, Ingestion,
    IterOptions, Kind, Table, TableIter, TableMeta, TableOptions, TableWriter, salvage_table,
};
use siltstone_vfs::{Mode, Vfs};

#[test]
fn table_round_trips_under_every_compression() {
    let rows = rows(2000);
    let formats =
        COMPRESSIONS.map(|compression| TableOptions { compression, ..TableOptions::default() });
    for options in formats.into_iter().chain([with_dictionary()]) {
        let vfs = new_vfs();
        let meta = write(&vfs, &rows, options);
        let table = open(&vfs, None).unwrap();
        assert_eq!(table.meta(), &meta);
        assert_eq!(meta.bytes, vfs.read_raw("000012.sst").unwrap().len() as u64);
        assert_eq!(meta.entries, rows.len() as u64);
        assert_eq!((&meta.smallest, &meta.largest), (&rows[0].key, &rows[rows.len() - 1].key));
        assert_eq!(TableMeta::decode(&meta.encode()), Ok(meta));
        check(&table).unwrap();
        for options in [IterOptions::SCAN, IterOptions::COMPACTION] {
            let mut iter = table.iter(Purpose::Scan, options);
            let mut there = iter.first().unwrap();
            for row in &rows {
                assert!(there);
                assert_eq!(&Row::of(iter.entry()), row);
                there = iter.next().unwrap();
            }
            assert!(!there && !iter.valid());
            let mut there = iter.last().unwrap();
            for row in rows.iter().rev() {
                assert!(there);
                assert_eq!(&Row::of(iter.entry()), row);
                there = iter.prev().unwrap();
            }
            assert!(!there);
        }
        let other = table.meta_block("sketch", Purpose::Maintenance).unwrap();
        assert_eq!(other.as_deref(), Some(&b"from another version"[..]));
        assert_eq!(table.meta_block("none", Purpose::Maintenance).unwrap(), None);
    }
}

#[test]
fn lookup_finds_newest_version_at_sequence() {
    let rows = rows(700);
    let vfs = new_vfs();
    write(&vfs, &rows, TableOptions::default());
    let cache = Arc::new(BlockCache::new(1 << 20));
    for table in [open(&vfs, None).unwrap(), open(&vfs, Some(cache)).unwrap()] {
        for row in &rows {
            for at in [0, row.sequence.saturating_sub(1), row.sequence, row.sequence + 1, u64::MAX]
            {
                let expected = rows.iter().find(|r| r.key == row.key && r.sequence <= at);
                let found = table.get(&row.key, hash64(&row.key), at, Purpose::Get).unwrap();
                let found = found.map(|f| (f.sequence, f.kind, f.expires_at, f.value().to_vec()));
                let expected =
                    expected.map(|r| (r.sequence, r.kind, r.expires_at, r.value.clone()));
                assert_eq!(found, expected);
            }
            let absent = [&row.key[..], b"!"].concat();
            let found = table.get(&absent, hash64(&absent), u64::MAX, Purpose::Get).unwrap();
            assert!(found.is_none());
        }
        for absent in [&b""[..], b"a", b"user", b"zzz", b"user99999"] {
            // Bypass the filter, as its false positives do.
            let hash = hash64(&rows[0].key);
            assert!(table.get(absent, hash, u64::MAX, Purpose::Get).unwrap().is_none());
        }
    }
}

#[test]
fn filter_excludes_absent_keys_and_lookup_takes_one_read() {
    let rows: Vec<_> =
        (0..10_000u64).map(|i| Row::put(&(2 * i).to_be_bytes(), i, &[1; 100])).collect();
    let vfs = new_vfs();
    write(&vfs, &rows, TableOptions::default());
    let table = open(&vfs, None).unwrap();
    let before = vfs.requests();
    for i in 0..10_000u64 {
        let key = (2 * i + 1).to_be_bytes();
        assert!(table.get(&key, hash64(&key), u64::MAX, Purpose::Get).unwrap().is_none());
    }
    assert!(vfs.requests() - before < 200, "{} false positives", vfs.requests() - before);
    let before = vfs.requests();
    for row in &rows {
        table.get(&row.key, hash64(&row.key), u64::MAX, Purpose::Get).unwrap().unwrap();
    }
    assert_eq!(vfs.requests() - before, rows.len() as u64);
    assert!(table.filter_bytes() > 10_000 && table.index_bytes() > 0);
}

#[test]
fn compaction_iterator_bypasses_cache_and_reads_ahead() {
    let rows = rows(20_000);
    let vfs = new_vfs();
    let meta = write(&vfs, &rows, TableOptions::default());
    let cache = Arc::new(BlockCache::new(64 << 20));
    let table = open(&vfs, Some(cache.clone())).unwrap();
    let count = |options: IterOptions| {
        let before = vfs.requests();
        let mut iter = table.iter(Purpose::Compaction, options);
        let mut there = iter.first().unwrap();
        let mut n = 0;
        while there {
            n += 1;
            there = iter.next().unwrap();
        }
        assert_eq!(n, rows.len());
        vfs.requests() - before
    };
    let reads = count(IterOptions::COMPACTION);
    assert!(reads <= meta.bytes / (256 << 10) + 1, "{reads} reads for {} bytes", meta.bytes);
    assert_eq!((cache.hits() + cache.misses(), cache.resident_bytes()), (0, 0));
    let first_scan = count(IterOptions::SCAN);
    assert!(first_scan < meta.blocks / 8, "{first_scan} reads for {} blocks", meta.blocks);
    assert_eq!(cache.misses(), meta.blocks);
    assert_eq!(count(IterOptions::SCAN), 0);
    assert_eq!(cache.hits(), meta.blocks);
    drop(table);
    assert_eq!(cache.resident_bytes(), 0, "a closed table leaves no cached blocks");
}

#[test]
fn cache_stays_within_capacity() {
    let rows = rows(20_000);
    let vfs = new_vfs();
    write(&vfs, &rows, TableOptions::default());
    let cache = Arc::new(BlockCache::new(256 << 10));
    let table = open(&vfs, Some(cache.clone())).unwrap();
    for row in &rows {
        table.get(&row.key, hash64(&row.key), u64::MAX, Purpose::Get).unwrap();
        assert!(cache.resident_bytes() <= cache.capacity_bytes());
    }
    assert!(cache.resident_bytes() > 128 << 10);
}

#[test]
fn empty_key_is_found_through_the_filters() {
    let vfs = new_vfs();
    let options = TableOptions { range_filter: true, ..TableOptions::default() };
    let mut writer =
        TableWriter::create(&*vfs, "000012.sst", NUMBER, options, Purpose::Flush).unwrap();
    for row in [Row::put(b"", 9, b"newest"), Row::put(b"", 5, b"v"), Row::put(b"b", 7, b"")] {
        writer.add(row.entry()).unwrap();
    }
    assert!(matches!(writer.add(Row::put(b"", 1, b"").entry()), Err(Error::Invalid(_))));
    assert_eq!(writer.finish().unwrap().smallest, b"");
    let table = open(&vfs, None).unwrap();
    check(&table).unwrap();
    assert!(
        table.may_contain(&mut BloomProbe::new(hash64(b""))) && table.may_contain_range(b"", b"")
    );
    assert!(!table.may_contain_range(b"\0", b"a"));
}

#[test]
fn invalid_entries_are_rejected_and_others_kept() {
    let vfs = new_vfs();
    let mut writer =
        TableWriter::create(&*vfs, "000012.sst", NUMBER, TableOptions::default(), Purpose::Flush)
            .unwrap();
    writer.add(Row::put(b"b", 5, b"").entry()).unwrap();
    for bad in [Row::put(b"a", 9, b""), Row::put(b"b", 5, b""), Row::put(b"b", 6, b"")] {
        assert!(matches!(writer.add(bad.entry()), Err(Error::Invalid(_))));
    }
    let long = Row::put(&[b'x'; 65_537], 1, b"");
    assert!(matches!(writer.add(long.entry()), Err(Error::TooLarge { .. })));
    assert!(writer.add(Row::put(b"c", 1 << 61, b"").entry()).is_err());
    assert!(writer.add_meta("index", vec![]).is_err());
    writer.add(Row::put(b"b", 4, b"").entry()).unwrap();
    assert_eq!(writer.finish().unwrap().entries, 2);
    check(&open(&vfs, None).unwrap()).unwrap();
}

#[test]
fn empty_table_opens_and_verifies() {
    let vfs = new_vfs();
    write(&vfs, &[], TableOptions::default());
    let table = open(&vfs, None).unwrap();
    check(&table).unwrap();
    let mut iter = table.iter(Purpose::Scan, IterOptions::SCAN);
    assert!(!iter.first().unwrap() && !iter.last().unwrap());
    assert!(!iter.seek(b"a", 1).unwrap() && !iter.seek_back(b"a", 1).unwrap());
    assert!(table.get(b"a", 1, 1, Purpose::Get).unwrap().is_none());
}

#[test]
fn rate_hook_is_called_before_every_write() {
    let vfs = new_vfs();
    let total = Arc::new(AtomicU64::new(0));
    let seen = total.clone();
    let options = TableOptions::default();
    let mut writer = TableWriter::create(&*vfs, "000012.sst", NUMBER, options, Purpose::Flush)
        .unwrap()
        .with_rate_hook(Box::new(move |bytes| {
            seen.fetch_add(bytes, Relaxed);
        }));
    for row in rows(3000) {
        writer.add(row.entry()).unwrap();
    }
    let meta = writer.finish().unwrap();
    assert_eq!(total.load(Relaxed), meta.bytes);
}

#[test]
fn anchors_and_offsets_split_table_evenly() {
    let vfs = new_vfs();
    let meta = write(&vfs, &rows(5000), TableOptions::default());
    let table = open(&vfs, None).unwrap();
    let anchors = table.anchors(3);
    assert_eq!(anchors.len(), 3);
    let mut before = 0;
    for (i, key) in anchors.iter().enumerate() {
        let at = table.approximate_offset(key);
        assert!(at > before);
        before = at;
        let even = meta.bytes * (i as u64 + 1) / 4;
        assert!(at.abs_diff(even) < meta.bytes / 10, "{at} is not near {even}");
    }
    assert_eq!(table.approximate_offset(b""), 0);
    assert!(table.approximate_offset(b"zzz") > meta.bytes / 2);
}

#[test]
fn dictionary_makes_small_blocks_smaller_and_is_left_out_of_what_it_cannot_help() {
    let sizes = [0, 1024].map(|dictionary_bytes| {
        let vfs = new_vfs();
        let options = TableOptions { dictionary_bytes, ..with_dictionary() };
        let meta = write(&vfs, &documents(4000), options);
        let table = open(&vfs, None).unwrap();
        let max = dictionary_bytes;
        assert!(table.dictionary_bytes() <= max && (table.dictionary_bytes() > 0) == (max > 0));
        meta.bytes
    });
    assert!(sizes[1] * 4 < sizes[0] * 3, "{sizes:?}");
    // A program that knows no dictionaries reads a file that has none, whatever the options.
    let few = documents(3);
    for (rows, options) in [
        (&few, with_dictionary()),
        (&documents(4000), TableOptions { compression: Compression::Lz4, ..with_dictionary() }),
    ] {
        let vfs = new_vfs();
        write(&vfs, rows, options);
        let bytes = vfs.read_raw("000012.sst").unwrap();
        assert_eq!(bytes[bytes.len() - 16], 1, "the format version");
        check(&open(&vfs, None).unwrap()).unwrap();
    }
}

/// Compares the iterator's position with one in a sorted list.
fn expect(rows: &[Row], iter: &TableIter, there: bool, at: Option<usize>) {
    assert_eq!(there, at.is_some());
    assert_eq!(iter.valid(), at.is_some());
    if let Some(at) = at {
        assert_eq!(Row::of(iter.entry()), rows[at]);
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => Just(b'a'), 2 => Just(b'b'), 1 => any::<u8>()];
    prop::collection::vec(byte, 1..8)
}

fn row() -> impl Strategy<Value = Row> {
    let value = prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::collection::vec(any::<u8>(), 130..400)
    ];
    (key(), 0u64..20, 0u8..4, any::<u64>(), value).prop_map(|(key, sequence, kind, at, value)| {
        let kind = Kind::from_bits(kind).unwrap();
        Row {
            key,
            sequence: if sequence > 15 { sequence << 50 } else { sequence },
            kind,
            expires_at: if kind == Kind::PutExpiring { at } else { 0 },
            value: if kind == Kind::Delete { Vec::new() } else { value },
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn iteration_and_lookups_agree_with_sorted_list(
        mut rows in prop::collection::vec(row(), 1..120),
        targets in prop::collection::vec((key(), 0u64..20, 0u8..6), 1..40),
        block_bytes in 30usize..400,
        restart_interval in 1usize..9,
        compression in 0usize..3,
        cached: bool,
    ) {
        rows.sort_by(|a, b| compare((&a.key, a.sequence), (&b.key, b.sequence)));
        rows.dedup_by(|a, b| a.key == b.key && a.sequence == b.sequence);
        let vfs = new_vfs();
        let compression = COMPRESSIONS[compression];
        let options = TableOptions { block_bytes, restart_interval, compression, ..TableOptions::default() };
        write(&vfs, &rows, options);
        let cache = cached.then(|| Arc::new(BlockCache::new(10_000)));
        let table = open(&vfs, cache).unwrap();
        check(&table).unwrap();
        let options = if cached { IterOptions::SCAN } else { IterOptions::COMPACTION };
        let mut iter = table.iter(Purpose::Scan, options);
        let mut at = None;
        for (key, sequence, go) in targets {
            let there = match go {
                0 | 1 => {
                    at = rows.iter().position(|r| compare((&r.key, r.sequence), (&key, sequence)).is_ge());
                    iter.seek(&key, sequence)
                }
                2 => {
                    at = rows.iter().rposition(|r| compare((&r.key, r.sequence), (&key, sequence)).is_le());
                    iter.seek_back(&key, sequence)
                }
                3 if at.is_none() => { at = Some(0); iter.first() }
                4 if at.is_none() => { at = Some(rows.len() - 1); iter.last() }
                3 => { at = at.filter(|&i| i + 1 < rows.len()).map(|i| i + 1); iter.next() }
                4 => { at = at.and_then(|i| i.checked_sub(1)); iter.prev() }
                _ => {
                    let wanted = rows.iter().find(|r| r.key == key && r.sequence <= sequence);
                    let found = table.get(&key, hash64(&key), sequence, Purpose::Get).unwrap();
                    prop_assert_eq!(
                        found.map(|f| (f.sequence, f.kind, f.value().to_vec())),
                        wanted.map(|r| (r.sequence, r.kind, r.value.clone()))
                    );
                    continue;
                }
            };
            expect(&rows, &iter, there.unwrap(), at);
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        tail in prop::collection::vec(any::<u8>(), 0..300),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let _ = Table::from_bytes(&tail, NUMBER).map(|table| check(&table));
        let (_, mut bytes) = small(Compression::Lz4);
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = Table::from_bytes(&bytes, NUMBER).map(|table| check(&table));
    }
}

/// An ingested table answers every search as one that was written with the sequence number of its
/// ingestion.
#[test]
fn ingested_table_reads_as_if_written_with_its_sequence_number() {
    const SEQUENCE: u64 = 777;
    let identity = FileNumber(123_456_789);
    let row = |i: u64| Row::put(format!("key{:04}", 2 * i).as_bytes(), SEQUENCE, &[i as u8; 40]);
    let rows: Vec<Row> = (0..500).map(row).collect();
    let plain = new_vfs();
    write(&plain, &rows, TableOptions::default());
    let plain = open(&plain, None).unwrap();
    let vfs = new_vfs();
    let options = TableOptions { block_bytes: 300, ..TableOptions::default() };
    let writer = TableWriter::create(&*vfs, "outside", identity, options, Purpose::Flush).unwrap();
    let mut writer = writer.external();
    assert!(matches!(writer.add(rows[0].entry()), Err(Error::Invalid(_))));
    for row in &rows {
        let entry = EntryRef { sequence: EXTERNAL_SEQUENCE, ..row.entry() };
        let merge = EntryRef { kind: Kind::Merge, ..entry };
        assert!(matches!(writer.add(merge), Err(Error::Invalid(_))));
        writer.add(entry).unwrap();
    }
    writer.finish().unwrap();
    let file = vfs.open("outside", Mode::Read).unwrap();
    assert_eq!(Table::external_identity(file.as_ref()).unwrap(), Some(identity));
    let kind = FileKind::Ingested(Ingestion { sequence: SEQUENCE, identity });
    let open = |kind| Table::open_kind(file.clone(), "outside", kind, NUMBER, None);
    let ingested = Arc::new(open(kind).unwrap());
    check(&ingested).unwrap();
    let meta = ingested.meta();
    assert_eq!((meta.number, meta.min_sequence, meta.max_sequence), (NUMBER, SEQUENCE, SEQUENCE));
    // Neither under another identity nor as a table of the keyspace.
    let other = Ingestion { sequence: SEQUENCE, identity: FileNumber(5) };
    for kind in [FileKind::Ingested(other), FileKind::Table] {
        assert!(open(kind).err().unwrap().is_corruption());
    }
    let as_table = Table::open_kind(file.clone(), "outside", FileKind::Table, identity, None);
    assert!(as_table.err().unwrap().is_corruption());

    let iters = [&plain, &ingested].map(|table| table.iter(Purpose::Scan, IterOptions::SCAN));
    let [mut expected, mut found] = iters;
    for i in 0..1001u64 {
        let key = format!("key{i:04}");
        for at in [0, 1, 2, SEQUENCE - 1, SEQUENCE, SEQUENCE + 1, u64::MAX] {
            let value = |table: &Table| {
                let entry = table.find(key.as_bytes(), at, Purpose::Get).unwrap();
                entry.map(|entry| (entry.sequence, entry.value().to_vec()))
            };
            assert_eq!(value(&ingested), value(&plain), "{key} {at}");
            let shown = |iter: &TableIter| iter.valid().then(|| Row::of(iter.entry()));
            expected.seek(key.as_bytes(), at).unwrap();
            found.seek(key.as_bytes(), at).unwrap();
            assert_eq!(shown(&found), shown(&expected), "{key} {at}");
            expected.seek_back(key.as_bytes(), at).unwrap();
            found.seek_back(key.as_bytes(), at).unwrap();
            assert_eq!(shown(&found), shown(&expected), "back {key} {at}");
        }
    }
    let mut saved = 0;
    let losses = salvage_table(file.as_ref(), "outside", (kind, NUMBER), None, |entry| {
        assert_eq!(entry.sequence, SEQUENCE);
        saved += 1;
        Ok(())
    });
    assert!(losses.unwrap().is_empty() && saved == rows.len());
}
