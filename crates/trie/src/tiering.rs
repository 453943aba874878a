//! Storage tiers: the fast tier of a table, its owner, and its removal with the table.
//!
//! ```text
//!   on the fast tier   OWNER := id:u64  crc32c:u32              LE: the table that owns it
//!   on the main tier   UPPER := id:u64  path:bytes  crc32c:u32  LE: directory of the fast tier
//! ```
//!
//! A table removes unknown files from its tiers, so a fast tier belongs to one table and records
//! its id, the seed of the table's hashes.
//!
//! A table is dropped by removing its main directory, the only one that the store knows. So the
//! main directory records the fast tier before there are any files in it, and a drop first calls
//! [`remove_fast_tier`]:
//!
//! ```text
//!   create   manifest ─ UPPER, durable ─ OWNER, durable ─ files
//!   drop     the store's catalogue ─ files ─ durable ─ OWNER ─ durable ─ the main directory
//! ```
//!
//! An interrupted drop is repeated at the next open of the store, as for any directory that its
//! catalogue does not name. As long as OWNER exists, so does everything that refers to it.
//!
//! UPPER is rewritten at every open if it differs, so tables of older versions get one.
//!
//! Invariant: nothing is removed from a directory that another table owns.
//!
//! Source: LSM-trie paper, section 3.2.1 (two devices).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_table::quarantine;
use siltstone_vfs::{LockGuard, MeteredVfs, Mode, Vfs};

use crate::files::{Kind, StorageTiers};

const OWNER: &str = "OWNER";
const UPPER: &str = "UPPER";
/// The maximum size of these files; limits what corrupt ones can make a reader allocate.
const MAX_BYTES: u64 = 64 << 10;

/// Opens the fast tier of a table on `main`, in a local directory, with counters and its lock.
///
/// # Errors
/// `Locked`; errors of the file system.
pub(crate) fn open(main: &dyn Vfs, directory: &Path) -> Result<(Arc<dyn Vfs>, LockGuard)> {
    let fast = main.open_dir(directory)?;
    let lock = fast.lock("LOCK")?;
    Ok((Arc::new(MeteredVfs::new(fast)), lock))
}

/// Checks that the fast tier belongs to the table `id`, or claims it if it has no owner, and
/// records `directory` on the main tier. Until the table was closed once (`was_closed`), both files
/// are rewritten, because after a failed sync they may be in the page cache only.
///
/// # Errors
/// `Refused` if another table owns it; errors of the file system.
pub(crate) fn claim(
    tiers: &StorageTiers,
    directory: Option<&Path>,
    id: u64,
    was_closed: bool,
) -> Result<()> {
    let Some((vfs, _)) = &tiers.fast else { return Ok(()) };
    let owner = seal(id, b"");
    let refuse = |reason: &str| Err(Error::Refused { path: vfs.name(), reason: reason.into() });
    let is_owned = match read(vfs.as_ref(), OWNER)? {
        Some(found) if found == owner => true,
        Some(found) if found.len() == owner.len() => {
            return refuse("it holds the upper levels of another table; give that of this one");
        }
        Some(_) => {
            return refuse("OWNER is not that of a fast tier; give another directory");
        }
        None if vfs.list()?.iter().any(|name| Kind::parse(name).is_some()) => {
            return refuse(
                "there are files of a table, but OWNER is missing; give another directory",
            );
        }
        None => false,
    };
    if let Some(directory) = directory {
        // An absolute path, because a later process may have another working directory.
        let path = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
        let upper = seal(id, path.as_os_str().as_encoded_bytes());
        if !was_closed || read(tiers.main.as_ref(), UPPER)?.as_ref() != Some(&upper) {
            replace(tiers.main.as_ref(), UPPER, &upper)?;
        }
    }
    if was_closed && is_owned { Ok(()) } else { replace(vfs.as_ref(), OWNER, &owner) }
}

/// Rewrites OWNER if it is damaged or missing and the files are those of the table `id`: `are_ours`
/// is whether any file that its manifest names is valid. A valid OWNER of another table is kept.
/// Returns whether it was rewritten.
///
/// # Errors
/// Those of the file system.
pub(crate) fn repair_owner(tiers: &StorageTiers, id: u64, are_ours: bool) -> Result<bool> {
    let Some((vfs, _)) = &tiers.fast else { return Ok(false) };
    let found = read(vfs.as_ref(), OWNER)?;
    let has_valid_owner = found.as_deref().is_some_and(|found| {
        found.split_last_chunk().is_some_and(|(body, crc)| {
            body.len() == 8 && crc32c::crc32c(body) == u32::from_le_bytes(*crc)
        })
    });
    if has_valid_owner || !are_ours {
        return Ok(false);
    }
    if found.is_some() {
        quarantine::link_quarantined(vfs.as_ref(), OWNER)?;
    }
    replace(vfs.as_ref(), OWNER, &seal(id, b""))?;
    Ok(true)
}

/// The directory of the fast tier of the table in `vfs`, if it has one: the value of `fast_dir`.
///
/// # Errors
/// Those of the file system.
pub fn fast_tier_dir(vfs: &dyn Vfs) -> Result<Option<PathBuf>> {
    Ok(read(vfs, UPPER)?.as_deref().and_then(unseal).map(|(_, directory)| directory))
}

/// Durably removes the files of the table in `vfs` from its fast tier, if it has one. The table
/// must be closed and is removed next. Can be repeated after a crash. The directory remains, with
/// its lock.
///
/// # Errors
/// `Locked` if the directory is open; errors of the file system.
pub fn remove_fast_tier(vfs: &dyn Vfs) -> Result<()> {
    let Some((id, directory)) = read(vfs, UPPER)?.as_deref().and_then(unseal) else {
        return Ok(());
    };
    if !directory.is_dir() {
        return Ok(());
    }
    let (upper, _lock) = open(vfs, &directory)?;
    clear(upper.as_ref(), id)
}

/// Removes all files of the table `id` from its fast tier, OWNER last.
fn clear(upper: &dyn Vfs, id: u64) -> Result<()> {
    if read(upper, OWNER)? != Some(seal(id, b"")) {
        return Ok(());
    }
    for name in upper.list()?.iter().filter(|name| Kind::parse(name).is_some()) {
        upper.remove(name)?;
    }
    upper.sync_dir(Purpose::Maintenance)?;
    upper.remove(OWNER)?;
    upper.sync_dir(Purpose::Maintenance)
}

/// The content of OWNER or UPPER: an id and further bytes, with their checksum.
fn seal(id: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = [&id.to_le_bytes()[..], bytes].concat();
    out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    out
}

/// The id and the directory of UPPER; `None` if it is damaged or the path is not UTF-8. The files
/// in that directory then stay when the table is dropped.
fn unseal(bytes: &[u8]) -> Option<(u64, PathBuf)> {
    let (body, crc) = bytes.split_last_chunk()?;
    let (id, path) = body.split_first_chunk()?;
    let path = std::str::from_utf8(path).ok()?;
    (crc32c::crc32c(body) == u32::from_le_bytes(*crc))
        .then(|| (u64::from_le_bytes(*id), path.into()))
}

/// The content of a file; `None` if it does not exist.
fn read(vfs: &dyn Vfs, name: &str) -> Result<Option<Vec<u8>>> {
    let file = match vfs.open(name, Mode::Read) {
        Err(error) if error.is_not_found() => return Ok(None),
        file => file?,
    };
    let mut bytes = vec![0; file.len()?.min(MAX_BYTES) as usize];
    file.read_at(0, &mut bytes, Purpose::Recovery)?;
    Ok(Some(bytes))
}

/// Replaces a file durably, by writing another one and renaming it.
fn replace(vfs: &dyn Vfs, name: &str, bytes: &[u8]) -> Result<()> {
    let temporary = format!("{name}.tmp");
    // A failed attempt may have left one.
    match vfs.remove(&temporary) {
        Err(error) if !error.is_not_found() => return Err(error),
        _ => {}
    }
    let file = vfs.create(&temporary)?;
    file.write_at(0, bytes, Purpose::Recovery)?;
    file.sync(Purpose::Recovery)?;
    vfs.rename(&temporary, name)?;
    vfs.sync_dir(Purpose::Recovery)
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_faults::{FaultyVfs, Survival};
    use siltstone_vfs::Ram;

    fn tiers(upper: &FaultyVfs) -> StorageTiers {
        StorageTiers { main: Arc::new(Ram::new()), fast: Some((Arc::new(upper.clone()), 2)) }
    }

    fn file(vfs: &dyn Vfs, number: u64) {
        let file = vfs.create(&Kind::HTable.name(number)).unwrap();
        file.sync(Purpose::Flush).unwrap();
        vfs.sync_dir(Purpose::Flush).unwrap();
    }

    #[test]
    fn tier_is_cleared_for_its_owner_only() {
        let upper = FaultyVfs::new(1);
        claim(&tiers(&upper), None, 7, false).unwrap();
        assert!(matches!(claim(&tiers(&upper), None, 8, true), Err(Error::Refused { .. })));
        file(&upper, 3);
        clear(&upper, 8).unwrap();
        assert!(upper.exists(&Kind::HTable.name(3)).unwrap());
        clear(&upper, 7).unwrap();
        assert_eq!(upper.list().unwrap(), Vec::<String>::new());
        claim(&tiers(&upper), None, 8, false).unwrap();
    }

    #[test]
    fn power_cut_during_a_clear_leaves_the_tier_to_its_owner() {
        let filled = || {
            let upper = FaultyVfs::new(2);
            claim(&tiers(&upper), None, 7, false).unwrap();
            (0..6).for_each(|number| file(&upper, number));
            upper
        };
        let before = filled().operations();
        let upper = filled();
        clear(&upper, 7).unwrap();
        for cut in before..upper.operations() {
            let upper = filled();
            upper.cut_power_at(cut);
            assert!(clear(&upper, 7).is_err() || upper.power_is_off());
            for seed in 0..20 {
                let left = upper.survivors(seed);
                // Either everything is removed, or the owner can repeat the clear.
                clear(&left, 7).unwrap();
                assert_eq!(left.list().unwrap(), Vec::<String>::new(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn damaged_path_is_ignored() {
        let good = seal(5, b"/somewhere");
        assert_eq!(unseal(&good), Some((5, "/somewhere".into())));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            assert_eq!(unseal(&bad), None);
            assert_eq!(unseal(&good[..at]), None);
        }
    }

    /// Otherwise a drop of the table would leave files on a tier that nothing refers to.
    #[test]
    fn path_is_durable_before_the_tier_has_an_owner() {
        let directory = Path::new("/upper/levels");
        let mut cut = 0;
        loop {
            let (main, upper) = (FaultyVfs::new(1), FaultyVfs::new(2));
            let both =
                |main: &FaultyVfs| StorageTiers { main: Arc::new(main.clone()), ..tiers(&upper) };
            main.cut_power_at(cut);
            let done = claim(&both(&main), Some(directory), 7, false);
            if upper.exists(OWNER).unwrap() {
                let left = main.survivors_as(Survival::LoseAll, 1);
                assert_eq!(fast_tier_dir(&left).unwrap().as_deref(), Some(directory), "cut {cut}");
            }
            if done.is_ok() {
                break;
            }
            // The files of the crashed process are readable, and are made durable again.
            let restarted = main.after_crash(cut);
            claim(&both(&restarted), Some(directory), 7, false).unwrap();
            let left = restarted.survivors_as(Survival::LoseAll, 1);
            assert_eq!(fast_tier_dir(&left).unwrap().as_deref(), Some(directory), "after {cut}");
            // A new path is recorded, though the table was closed.
            claim(&both(&restarted), Some(Path::new("/moved")), 7, true).unwrap();
            let left = restarted.survivors_as(Survival::LoseAll, 1);
            assert_eq!(fast_tier_dir(&left).unwrap().as_deref(), Some(Path::new("/moved")));
            cut += 1;
        }
        assert!(cut > 3, "{cut}");
    }
}
