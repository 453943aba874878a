//! Quarantine of damaged files during a repair.
//!
//! ```text
//!   link_quarantined     x ──link──▶ x and x.damaged    made durable before the new manifest
//!   the new manifest does not name x, so the next open may remove it
//!   finish_quarantine    x.damaged                      x.damaged-2, … if another x is there
//! ```
//!
//! A power cut loses neither: before the new manifest, x is as it was; after it, x.damaged exists.
//! On a file system without hard links x is renamed last, so a power cut just before that leaves x
//! to the next open.
//!
//! Invariant: a quarantined file is never replaced. A repeated repair quarantines the same file
//! only once.

use siltstone_engine::{Purpose, Result};
use siltstone_vfs::{Mode, Vfs, is_zero};

/// Files are compared in chunks of this size.
const CHUNK_BYTES: u64 = 1 << 20;

/// Links a damaged file to its quarantine name. Durable once the directory is synced.
///
/// # Errors
/// I/O errors.
pub fn link_quarantined(vfs: &dyn Vfs, name: &str) -> Result<()> {
    let (target, is_quarantined) = quarantine_name(vfs, name)?;
    if is_quarantined { Ok(()) } else { vfs.link(name, vfs, &target).map(drop) }
}

/// Removes the original name of a file, quarantining it first if [`link_quarantined`] has not.
///
/// # Errors
/// I/O errors.
pub fn finish_quarantine(vfs: &dyn Vfs, name: &str) -> Result<()> {
    let (target, is_quarantined) = quarantine_name(vfs, name)?;
    if is_quarantined { vfs.remove(name) } else { vfs.rename(name, &target) }
}

/// Copies the first `len` bytes of a partly damaged file whose other parts stay in use. Durable
/// once the directory is synced.
///
/// # Errors
/// I/O errors.
pub fn copy_quarantined(vfs: &dyn Vfs, name: &str, len: u64) -> Result<()> {
    let (target, is_quarantined) = quarantine_name_of(vfs, name, len)?;
    if is_quarantined {
        return Ok(());
    }
    let (from, to) = (vfs.open(name, Mode::Read)?, vfs.create(&target)?);
    to.set_len(len)?;
    for at in (0..len).step_by(CHUNK_BYTES as usize) {
        let mut bytes = vec![0; CHUNK_BYTES.min(len - at) as usize];
        from.read_lossy_at(at, &mut bytes, Purpose::Maintenance)?;
        if !is_zero(&bytes) {
            to.write_at(at, &bytes, Purpose::Maintenance)?;
        }
    }
    to.sync(Purpose::Maintenance)
}

/// The quarantine name of a damaged file, and whether the file is already there.
fn quarantine_name(vfs: &dyn Vfs, name: &str) -> Result<(String, bool)> {
    quarantine_name_of(vfs, name, vfs.open(name, Mode::Read)?.len()?)
}

/// The same for the first `len` bytes of the file.
fn quarantine_name_of(vfs: &dyn Vfs, name: &str, len: u64) -> Result<(String, bool)> {
    let mut target = format!("{name}.damaged");
    for number in 2.. {
        if !vfs.exists(&target)? {
            break;
        }
        if are_equal(vfs, name, &target, len)? {
            return Ok((target, true));
        }
        target = format!("{name}.damaged-{number}");
    }
    Ok((target, false))
}

fn are_equal(vfs: &dyn Vfs, one: &str, other: &str, len: u64) -> Result<bool> {
    let (one, other) = (vfs.open(one, Mode::Read)?, vfs.open(other, Mode::Read)?);
    if other.len()? != len {
        return Ok(false);
    }
    for at in (0..len).step_by(CHUNK_BYTES as usize) {
        let bytes = CHUNK_BYTES.min(len - at) as usize;
        let (mut a, mut b) = (vec![0; bytes], vec![0; bytes]);
        one.read_lossy_at(at, &mut a, Purpose::Maintenance)?;
        other.read_lossy_at(at, &mut b, Purpose::Maintenance)?;
        if a != b {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use siltstone_vfs::Ram;

    use super::*;

    #[test]
    fn quarantined_file_is_not_replaced() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        for content in [b"one", b"two", b"one"] {
            vfs.create("x").unwrap().write_at(0, content, Purpose::Maintenance).unwrap();
            link_quarantined(vfs.as_ref(), "x").unwrap();
            // An interrupted repair is run again.
            link_quarantined(vfs.as_ref(), "x").unwrap();
            finish_quarantine(vfs.as_ref(), "x").unwrap();
        }
        assert_eq!(vfs.list().unwrap(), ["x.damaged", "x.damaged-2"]);
    }
}
