//! Damaged files that a repair keeps.
//!
//! ```text
//!   keep        x ──link──▶ x and x.damaged      to be made durable before the new manifest
//!   the manifest does without x: an opening may remove it
//!   leave       x.damaged                        x.damaged-2, … if another x was kept before
//! ```
//!
//! So a power cut takes neither: before the manifest x is what there was, and after it x.damaged. On a medium that
//! cannot link, x changes its name last of all, and a cut just before that leaves it to the next opening.
//!
//! Invariant: no file that was kept before is replaced. A repair that is run again keeps the same
//! file once.

use siltstone_engine::{Purpose, Result};
use siltstone_vfs::{Mode, Vfs};

/// Files are compared by pieces of so many bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// Gives the file its second name. Durable with the directory.
///
/// # Errors
/// The medium's.
pub fn keep(vfs: &dyn Vfs, name: &str) -> Result<()> {
    let (aside, is_kept) = aside(vfs, name)?;
    if is_kept { Ok(()) } else { vfs.link(name, vfs, &aside).map(drop) }
}

/// Takes the first name from a file, whether it was [`kept`](keep) or is to be kept now.
///
/// # Errors
/// The medium's.
pub fn leave(vfs: &dyn Vfs, name: &str) -> Result<()> {
    let (aside, is_kept) = aside(vfs, name)?;
    if is_kept { vfs.remove(name) } else { vfs.rename(name, &aside) }
}

/// Copies the first `len` bytes of a file that is damaged in part and still in use in its other
/// parts. Durable with the directory.
///
/// # Errors
/// The medium's.
pub fn copy(vfs: &dyn Vfs, name: &str, len: u64) -> Result<()> {
    let (aside, is_kept) = aside_of(vfs, name, len)?;
    if is_kept {
        return Ok(());
    }
    let (from, to) = (vfs.open(name, Mode::Read)?, vfs.create(&aside)?);
    to.set_len(len)?;
    for at in (0..len).step_by(PIECE_BYTES as usize) {
        let mut bytes = vec![0; PIECE_BYTES.min(len - at) as usize];
        from.read_at(at, &mut bytes, Purpose::Maintenance)?;
        if bytes.iter().any(|&byte| byte != 0) {
            to.write_at(at, &bytes, Purpose::Maintenance)?;
        }
    }
    to.sync(Purpose::Maintenance)
}

/// The name under which a damaged file is kept, and whether it is there under it.
fn aside(vfs: &dyn Vfs, name: &str) -> Result<(String, bool)> {
    aside_of(vfs, name, vfs.open(name, Mode::Read)?.len()?)
}

/// The same for the first `len` bytes of the file.
fn aside_of(vfs: &dyn Vfs, name: &str, len: u64) -> Result<(String, bool)> {
    let mut aside = format!("{name}.damaged");
    for number in 2.. {
        if !vfs.exists(&aside)? {
            break;
        }
        if are_equal(vfs, name, &aside, len)? {
            return Ok((aside, true));
        }
        aside = format!("{name}.damaged-{number}");
    }
    Ok((aside, false))
}

fn are_equal(vfs: &dyn Vfs, one: &str, other: &str, len: u64) -> Result<bool> {
    let (one, other) = (vfs.open(one, Mode::Read)?, vfs.open(other, Mode::Read)?);
    if other.len()? != len {
        return Ok(false);
    }
    for at in (0..len).step_by(PIECE_BYTES as usize) {
        let bytes = PIECE_BYTES.min(len - at) as usize;
        let (mut a, mut b) = (vec![0; bytes], vec![0; bytes]);
        one.read_at(at, &mut a, Purpose::Maintenance)?;
        other.read_at(at, &mut b, Purpose::Maintenance)?;
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
    fn a_file_that_was_kept_before_is_not_replaced() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        for content in [b"one", b"two", b"one"] {
            vfs.create("x").unwrap().write_at(0, content, Purpose::Maintenance).unwrap();
            keep(vfs.as_ref(), "x").unwrap();
            // A repair that was cut off is run again.
            keep(vfs.as_ref(), "x").unwrap();
            leave(vfs.as_ref(), "x").unwrap();
        }
        assert_eq!(vfs.list().unwrap(), ["x.damaged", "x.damaged-2"]);
    }
}
