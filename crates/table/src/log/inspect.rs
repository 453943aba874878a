//! Verification and dump of a log. The engine supplies the meaning of the records.

use siltstone_engine::{Error, Inspection, Result, VerifyReport};
use siltstone_vfs::Vfs;

use super::{LogEnd, LogMode, LogReader, PartRecord};
use crate::{FileKind, FileNumber};

/// Verifies logs that are in use; `operations` returns the number of operations in a record, or
/// a message if it is malformed.
///
/// # Errors
/// Failures of the verification itself; damage is added to the report.
pub fn verify_logs(
    vfs: &dyn Vfs,
    numbers: &[u64],
    report: &mut VerifyReport,
    operations: impl Fn(&[u8]) -> std::result::Result<u64, String>,
) -> Result<()> {
    for &number in numbers {
        let mut entries = 0;
        let result = match open_log(vfs, (FileKind::Log, number)) {
            // The log became obsolete and was removed meanwhile.
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error),
            Ok(log) => for_each_record(log, |_, record| {
                entries += match PartRecord::is_in(record) {
                    true => PartRecord::decode(record).map(|_| 0)?,
                    false => operations(record)?,
                };
                Ok(())
            }),
        };
        report.note(result.map(|reader| (reader.valid_bytes(), entries)))?;
    }
    Ok(())
}

/// Dumps a log or blob file; `describe` returns a record as text and its number of operations.
///
/// # Errors
/// `Corruption`; I/O errors.
pub fn inspect_log(
    vfs: &dyn Vfs,
    (kind, number): (FileKind, u64),
    limit: usize,
    inspection: &mut Inspection,
    describe: impl Fn(&[u8]) -> std::result::Result<(String, u64), String>,
) -> Result<()> {
    inspection.kind = if kind == FileKind::Blob { "blob file" } else { "write-ahead log" };
    let mut operations = 0;
    let reader = for_each_record(open_log(vfs, (kind, number))?, |position, record| {
        let (text, count) = match PartRecord::is_in(record) {
            true => (PartRecord::decode(record)?.to_string(), 0),
            false => describe(record)?,
        };
        operations += count;
        inspection.item(limit, || format!("{position}: {text}"));
        Ok(())
    })?;
    inspection.property("records", reader.records());
    inspection.property("operations", operations);
    inspection.property("valid bytes", reader.valid_bytes());
    let end = match reader.end() {
        Some(LogEnd::Sealed) => "sealed: nothing is missing".to_owned(),
        Some(LogEnd::Torn { dropped_bytes }) => {
            format!("torn: {dropped_bytes} bytes of writes that were never synced")
        }
        Some(LogEnd::Clean) | None => "open: after a whole record".to_owned(),
    };
    inspection.property("end", end);
    Ok(())
}

fn open_log(vfs: &dyn Vfs, (kind, number): (FileKind, u64)) -> Result<LogReader> {
    LogReader::open(vfs, &kind.name(FileNumber(number)), number, LogMode::Recover)
}

fn for_each_record(
    mut reader: LogReader,
    mut visit: impl FnMut(u64, &[u8]) -> std::result::Result<(), String>,
) -> Result<LogReader> {
    while let Some(record) = reader.next()? {
        let position = record.position;
        if let Err(reason) = visit(position, record.bytes) {
            return Err(Error::corruption(reader.name, position, reason));
        }
    }
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use super::super::{SegmentLink, WalWriter};
    use super::*;
    use siltstone_faults::{FaultKind, FaultyVfs};
    use siltstone_vfs::Ram;
    use std::sync::Arc;

    #[test]
    fn log_is_dumped_and_malformed_record_is_reported() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let mut log = WalWriter::create(&vfs, 7, SegmentLink::default()).unwrap();
        log.append([[&b"\x01"[..], b"one"], [b"\x01", b"bad"]], &mut Vec::new()).unwrap();
        let vfs = vfs.as_ref();
        let mut inspection = Inspection::default();
        let describe = |record: &[u8]| Ok((record.escape_ascii().to_string(), 1));
        inspect_log(vfs, (FileKind::Log, 7), 2, &mut inspection, describe).unwrap();
        assert_eq!((inspection.items.len(), inspection.more), (2, 1));
        assert!(inspection.items[1].ends_with("one"), "{:?}", inspection.items);

        let count = |record: &[u8]| match record.ends_with(b"bad") {
            true => Err("bad".to_owned()),
            false => Ok(1),
        };
        let mut report = VerifyReport::default();
        // Log 9 does not exist.
        verify_logs(vfs, &[9, 7], &mut report, count).unwrap();
        assert_eq!((report.files, report.damage.len()), (1, 1));
        let mut report = VerifyReport::default();
        verify_logs(vfs, &[7], &mut report, |_| Ok(1)).unwrap();
        assert_eq!((report.entries, report.is_intact()), (3, true));
    }

    #[test]
    fn verified_log_is_opened_once_since_it_may_be_removed_at_any_time() {
        let disk = FaultyVfs::new(1);
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        let mut log = WalWriter::create(&vfs, 7, SegmentLink::default()).unwrap();
        log.append([[&b"\x01"[..], b"one"]], &mut Vec::new()).unwrap();
        // The first request opens the log.
        for later in 1..20 {
            disk.clear_faults();
            disk.fail_at(disk.requests() + later, FaultKind::Descriptors);
            let mut report = VerifyReport::default();
            verify_logs(vfs.as_ref(), &[7], &mut report, |_| Ok(1)).unwrap();
            assert_eq!((report.files, report.is_intact()), (1, true));
        }
    }
}
