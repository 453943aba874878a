//! Rows of tables, and tables of rows.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::support::new_vfs;
use siltstone_engine::{Error, Purpose};
use siltstone_faults::FaultyVfs;
use siltstone_table::{
    BlockCache, Compression, EntryRef, FileNumber, Kind, Table, TableMeta, TableOptions,
    TableWriter,
};
use siltstone_vfs::{Mode, Vfs};

pub(crate) const NUMBER: FileNumber = FileNumber(12);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: Vec<u8>,
    pub(crate) sequence: u64,
    pub(crate) kind: Kind,
    pub(crate) expires_at: u64,
    pub(crate) value: Vec<u8>,
}

impl Row {
    pub(crate) fn put(key: &[u8], sequence: u64, value: &[u8]) -> Row {
        Row { key: key.into(), sequence, kind: Kind::Put, expires_at: 0, value: value.into() }
    }

    pub(crate) fn entry(&self) -> EntryRef<'_> {
        EntryRef {
            key: &self.key,
            sequence: self.sequence,
            kind: self.kind,
            expires_at: self.expires_at,
            value: &self.value,
        }
    }

    pub(crate) fn of(entry: EntryRef<'_>) -> Row {
        Row {
            key: entry.key.to_vec(),
            sequence: entry.sequence,
            kind: entry.kind,
            expires_at: entry.expires_at,
            value: entry.value.to_vec(),
        }
    }
}

pub(crate) fn write(vfs: &FaultyVfs, rows: &[Row], options: TableOptions) -> TableMeta {
    let mut writer =
        TableWriter::create(vfs, "000012.sst", NUMBER, options, Purpose::Flush).unwrap();
    for row in rows {
        writer.add(row.entry()).unwrap();
    }
    writer.add_meta("sketch", b"from another version".to_vec()).unwrap();
    writer.finish().unwrap()
}

pub(crate) fn open(vfs: &FaultyVfs, cache: Option<Arc<BlockCache>>) -> Result<Arc<Table>, Error> {
    let file = vfs.open("000012.sst", Mode::Read).unwrap();
    Table::open(file, "000012.sst", NUMBER, cache).map(Arc::new)
}

pub(crate) fn check(table: &Table) -> Result<(), Error> {
    table.verify(|_| ControlFlow::Continue(()))
}

/// Keys that share prefixes, many versions of some of them.
pub(crate) fn rows(n: u64) -> Vec<Row> {
    (0..n)
        .flat_map(|i| {
            let versions = if i % 50 == 7 { 90 } else { 1 + i % 3 };
            (0..versions).rev().map(move |v| {
                let key = format!("user{:05}/{}", i * 3, "x".repeat((i % 7) as usize));
                let mut row = Row::put(key.as_bytes(), i + v * 10, &[i as u8; 60]);
                match (i + v) % 9 {
                    0 => (row.kind, row.value) = (Kind::Delete, Vec::new()),
                    1 => (row.kind, row.expires_at) = (Kind::PutExpiring, 1_000_000 + i),
                    2 => row.kind = Kind::Position,
                    3 => row.kind = Kind::Reference,
                    _ => {}
                }
                row
            })
        })
        .collect()
}

pub(crate) const COMPRESSIONS: [Compression; 3] =
    [Compression::None, Compression::Lz4, Compression::Zstd { level: 1 }];

/// Options with a dictionary, and rows enough to train one.
pub(crate) fn with_dictionary() -> TableOptions {
    let compression = Compression::Zstd { level: 3 };
    let dictionary_bytes = 1024;
    TableOptions { block_bytes: 512, compression, dictionary_bytes, ..TableOptions::default() }
}

/// Rows that have much in common, and each something of its own.
pub(crate) fn documents(n: u64) -> Vec<Row> {
    let document = |i: u64| {
        let hash = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        format!("{{\"id\":{hash},\"country\":\"NZ\",\"visits\":{},\"active\":true}}", hash % 97)
    };
    let row = |i| Row::put(format!("user{i:06}").as_bytes(), i + 1, document(i).as_bytes());
    (0..n).map(row).collect()
}

/// A small SSTable with several blocks, and its bytes.
pub(crate) fn small(compression: Compression) -> (Vec<Row>, Vec<u8>) {
    let vfs = new_vfs();
    let rows: Vec<_> = (0..40u64)
        .map(|i| {
            Row::put(format!("key{:03}", i / 2).as_bytes(), 100 - i, b"some value, some value")
        })
        .collect();
    let options = TableOptions {
        block_bytes: 200,
        restart_interval: 4,
        compression,
        ..TableOptions::default()
    };
    write(&vfs, &rows, options);
    (rows, vfs.read_raw("000012.sst").unwrap())
}
