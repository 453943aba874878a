//! Build, lookup and scan speed of SSTables, without disk I/O.
//!
//! 64 MiB of entries with keys of 16 bytes and values of 100 bytes, in memory; `cached` has all
//! blocks in the cache, `uncached` reads, verifies and parses its block each time.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench may panic and print")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
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

fn lookups(c: &mut Criterion) {
    let vfs = Ram::new();
    let meta = build(&vfs, "table", ENTRIES, Compression::None);
    let open = |cache: Option<Arc<BlockCache>>| {
        let file = vfs.open("table", Mode::Read).unwrap();
        Arc::new(Table::open(file, "table", NUMBER, cache).unwrap())
    };
    let cache = Arc::new(BlockCache::new(512 << 20));
    let cached = open(Some(cache));
    println!(
        "{} entries, {} blocks, {} MiB; index {} KiB, filter {} KiB",
        meta.entries,
        meta.blocks,
        meta.bytes >> 20,
        cached.index_bytes() >> 10,
        cached.filter_bytes() >> 10
    );
    for i in 0..ENTRIES {
        let key = key(i);
        assert!(cached.get(&key, hash64(&key), u64::MAX, Purpose::Get).unwrap().is_some());
    }
    let mut group = c.benchmark_group("get");
    for (name, table) in [("cached", cached.clone()), ("uncached", open(None))] {
        let mut rng = Rng(7);
        group.bench_function(format!("hit/{name}"), |b| {
            b.iter(|| {
                let key = key(rng.below(ENTRIES));
                black_box(table.get(&key, hash64(&key), u64::MAX, Purpose::Get).unwrap().unwrap())
            });
        });
    }
    let mut rng = Rng(7);
    group.bench_function("miss", |b| {
        b.iter(|| {
            let mut key = key(rng.below(ENTRIES));
            key[15] += 1;
            black_box(cached.get(&key, hash64(&key), u64::MAX, Purpose::Get).unwrap())
        });
    });
    group.finish();

    let mut group = c.benchmark_group("seek");
    let mut iter = cached.iter(Purpose::Scan, IterOptions::SCAN);
    for steps in [0, 10, 100] {
        let mut rng = Rng(7);
        group.bench_function(format!("seek+{steps} next"), |b| {
            b.iter(|| {
                iter.seek(&key(rng.below(ENTRIES)), u64::MAX).unwrap();
                for _ in 0..steps {
                    if !iter.next().unwrap() {
                        break;
                    }
                    black_box(iter.value());
                }
            });
        });
    }
    group.finish();

    let mut group = c.benchmark_group("scan 64 MiB");
    group.sample_size(20).throughput(Throughput::Elements(ENTRIES));
    for (name, options) in [("cached", IterOptions::SCAN), ("compaction", IterOptions::COMPACTION)]
    {
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut iter = cached.iter(Purpose::Scan, options);
                let mut there = iter.first().unwrap();
                let mut bytes = 0;
                while there {
                    bytes += iter.key().len() + iter.value().len();
                    there = iter.next().unwrap();
                }
                black_box(bytes)
            });
        });
    }
    group.finish();
}

fn writes(c: &mut Criterion) {
    let mut group = c.benchmark_group("build 16 MiB");
    let entries = ENTRIES / 4;
    group.sample_size(10).throughput(Throughput::Elements(entries));
    let compressions = [Compression::None, Compression::Lz4, Compression::Zstd { level: 1 }];
    for compression in compressions {
        group.bench_function(format!("{compression:?}"), |b| {
            let fresh = Ram::new;
            b.iter_batched(
                fresh,
                |vfs| build(&vfs, "t", entries, compression),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();

    let mut group = c.benchmark_group("log");
    group.sample_size(20).throughput(Throughput::Elements(10_000));
    let append = |vfs: &Ram| {
        let mut log = LogWriter::create(vfs, "log", 1, Purpose::Log).unwrap();
        for i in 0..10_000 {
            log.append(&[&key(i), &[7; 100]]).unwrap();
        }
    };
    group.bench_function("append 10,000 x 116 B", |b| {
        b.iter_batched(Ram::new, |vfs| append(&vfs), BatchSize::PerIteration);
    });
    let vfs = Ram::new();
    append(&vfs);
    group.bench_function("read 10,000 x 116 B", |b| {
        b.iter(|| {
            let mut reader = LogReader::open(&vfs, "log", 1, LogMode::Recover).unwrap();
            while let Some(record) = reader.next().unwrap() {
                black_box(record.bytes);
            }
        });
    });
    group.finish();
}

criterion_group!(benches, lookups, writes);
criterion_main!(benches);
