//! The second medium: whose it is, where it is, and how what lies there goes with its table.
//!
//! ```text
//!   on the second medium   OWNER  := id:u64  crc32c:u32                     LE: the table that it belongs to
//!   on the table's own     UPPER  := id:u64  path:bytes  crc32c:u32         LE: the directory where it is
//! ```
//!
//! What a table does not name it removes from its media, so a second medium belongs to one table alone,
//! and says to which. The id is the seed of the table's hashes.
//!
//! A table is dropped by removing its own directory, which is all that the store above knows. So the table's
//! directory says where else files are, from before there are any; and whoever drops it has
//! [`remove_elsewhere`] follow that first:
//!
//! ```text
//!   making   manifest ─ UPPER, durable ─ OWNER, durable ─ files
//!   drop     the store's catalogue ─ files ─ durable ─ OWNER ─ durable ─ the table's directory
//! ```
//!
//! Cut off anywhere, the drop is gone through again at the store's next opening, as for any directory that its
//! catalogue does not name. While OWNER is there so is all that names it.
//!
//! Upgrade: UPPER is written at every opening if it says something else, so a table of before it had any gets one.
//!
//! Invariant: nothing is removed from a directory that is not this table's.
//!
//! Source: LSM-trie paper, section 3.2.1, has two devices; the rest is ours.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_table::aside;
use siltstone_vfs::{LockGuard, Metered, Mode, Vfs};

use crate::files::{Homes, Kind};

const OWNER: &str = "OWNER";
const UPPER: &str = "UPPER";
/// A path is shorter: bounds what damage can make us read.
const MAX_BYTES: u64 = 64 << 10;

/// The second medium of a table on `main`, in a directory of this machine, counted, and the lock that keeps
/// others out.
///
/// # Errors
/// `Locked`; the medium's.
pub(crate) fn open(main: &dyn Vfs, directory: &Path) -> Result<(Arc<dyn Vfs>, LockGuard)> {
    let upper = main.open_dir(directory)?;
    let lock = upper.lock("LOCK")?;
    Ok((Arc::new(Metered::new(upper)), lock))
}

/// Checks that the second medium is that of the table `id`, or makes it so if it is nobody's, and notes on the
/// table's own that it is in `directory`. Until the table `was_closed` once, what is read there may be in
/// the page cache only, because the sync that made it failed: it is made again.
///
/// # Errors
/// `Refused` if it is another's; the media's.
pub(crate) fn own(
    homes: &Homes,
    directory: Option<&Path>,
    id: u64,
    was_closed: bool,
) -> Result<()> {
    let Some((vfs, _)) = &homes.upper else { return Ok(()) };
    let owner = sealed(id, b"");
    let refused = |reason: &str| Err(Error::Refused { path: vfs.name(), reason: reason.into() });
    let is_owned = match read(vfs.as_ref(), OWNER)? {
        Some(found) if found == owner => true,
        Some(found) if found.len() == owner.len() => {
            return refused("it holds the upper levels of another table; give that of this one");
        }
        Some(_) => {
            return refused("OWNER is not that of a second medium; give another directory");
        }
        None if vfs.list()?.iter().any(|name| Kind::parse(name).is_some()) => {
            return refused(
                "there are files of a table, but OWNER is missing; give another directory",
            );
        }
        None => false,
    };
    if let Some(directory) = directory {
        // Elsewhere it may be another one, seen from where a later process stands.
        let path = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
        let upper = sealed(id, path.as_os_str().as_encoded_bytes());
        if !was_closed || read(homes.main.as_ref(), UPPER)?.as_ref() != Some(&upper) {
            replace(homes.main.as_ref(), UPPER, &upper)?;
        }
    }
    if was_closed && is_owned { Ok(()) } else { replace(vfs.as_ref(), OWNER, &owner) }
}

/// Makes the name of the owner anew if it is damaged or missing, and the files there are those of
/// the table `id`: `are_ours` says whether any that its manifest names holds. A directory that
/// names another owner is left alone.
///
/// # Errors
/// The media's.
pub(crate) fn mend_owner(homes: &Homes, id: u64, are_ours: bool) -> Result<bool> {
    let Some((vfs, _)) = &homes.upper else { return Ok(false) };
    let found = read(vfs.as_ref(), OWNER)?;
    let names_one = found.as_deref().is_some_and(|found| {
        found.split_last_chunk().is_some_and(|(body, crc)| {
            body.len() == 8 && crc32c::crc32c(body) == u32::from_le_bytes(*crc)
        })
    });
    if names_one || !are_ours {
        return Ok(false);
    }
    if found.is_some() {
        aside::keep(vfs.as_ref(), OWNER)?;
    }
    replace(vfs.as_ref(), OWNER, &sealed(id, b""))?;
    Ok(true)
}

/// The directory in which the table on `media` has its second medium, if it has one: what option `upper` was.
///
/// # Errors
/// The medium's.
pub fn upper_of(vfs: &dyn Vfs) -> Result<Option<PathBuf>> {
    Ok(read(vfs, UPPER)?.as_deref().and_then(unsealed).map(|(_, directory)| directory))
}

/// Removes what the table on `media` has on a second medium, durably; there may be none. The table is
/// closed and about to be removed itself. After a crash it may be called again. The directory stays, empty
/// but for its lock.
///
/// # Errors
/// `Locked` if someone has that directory open; the media's.
pub fn remove_elsewhere(vfs: &dyn Vfs) -> Result<()> {
    let Some((id, directory)) = read(vfs, UPPER)?.as_deref().and_then(unsealed) else {
        return Ok(());
    };
    if !directory.is_dir() {
        return Ok(());
    }
    let (upper, _lock) = open(vfs, &directory)?;
    clear(upper.as_ref(), id)
}

/// Removes all files of the table `id` from its second medium, the name of their owner last.
fn clear(upper: &dyn Vfs, id: u64) -> Result<()> {
    if read(upper, OWNER)? != Some(sealed(id, b"")) {
        return Ok(());
    }
    for name in upper.list()?.iter().filter(|name| Kind::parse(name).is_some()) {
        upper.remove(name)?;
    }
    upper.sync_dir(Purpose::Maintenance)?;
    upper.remove(OWNER)?;
    upper.sync_dir(Purpose::Maintenance)
}

fn sealed(id: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = [&id.to_le_bytes()[..], bytes].concat();
    out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    out
}

/// `None`: damaged, or not of this machine. What it named can't be found then, and stays where it is.
fn unsealed(bytes: &[u8]) -> Option<(u64, PathBuf)> {
    let (body, crc) = bytes.split_last_chunk()?;
    let (id, path) = body.split_first_chunk()?;
    let path = std::str::from_utf8(path).ok()?;
    (crc32c::crc32c(body) == u32::from_le_bytes(*crc))
        .then(|| (u64::from_le_bytes(*id), path.into()))
}

/// The whole of a file; `None`: there is none.
fn read(vfs: &dyn Vfs, name: &str) -> Result<Option<Vec<u8>>> {
    let file = match vfs.open(name, Mode::Read) {
        Err(error) if error.is_not_found() => return Ok(None),
        file => file?,
    };
    let mut bytes = vec![0; file.len()?.min(MAX_BYTES) as usize];
    file.read_at(0, &mut bytes, Purpose::Recovery)?;
    Ok(Some(bytes))
}

/// Writes a file aside and puts it in the place of another, durably.
fn replace(vfs: &dyn Vfs, name: &str, bytes: &[u8]) -> Result<()> {
    let aside = format!("{name}.tmp");
    // One may be left of an attempt that failed.
    match vfs.remove(&aside) {
        Err(error) if !error.is_not_found() => return Err(error),
        _ => {}
    }
    let file = vfs.create(&aside)?;
    file.write_at(0, bytes, Purpose::Recovery)?;
    file.sync(Purpose::Recovery)?;
    vfs.rename(&aside, name)?;
    vfs.sync_dir(Purpose::Recovery)
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_faults::{Faulty, Survival};
    use siltstone_vfs::Ram;

    fn homes(upper: &Faulty) -> Homes {
        Homes { main: Arc::new(Ram::new()), upper: Some((Arc::new(upper.clone()), 2)) }
    }

    fn file(vfs: &dyn Vfs, number: u64) {
        let file = vfs.create(&Kind::HTable.name(number)).unwrap();
        file.sync(Purpose::Flush).unwrap();
        vfs.sync_dir(Purpose::Flush).unwrap();
    }

    #[test]
    fn is_a_medium_emptied_for_its_owner_alone() {
        let upper = Faulty::new(1);
        own(&homes(&upper), None, 7, false).unwrap();
        assert!(matches!(own(&homes(&upper), None, 8, true), Err(Error::Refused { .. })));
        file(&upper, 3);
        clear(&upper, 8).unwrap();
        assert!(upper.exists(&Kind::HTable.name(3)).unwrap());
        clear(&upper, 7).unwrap();
        assert_eq!(upper.list().unwrap(), Vec::<String>::new());
        own(&homes(&upper), None, 8, false).unwrap();
    }

    #[test]
    fn does_a_power_cut_while_it_is_emptied_leave_it_to_its_owner() {
        let filled = || {
            let upper = Faulty::new(2);
            own(&homes(&upper), None, 7, false).unwrap();
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
                // Either it is all gone, or its owner is named and can do it again.
                clear(&left, 7).unwrap();
                assert_eq!(left.list().unwrap(), Vec::<String>::new(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn is_no_damaged_note_followed() {
        let good = sealed(5, b"/somewhere");
        assert_eq!(unsealed(&good), Some((5, "/somewhere".into())));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            assert_eq!(unsealed(&bad), None);
            assert_eq!(unsealed(&good[..at]), None);
        }
    }

    /// Else a drop of the table would leave what is on the second medium, and nothing would tell of it.
    #[test]
    fn is_it_durable_where_the_second_medium_is_before_that_has_an_owner() {
        let directory = Path::new("/upper/levels");
        let mut cut = 0;
        loop {
            let (main, upper) = (Faulty::new(1), Faulty::new(2));
            let both = |main: &Faulty| Homes { main: Arc::new(main.clone()), ..homes(&upper) };
            main.cut_power_at(cut);
            let done = own(&both(&main), Some(directory), 7, false);
            if upper.exists(OWNER).unwrap() {
                let left = main.survivors_as(Survival::LoseAll, 1);
                assert_eq!(upper_of(&left).unwrap().as_deref(), Some(directory), "cut {cut}");
            }
            if done.is_ok() {
                break;
            }
            // What the dead process wrote of it can be read, and is made durable all the same.
            let heir = main.after_death(cut);
            own(&both(&heir), Some(directory), 7, false).unwrap();
            let left = heir.survivors_as(Survival::LoseAll, 1);
            assert_eq!(upper_of(&left).unwrap().as_deref(), Some(directory), "after {cut}");
            // And another place is told of, though the table was closed.
            own(&both(&heir), Some(Path::new("/moved")), 7, true).unwrap();
            let left = heir.survivors_as(Survival::LoseAll, 1);
            assert_eq!(upper_of(&left).unwrap().as_deref(), Some(Path::new("/moved")));
            cut += 1;
        }
        assert!(cut > 3, "{cut}");
    }
}
