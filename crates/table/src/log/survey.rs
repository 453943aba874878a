//! Walking a write-ahead log to check it, or to tell what is in it.
//!
//! An engine knows what its records mean; how a log is walked, and what is said of it, is the same for
//! all.
//!
//! Source: ours.

use siltstone_engine::{Inspection, Result, VerifyReport};
use siltstone_vfs::{Mode, Vfs};

use super::{LogEnd, LogMode, LogReader, malformed};
use crate::{FileKind, FileNumber};

/// Checks logs that are in use; `operations` counts those of a record, or says what is malformed.
///
/// # Errors
/// Failures to check; damage goes into the report.
pub fn verify_logs(
    vfs: &dyn Vfs,
    numbers: &[u64],
    report: &mut VerifyReport,
    operations: impl Fn(&[u8]) -> std::result::Result<u64, String>,
) -> Result<()> {
    for &number in numbers {
        match vfs.open(&FileKind::Log.name(FileNumber(number)), Mode::Read) {
            // A log whose writes went elsewhere meanwhile is gone, and rightly so.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
            Ok(_) => {
                let mut entries = 0;
                let walked = walk(vfs, number, |_, record| {
                    entries += operations(record)?;
                    Ok(())
                });
                report.note(walked.map(|reader| (reader.valid_bytes(), entries)))?;
            }
        }
    }
    Ok(())
}

/// Tells what is in a log; `describe` puts a record into words, and says how many operations it holds.
///
/// # Errors
/// Corruption; the medium's.
pub fn inspect_log(
    vfs: &dyn Vfs,
    number: u64,
    limit: usize,
    inspection: &mut Inspection,
    describe: impl Fn(&[u8]) -> std::result::Result<(String, u64), String>,
) -> Result<()> {
    inspection.kind = "write-ahead log";
    let mut operations = 0;
    let reader = walk(vfs, number, |position, record| {
        let (described, holds) = describe(record)?;
        operations += holds;
        inspection.item(limit, || format!("{position}: {described}"));
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

fn walk(
    vfs: &dyn Vfs,
    number: u64,
    mut visit: impl FnMut(u64, &[u8]) -> std::result::Result<(), String>,
) -> Result<LogReader> {
    let name = FileKind::Log.name(FileNumber(number));
    let mut reader = LogReader::open(vfs, &name, number, LogMode::Recover)?;
    while let Some(record) = reader.next()? {
        let position = record.position;
        visit(position, record.bytes).map_err(|reason| malformed(number, position, reason))?;
    }
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use super::super::{Link, WalWriter};
    use super::*;
    use siltstone_vfs::Ram;
    use std::sync::Arc;

    #[test]
    fn is_a_log_told_and_what_makes_no_sense_in_it_damage() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let mut log = WalWriter::create(&vfs, 7, Link::default()).unwrap();
        log.append(&[[b"\x01", b"one"], [b"\x01", b"bad"]], &mut Vec::new()).unwrap();
        let vfs = vfs.as_ref();
        let mut inspection = Inspection::default();
        let words = |record: &[u8]| Ok((record.escape_ascii().to_string(), 1));
        inspect_log(vfs, 7, 2, &mut inspection, words).unwrap();
        assert_eq!((inspection.items.len(), inspection.more), (2, 1));
        assert!(inspection.items[1].ends_with("one"), "{:?}", inspection.items);

        let count = |record: &[u8]| match record.ends_with(b"bad") {
            true => Err("bad".to_owned()),
            false => Ok(1),
        };
        let mut report = VerifyReport::default();
        // Log 9 is gone.
        verify_logs(vfs, &[9, 7], &mut report, count).unwrap();
        assert_eq!((report.files, report.damage.len()), (1, 1));
        let mut report = VerifyReport::default();
        verify_logs(vfs, &[7], &mut report, |_| Ok(1)).unwrap();
        assert_eq!((report.entries, report.is_sound()), (3, true));
    }
}
