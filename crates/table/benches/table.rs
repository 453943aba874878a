//! Build, lookup and scan speed of SSTables, without disk I/O.
//!
//! 64 MiB of entries with keys of 16 bytes and values of 100 bytes, in memory; `cached` has all
//! blocks in the cache, `uncached` reads, verifies and parses its block each time.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::hint::black_box;
use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use siltstone_engine::Purpose;
use siltstone_structures::hash64;
use siltstone_table::{
    BlockCache, Compression, EntryRef, FileNumber, IterOptions, Kind, LogMode, LogReader,
    LogWriter, Table, TableMeta, TableOptions, TableWriter,
};
use siltstone_vfs::{Mode, Ram, Vfs};

const ENTRIES: u64 = (64 << 20) / 116;
const NUMBER: FileNumber = FileNumber(1);

fn key(i: u64) -> [u8; 16] {
    let mut key = *b"0000000000000000";
    let mut left = 2 * i;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    key
}

fn build(vfs: &Ram, name: &str, entries: u64, compression: Compression) -> TableMeta {
    let options = TableOptions { compression, ..TableOptions::default() };
    let mut writer = TableWriter::create(vfs, name, NUMBER, options, Purpose::Flush).unwrap();
    let mut value = [0u8; 100];
    for i in 0..entries {
        // Half of the value is random, as in db_bench.
        let mut noise = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for chunk in value[..48].chunks_mut(8) {
            noise ^= noise >> 29;
            noise = noise.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            chunk.copy_from_slice(&noise.to_le_bytes());
        }
        let (key, kind) = (&key(i), Kind::Put);
        writer.add(EntryRef { key, sequence: i + 1, kind, expires_at: 0, value: &value }).unwrap();
    }
    writer.finish().unwrap()
}

/// A fast source of pseudorandom indexes.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(n)) >> 64) as u64
    }
}

/// A table of all entries, open.
fn table(cache: Option<Arc<BlockCache>>) -> Arc<Table> {
    let vfs = Ram::new();
    build(&vfs, "table", ENTRIES, Compression::None);
    let file = vfs.open("table", Mode::Read).unwrap();
    Arc::new(Table::open(file, "table", NUMBER, cache).unwrap())
}

/// The same, with all blocks in the cache.
fn cached() -> Arc<Table> {
    let table = table(Some(Arc::new(BlockCache::new(512 << 20))));
    for i in 0..ENTRIES {
        let key = key(i);
        assert!(table.get(&key, hash64(&key), u64::MAX, Purpose::Get).unwrap().is_some());
    }
    table
}

#[divan::bench(args = ["cached", "uncached"])]
fn get(bencher: Bencher, blocks: &str) {
    let table = if blocks == "cached" { cached() } else { table(None) };
    let mut rng = Rng(7);
    bencher.bench_local(|| {
        let key = key(rng.below(ENTRIES));
        table.get(&key, hash64(&key), u64::MAX, Purpose::Get).unwrap().unwrap()
    });
}

#[divan::bench]
fn miss(bencher: Bencher) {
    let (table, mut rng) = (cached(), Rng(7));
    bencher.bench_local(|| {
        let mut key = key(rng.below(ENTRIES));
        key[15] += 1;
        table.get(&key, hash64(&key), u64::MAX, Purpose::Get).unwrap()
    });
}

#[divan::bench(args = [0, 10, 100])]
fn seek_and_next(bencher: Bencher, steps: usize) {
    let (table, mut rng) = (cached(), Rng(7));
    let mut iter = table.iter(Purpose::Scan, IterOptions::SCAN);
    bencher.bench_local(|| {
        iter.seek(&key(rng.below(ENTRIES)), u64::MAX).unwrap();
        for _ in 0..steps {
            if !iter.next().unwrap() {
                break;
            }
            black_box(iter.value());
        }
    });
}

#[divan::bench(sample_count = 20, args = ["cached", "compaction"])]
fn scan(bencher: Bencher, blocks: &str) {
    let table = cached();
    let options = if blocks == "cached" { IterOptions::SCAN } else { IterOptions::COMPACTION };
    bencher.counter(ItemsCount::new(ENTRIES)).bench_local(|| {
        let mut iter = table.iter(Purpose::Scan, options);
        let mut there = iter.first().unwrap();
        let mut bytes = 0;
        while there {
            bytes += iter.key().len() + iter.value().len();
            there = iter.next().unwrap();
        }
        bytes
    });
}

#[divan::bench(
    sample_count = 10,
    args = [Compression::None, Compression::Lz4, Compression::Zstd { level: 1 }],
)]
fn build_16_mib(bencher: Bencher, compression: Compression) {
    let entries = ENTRIES / 4;
    let bencher = bencher.counter(ItemsCount::new(entries)).with_inputs(Ram::new);
    bencher.bench_refs(|vfs| build(vfs, "t", entries, compression));
}

const RECORDS: u64 = 10_000;

fn append(vfs: &Ram) {
    let mut log = LogWriter::create(vfs, "log", 1, Purpose::Log).unwrap();
    for i in 0..RECORDS {
        log.append(&[&key(i), &[7; 100]]).unwrap();
    }
}

#[divan::bench(sample_count = 20)]
fn append_to_log(bencher: Bencher) {
    let bencher = bencher.counter(ItemsCount::new(RECORDS)).with_inputs(Ram::new);
    bencher.bench_refs(|vfs| append(vfs));
}

#[divan::bench(sample_count = 20)]
fn read_log(bencher: Bencher) {
    let vfs = Ram::new();
    append(&vfs);
    bencher.counter(ItemsCount::new(RECORDS)).bench_local(|| {
        let mut reader = LogReader::open(&vfs, "log", 1, LogMode::Recover).unwrap();
        while let Some(record) = reader.next().unwrap() {
            black_box(record.bytes);
        }
    });
}

fn main() {
    divan::main();
}
