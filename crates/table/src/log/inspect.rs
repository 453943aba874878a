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
        if let Some(verified) = verify_log(vfs, number, &operations)? {
            report.note(verified)?;
        }
    }
    Ok(())
}

/// The length and the number of operations of a log, or the damage to it; `None` if it became
/// obsolete and was removed meanwhile.
fn verify_log(
    vfs: &dyn Vfs,
    number: u64,
    operations: impl Fn(&[u8]) -> std::result::Result<u64, String>,
) -> Result<Option<Result<(u64, u64)>>> {
    let mut damaged_at = None;
    loop {
        let log = match open_log(vfs, (FileKind::Log, number)) {
            Err(error) if error.is_not_found() => return Ok(None),
            opened => opened?,
        };
        let mut entries = 0;
        let verified = for_each_record(log, |_, record| {
            entries += match PartRecord::is_in(record) {
                true => PartRecord::decode(record).map(|_| 0)?,
                false => operations(record)?,
            };
            Ok(())
        });
        match verified {
            // The log may have grown between the reads of two parts of it, so that the first one
            // lacks records. Then it is not damaged in the same place the next time.
            Err(Error::Corruption { offset, .. }) if damaged_at != Some(offset) => {
                damaged_at = Some(offset);
            }
            verified => return Ok(Some(verified.map(|reader| (reader.valid_bytes(), entries)))),
        }
    }
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
    use std::cell::{Cell, RefCell};
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
    fn log_that_grows_while_it_is_verified_is_sound() {
        const CHUNK_BYTES: u64 = 256 << 10;
        fn append(log: &mut WalWriter, len: usize) {
            log.append([[&b"\x01"[..], &vec![1; len][..]]], &mut Vec::new()).unwrap();
        }
        let vfs: Arc<dyn Vfs> = Arc::new(FaultyVfs::new(1));
        let mut log = WalWriter::create(&vfs, 7, SegmentLink::default()).unwrap();
        // The reader sees zeros behind the records, up to the next chunk.
        while log.len() < CHUNK_BYTES - 2500 {
            append(&mut log, 1000);
        }
        append(&mut log, 5);
        assert!(log.len() < CHUNK_BYTES - 100);
        let (log, has_grown) = (RefCell::new(log), Cell::new(false));
        let operations = |record: &[u8]| {
            if record.len() == 6 && !has_grown.replace(true) {
                let mut log = log.borrow_mut();
                append(&mut log, 10);
                log.sync().unwrap();
                // The header of the next chunk states that the log is durable up to here.
                append(&mut log, 10_000);
            }
            Ok(1)
        };
        let mut report = VerifyReport::default();
        verify_logs(vfs.as_ref(), &[7], &mut report, operations).unwrap();
        assert!(has_grown.get());
        assert_eq!((report.files, report.damage), (1, Vec::new()));
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
