//! File numbers and file names.
//!
//! A file number is never reused during the life of a keyspace. It seeds every checksum of the
//! file, so intact bytes of another file are detected too.
//!
//! ```text
//! name     := number  '.'  ("sst" | "log" | "blob" | "ingest")
//!           | number  '-'  sequence  '-'  identity  ".sst"        an ingested SSTable
//! number, identity := decimal, at least 6 digits
//! sequence := decimal
//! ```
//!
//! An ingested SSTable was written outside of the keyspace. Its `identity` seeds its checksums in
//! place of its number, and all of its entries have the one `sequence`. Both are in the name, so
//! the file can be read without the manifest.
//!
//! Invariant: `parse(name(n)) == n` up to [`FileNumber::LAST`], and a name that this module would
//! not write is not parsed, so unrelated files (`lost+found`, an editor's copy) are left alone.
//! Numbers are allocated from the highest existing one on and cannot overflow.
//!
//! Source: LevelDB's naming convention.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone_engine::{Error, Result};

use crate::kind::check_sequence;

/// The number of a file; unique for the life of a keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileNumber(pub u64);

impl FileNumber {
    /// The largest valid number. One file per microsecond would reach it in two thousand years.
    pub const LAST: FileNumber = FileNumber(1 << 56);

    /// The number after this one.
    #[must_use]
    pub fn next(self) -> Self {
        FileNumber(self.0 + 1)
    }
}

impl fmt::Display for FileNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}", self.0)
    }
}

/// The type of a numbered file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A record log, `.log`.
    Log,
    /// Values that a compaction moved out of other files, as a record log, `.blob`.
    Blob,
    /// An SSTable, `.sst`.
    Table,
    /// An SSTable that was written outside of the keyspace, `.sst`.
    Ingested(Ingestion),
    /// A link or a copy of such a file, `.ingest`, until the file is ingested.
    Staged,
}

/// How an ingested SSTable is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ingestion {
    /// The sequence number of every entry.
    pub sequence: u64,
    /// The number that it was written with, which seeds its checksums.
    pub identity: FileNumber,
}

impl FileKind {
    /// The extension without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            FileKind::Log => "log",
            FileKind::Blob => "blob",
            FileKind::Table | FileKind::Ingested(_) => "sst",
            FileKind::Staged => "ingest",
        }
    }

    /// Whether it is an SSTable of the keyspace.
    pub fn is_table(self) -> bool {
        matches!(self, FileKind::Table | FileKind::Ingested(_))
    }

    /// The number that a file of this kind with this number was written with, which seeds its
    /// checksums.
    pub fn written_as(self, number: FileNumber) -> FileNumber {
        match self {
            FileKind::Ingested(ingested) => ingested.identity,
            FileKind::Log | FileKind::Blob | FileKind::Table | FileKind::Staged => number,
        }
    }

    /// The name of the file of this kind with this number, e.g. `000123.sst`.
    pub fn name(self, number: FileNumber) -> String {
        let extension = self.extension();
        match self {
            FileKind::Ingested(Ingestion { sequence, identity }) => {
                format!("{number}-{sequence}-{identity}.{extension}")
            }
            _ => format!("{number}.{extension}"),
        }
    }
}

/// Parses a file name; `None` for any name that this crate does not write.
pub fn parse_file_name(name: &str) -> Option<(FileKind, FileNumber)> {
    let (digits, extension) = name.split_once('.')?;
    if extension == "sst"
        && let Some((number, ingested)) = digits.split_once('-')
    {
        let (sequence, identity) = ingested.split_once('-')?;
        let kind = FileKind::Ingested(Ingestion {
            sequence: parse_sequence(sequence)?,
            identity: parse_number(identity)?,
        });
        return Some((kind, parse_number(number)?));
    }
    let kinds = [FileKind::Log, FileKind::Blob, FileKind::Table, FileKind::Staged];
    let kind = kinds.into_iter().find(|k| k.extension() == extension)?;
    Some((kind, parse_number(digits)?))
}

/// Parses a sequence number in decimal without leading zeros.
fn parse_sequence(digits: &str) -> Option<u64> {
    let sequence = check_sequence(digits.parse().ok()?).ok()?;
    (sequence.to_string() == digits).then_some(sequence)
}

/// Parses a number exactly as [`FileNumber`]'s `Display` writes it.
pub fn parse_number(digits: &str) -> Option<FileNumber> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number = FileNumber(digits.parse().ok()?);
    (number <= FileNumber::LAST && number.to_string() == digits).then_some(number)
}

/// Allocates the numbers of new files, none twice.
#[derive(Debug)]
pub struct FileNumbers(AtomicU64);

impl FileNumbers {
    /// Starts at `next`, which the manifest recorded; at 1 if it has none.
    ///
    /// # Errors
    /// `Corruption` if `next` is out of range.
    pub fn of_manifest(next: Option<u64>) -> Result<Self> {
        let next = next.unwrap_or(1);
        // Allocation may continue after a file with the last number.
        if next > 2 * FileNumber::LAST.0 {
            let reason = format!("the next file would have the number {next}");
            return Err(Error::corruption("MANIFEST", 0, reason));
        }
        Ok(FileNumbers(AtomicU64::new(next)))
    }

    /// Allocates a number.
    pub fn take(&self) -> u64 {
        self.0.fetch_add(1, Relaxed)
    }

    /// Marks the number of an existing file as used.
    pub fn skip(&self, number: u64) {
        self.0.fetch_max(number + 1, Relaxed);
    }

    /// The next number to be allocated.
    pub fn next(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_round_trip() {
        for n in [0, 1, 999_999, 1_000_000, FileNumber::LAST.0] {
            let ingested = Ingestion { sequence: n * 7, identity: FileNumber(n / 3) };
            let kinds = [FileKind::Log, FileKind::Blob, FileKind::Table, FileKind::Staged];
            for kind in kinds.into_iter().chain([FileKind::Ingested(ingested)]) {
                let name = kind.name(FileNumber(n));
                assert_eq!(parse_file_name(&name), Some((kind, FileNumber(n))), "{name}");
            }
        }
        assert_eq!(FileKind::Table.name(FileNumber(123)), "000123.sst");
        let ingested = Ingestion { sequence: 45, identity: FileNumber(6_000_000) };
        assert_eq!(FileKind::Ingested(ingested).name(FileNumber(123)), "000123-45-6000000.sst");
    }

    #[test]
    fn numbers_are_unique_and_bounded() {
        let numbers = FileNumbers::of_manifest(None).unwrap();
        assert_eq!([numbers.take(), numbers.take(), numbers.next()], [1, 2, 3]);
        numbers.skip(2);
        numbers.skip(7);
        assert_eq!(numbers.take(), 8);
        let last = FileNumbers::of_manifest(Some(FileNumber::LAST.0)).unwrap();
        last.skip(FileNumber::LAST.0);
        assert!(FileNumbers::of_manifest(Some(last.take())).is_ok());
        for absurd in [2 * FileNumber::LAST.0 + 1, u64::MAX] {
            assert!(FileNumbers::of_manifest(Some(absurd)).unwrap_err().is_corruption());
        }
    }

    #[test]
    fn unrelated_names_are_not_parsed() {
        for name in [
            "",
            ".",
            "sst",
            ".sst",
            "1.sst",
            "0000001.sst",
            "+00001.sst",
            "000001.sst.tmp",
            "000001.SST",
            "00000a.log",
            "72057594037927937.log",
            "18446744073709551615.log",
            "18446744073709551616.log",
            "000001-7.sst",
            "000001-07-000002.sst",
            "000001-7-2.sst",
            "000001-7-000002-000003.sst",
            "000001-7-000002.log",
            "000001--000002.sst",
            "000001-2305843009213693952-000002.sst",
            "MANIFEST-000001",
            "CURRENT",
        ] {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
    }
}
