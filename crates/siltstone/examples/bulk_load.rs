//! Loads a table from sorted files, written by two threads, and compares with a load by puts.
//!
//! `cargo run --release -p siltstone --example bulk_load -- [ROWS]` prints how many bytes the
//! engine writes per byte of keys and values.

#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};

use siltstone::{
    Db, DbOptions, Durability, IngestMode, IngestOptions, Result, SortedFileWriter, Stats, Table,
    WriteBatch,
};

/// A file ends at this size: its writer needs 8 bytes of memory per key.
const FILE_BYTES: u64 = 64 << 20;

/// The load by puts goes over the keys this often.
const PASSES: u64 = 1009;

fn key(row: u64) -> [u8; 16] {
    let mut key = *b"row:------------";
    key[8..].copy_from_slice(&row.to_be_bytes());
    key
}

/// Not compressible.
fn value(row: u64) -> Vec<u8> {
    let word = |i: u64| (row * 13 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    (0..13).flat_map(|i| word(i).to_le_bytes()).take(100).collect()
}

// ANCHOR: write
/// Writes rows to as many files as they need.
fn write_files(directory: &Path, rows: std::ops::Range<u64>) -> Result<Vec<PathBuf>> {
    let (mut files, mut writer) = (Vec::new(), None::<SortedFileWriter>);
    for row in rows {
        if writer.as_ref().is_none_or(|it| it.estimated_bytes() >= FILE_BYTES) {
            writer.take().map(SortedFileWriter::finish).transpose()?;
            let path = directory.join(format!("{row:012}.sorted"));
            writer = Some(SortedFileWriter::create(&path, &Default::default())?);
            files.push(path);
        }
        if let Some(writer) = &mut writer {
            writer.put(&key(row), &value(row))?;
        }
    }
    writer.map(SortedFileWriter::finish).transpose()?;
    Ok(files)
}
// ANCHOR_END: write

fn load_by_ingestion(table: &Table, directory: &Path, rows: u64) -> Result<u64> {
    let half = rows / 2;
    let files = std::thread::scope(|scope| {
        let upper = scope.spawn(|| write_files(directory, half..rows));
        let mut files = write_files(directory, 0..half)?;
        files.extend(upper.join().expect("the thread does not panic")?);
        Ok::<_, siltstone::Error>(files)
    })?;
    // ANCHOR: ingest
    // All rows appear at once. The files are linked into the table, and leave their place.
    let options =
        IngestOptions { mode: IngestMode::Move, verify: false, ..IngestOptions::default() };
    let report = table.ingest(&files, options)?;
    // ANCHOR_END: ingest
    println!("{} rows in {} files, levels {:?}", report.entries, files.len(), report.levels);
    Ok(report.bytes)
}

fn load_by_puts(table: &Table, rows: u64) -> Result<()> {
    let mut batch = WriteBatch::new();
    // Many passes over the key space, so that the rows are not in order.
    for row in (0..PASSES).flat_map(|first| (first..rows).step_by(PASSES as usize)) {
        batch.put(&key(row), &value(row));
        if batch.len() == 100 {
            table.write(&batch, Durability::Buffered)?;
            batch.clear();
        }
    }
    table.write(&batch, Durability::Buffered)?;
    table.flush()?;
    table.maintain()
}

fn written(stats: &Stats) -> u64 {
    stats.io.values().map(|io| io.bytes_written).sum()
}

fn main() -> Result<()> {
    let rows = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let scratch = tempfile::tempdir().expect("a temporary directory can be created");
    let db = Db::open_or_create(scratch.path().join("store"), DbOptions::default())?;
    let user_bytes = (rows * 116) as f64;

    let ingested = db.table_or_create("ingested", "lsm", &Default::default())?;
    let files = load_by_ingestion(&ingested, scratch.path(), rows)?;
    let bytes = files + written(&ingested.stats());
    println!("by ingestion: {:.2} bytes written per byte", bytes as f64 / user_bytes);

    let put = db.table_or_create("put", "lsm", &Default::default())?;
    load_by_puts(&put, rows)?;
    let bytes = written(&put.stats());
    println!("by puts: {:.2} bytes written per byte", bytes as f64 / user_bytes);

    for table in [&ingested, &put] {
        assert_eq!(table.len()?, rows);
        assert_eq!(table.get(&key(rows / 3))?, Some(value(rows / 3)));
    }
    db.close()
}
