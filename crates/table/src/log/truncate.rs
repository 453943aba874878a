//! Rewrites a recovered write-ahead log up to a given end, so that the rest is durable and nothing
//! after the end can reappear.
//!
//! ```text
//!   7 ──▶ 9 ──▶ 12        keep up to byte 800 of 9
//!               └ removed, newest first, each durably
//!         └ bytes 0..800 copied to 9.rewrite, synced, renamed to 9
//!   └ copied whole
//! ```
//!
//! A recovered log may have been written by a process whose sync had failed: then its bytes can be
//! read from the page cache, but are not durable, and no later sync of the file makes them so. A
//! synced copy is durable.
//!
//! Invariants:
//! - At any moment the directory has a prefix of the log, which contains everything before the end.
//!   An interrupted call may be repeated.
//! - No segment is left whose link states a greater length of its predecessor than it has now.

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Mode, Vfs};

use super::wal::SegmentLink;
use crate::{FileKind, FileNumber};

/// The suffix of a segment's copy.
const COPY_SUFFIX: &str = ".rewrite";
/// Bytes that are copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// Rewrites the segments `logs`, each up to the given length, oldest first. First removes the newer
/// segments `gone`, newest first.
///
/// # Errors
/// I/O errors. The call may be repeated.
pub fn rewrite_logs(vfs: &dyn Vfs, logs: &[SegmentLink], gone: &[u64]) -> Result<()> {
    for &number in gone.iter().rev() {
        vfs.remove(&FileKind::Log.name(FileNumber(number)))?;
        vfs.sync_dir(Purpose::Recovery)?;
    }
    logs.iter().try_for_each(|log| rewrite(vfs, *log))
}

/// Removes copies that an interrupted [`rewrite_logs`] has left.
///
/// # Errors
/// I/O errors.
pub fn remove_copies(vfs: &dyn Vfs) -> Result<()> {
    let names = vfs.list()?;
    names.iter().filter(|name| name.ends_with(COPY_SUFFIX)).try_for_each(|name| vfs.remove(name))
}

fn rewrite(vfs: &dyn Vfs, log: SegmentLink) -> Result<()> {
    let name = FileKind::Log.name(FileNumber(log.number));
    let copy_name = format!("{name}{COPY_SUFFIX}");
    let source = vfs.open(&name, Mode::Read)?;
    let len = source.len()?;
    if len < log.bytes {
        let reason = format!("it has {len} bytes, and had {} when it was read", log.bytes);
        return Err(Error::corruption(name, len, reason));
    }
    let copy = vfs.create(&copy_name)?;
    let mut buffer = vec![0; COPY_BYTES.min(log.bytes) as usize];
    let mut at = 0;
    while at < log.bytes {
        let bytes = &mut buffer[..COPY_BYTES.min(log.bytes - at) as usize];
        source.read_at(at, bytes, Purpose::Recovery)?;
        copy.write_at(at, bytes, Purpose::Recovery)?;
        at += bytes.len() as u64;
    }
    copy.sync(Purpose::Recovery)?;
    drop((source, copy));
    vfs.rename(&copy_name, &name)?;
    vfs.sync_dir(Purpose::Recovery)
}
