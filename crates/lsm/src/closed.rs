//! Offline verification: checks the files of a table that is not open, and may not open.
//!
//! ```text
//!   manifest     each table and run that it names; each log that is needed
//!   no manifest  each table, log and blob file that exists: what repair will read
//!   opening      what `open` would report: the manifest, the ends of tables, the chain of logs
//! ```
//!
//! Opening stops at the first damage; this continues. Nothing is changed.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use siltstone_durable::{missing_file, missing_manifest, replay_edits};
use siltstone_engine::{Damage, Error, Purpose, Result, VerifyReport};
use siltstone_table::log::{LogArchive, verify_logs};
use siltstone_table::{FileKind, FileNumber, Manifest, Table, parse_file_name};
use siltstone_vfs::{Mode, PageClaims, Vfs};

use crate::live_range::LiveRange;
use crate::pool;
use crate::recover;
use crate::rowtable::RowTable;
use crate::verify::operations;
use crate::version::{BlobFileId, ENGINE, Edit, FileEntry, L0RunEntry, LogFile};

/// Reads every file that the table on `vfs` needs; each damaged place is reported once. Without
/// damage the table opens and all of it can be read.
///
/// # Errors
/// Failures to check; damage goes into the report.
pub fn verify_closed(vfs: &Arc<dyn Vfs>) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let manifest = match Manifest::exists(vfs.as_ref())? {
        true => Manifest::open(vfs.clone(), ENGINE)
            .and_then(|(manifest, edits)| Ok((manifest.bytes(), replay_edits::<Edit>(&edits)?)))
            .map_err(missing_manifest),
        false => match vfs.list()?.iter().find(|name| is_numbered(name)) {
            Some(name) => Err(Manifest::missing(name)),
            None => return Ok(report),
        },
    };
    let known = manifest.as_ref().ok().map(|(_, edit)| edit.clone());
    report.note(manifest.map(|(bytes, _)| (bytes, 0)))?;
    match &known {
        Some(edit) => {
            named(vfs, edit, &mut report)?;
            logs(vfs, edit.header.first_log.unwrap_or(0), &mut report)?;
            // Last: it finds the first damage, which is known by now, and what only all files show.
            if let Err(error) = recover::check(vfs) {
                let Error::Corruption { file, offset, .. } = &error else { return Err(error) };
                let is_known = |d: &Damage| d.file == *file && d.offset == *offset;
                if !report.damage.iter().any(is_known) {
                    report.note(Err(error))?;
                }
            }
        }
        None => {
            let names = vfs.list()?;
            let numbered = names.iter().filter_map(|name| parse_file_name(name));
            for (kind, number) in numbered.filter(|(kind, _)| kind.is_table()) {
                report.note(table(vfs, kind, number))?;
            }
            for number in numbers(vfs, FileKind::Blob)? {
                report.note(whole_blob_file(vfs, number))?;
            }
            logs(vfs, 0, &mut report)?;
        }
    }
    Ok(report)
}

fn is_numbered(name: &str) -> bool {
    parse_file_name(name).is_some()
}

fn numbers(vfs: &Arc<dyn Vfs>, kind: FileKind) -> Result<BTreeSet<u64>> {
    let names = vfs.list()?;
    let parsed = names.iter().filter_map(|name| parse_file_name(name));
    Ok(parsed.filter(|(is, _)| *is == kind).map(|(_, number)| number.0).collect())
}

/// The tables and runs that the manifest names.
fn named(vfs: &Arc<dyn Vfs>, edit: &Edit, report: &mut VerifyReport) -> Result<()> {
    let cursor = edit.cursor.clone().unwrap_or_default();
    let mut claims = None;
    let logs = Arc::new(LogArchive::disabled(vfs.clone()));
    // Each file with values once, by number.
    let mut checked = BTreeSet::new();
    let mut check_values = |id: BlobFileId, report: &mut VerifyReport| {
        if !checked.insert(id.number) {
            return Ok(());
        }
        let verified = LogFile::open(&logs, id, None).and_then(|log| log.verify());
        report.note(verified.map(|()| (id.bytes, 0)).map_err(missing_file))
    };
    for entry in &edit.added {
        entry.blobs.iter().try_for_each(|used| check_values(used.file, report))?;
        match &entry.run {
            Some(run) if run.pmem.is_some() => {
                report.note(pmem_run(vfs, entry, run, &cursor, &mut claims))?;
                continue;
            }
            Some(L0RunEntry { log: Some((number, bytes)), .. }) => {
                let id = BlobFileId { number: *number, is_log: true, bytes: *bytes };
                check_values(id, report)?;
            }
            _ => {}
        }
        report.note(table(vfs, entry.kind(), FileNumber(entry.number)))?;
    }
    Ok(())
}

/// Verifies a table; returns its bytes and entries.
fn table(vfs: &Arc<dyn Vfs>, kind: FileKind, number: FileNumber) -> Result<(u64, u64)> {
    let name = kind.name(number);
    let open = || Table::open_kind(vfs.open(&name, Mode::Read)?, &name, kind, number, None);
    let table = open().map_err(missing_file)?;
    table.verify(|_| ControlFlow::Continue(()))?;
    Ok((table.meta().bytes, table.meta().entries))
}

/// Verifies a blob file of unknown length; returns its bytes.
fn whole_blob_file(vfs: &Arc<dyn Vfs>, number: u64) -> Result<(u64, u64)> {
    let name = FileKind::Blob.name(FileNumber(number));
    let bytes = vfs.open(&name, Mode::Read)?.len()?;
    let logs = Arc::new(LogArchive::disabled(vfs.clone()));
    let file = LogFile::open(&logs, BlobFileId { number, is_log: false, bytes }, None)?;
    file.verify().map(|()| (bytes, 0))
}

fn pmem_run(
    vfs: &Arc<dyn Vfs>,
    entry: &FileEntry,
    run: &L0RunEntry,
    cursor: &[u8],
    claims: &mut Option<PageClaims>,
) -> Result<(u64, u64)> {
    let Some(handle) = run.pmem else { return Ok((0, 0)) };
    let claims = match claims {
        Some(claims) => claims,
        None => claims.insert(pool::claims(vfs, 0)?),
    };
    let live = LiveRange::new(cursor, &run.inserted_at);
    let run = RowTable::open(claims, handle, entry.number, live)?;
    run.verify(Purpose::Maintenance)?;
    Ok((run.owned_bytes().iter().sum(), run.len() as u64))
}

/// The logs from `first` on that belong to no run.
fn logs(vfs: &Arc<dyn Vfs>, first: u64, report: &mut VerifyReport) -> Result<()> {
    let logs: Vec<_> = numbers(vfs, FileKind::Log)?.range(first..).copied().collect();
    verify_logs(vfs.as_ref(), &logs, report, operations)
}
