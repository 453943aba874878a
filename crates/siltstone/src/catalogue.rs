//! The file `CATALOG`: which tables there are, on which engine, with which options.
//!
//! ```text
//! siltstone-catalogue 1 crc32c=1a2b3c4d\n      version, checksum of all that follows the newline
//! {"tables": {"default": {"engine": "lsm", "options": {…}}}, "passing": ["old"]}
//! ```
//!
//! It is text, so that a person can read it, and is replaced whole: written aside, synced, renamed,
//! directory synced. Version 1 has no `passing`, and is what is written while there is nothing to write in it; a
//! reader refuses any higher version than its own by name. A damaged or missing one is made
//! anew from the directories of the tables (see `repair`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Mode, Vfs};

use crate::db::TABLE_PREFIX;

mod repair;

pub use repair::repair;

const NAME: &str = "CATALOG";
const ASIDE: &str = "CATALOG.new";
const MAGIC: &str = "siltstone-catalogue";
const VERSION: u32 = 2;
/// The one without `passing`.
const WITHOUT_PASSING: u32 = 1;
/// Far above any real catalogue: bounds what a damaged length can make us read.
const MAX_BYTES: u64 = 64 << 20;

/// Which tables there are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// By name.
    pub tables: BTreeMap<String, TableSpec>,
    /// Those that are being made or dropped: what a crash leaves of their directories is removed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub passing: BTreeSet<String>,
}

/// How a table is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSpec {
    /// The engine's name.
    pub engine: String,
    /// The options that differ from the engine's defaults.
    pub options: BTreeMap<String, String>,
}

impl Catalogue {
    /// Whether `media` holds a catalogue, i.e. is a store.
    pub fn exists(vfs: &dyn Vfs) -> Result<bool> {
        vfs.exists(NAME)
    }

    /// Whether a directory of this machine holds what begins as a catalogue does.
    pub(crate) fn is_in(dir: &Path) -> bool {
        let mut begin = [0; MAGIC.len()];
        let file = std::fs::File::open(dir.join(NAME));
        file.is_ok_and(|mut file| file.read_exact(&mut begin).is_ok()) && begin == *MAGIC.as_bytes()
    }

    /// Whether a file of this name is a catalogue.
    pub fn owns(name: &str) -> bool {
        name == NAME
    }

    /// Whether a file of this name is a catalogue that was not renamed to its place.
    pub(crate) fn is_draft(name: &str) -> bool {
        name == ASIDE
    }

    /// Reads the catalogue.
    ///
    /// # Errors
    /// [`Error::Refused`] for a newer version, [`Error::Corruption`] for one that does not hold.
    pub fn read(vfs: &dyn Vfs) -> Result<Self> {
        let file = vfs.open(NAME, Mode::Read)?;
        let len = file.len()?;
        let path = || format!("{}/{NAME}", vfs.name());
        if len > MAX_BYTES {
            return Err(Error::corruption(path(), 0, format!("{len} bytes is too long")));
        }
        let mut bytes = vec![0; len as usize];
        file.read_at(0, &mut bytes, Purpose::Recovery)?;
        Self::parse(&bytes, &path())
    }

    /// Replaces the catalogue, atomically and durably.
    pub fn write(&self, vfs: &dyn Vfs) -> Result<()> {
        if vfs.exists(ASIDE)? {
            vfs.remove(ASIDE)?;
        }
        let file = vfs.create(ASIDE)?;
        file.write_at(0, &self.format(), Purpose::Manifest)?;
        file.sync(Purpose::Manifest)?;
        vfs.rename(ASIDE, NAME)?;
        vfs.sync_dir(Purpose::Manifest)
    }

    /// The tables whose directories are there and which it neither names nor has passing, sorted.
    pub(crate) fn unnamed(&self, vfs: &dyn Vfs) -> Result<Vec<String>> {
        let mut names = vfs.subdirectories()?;
        names.retain_mut(|name| match name.strip_prefix(TABLE_PREFIX) {
            Some(table) => {
                *name = table.to_owned();
                !self.tables.contains_key(name) && !self.passing.contains(name)
            }
            None => false,
        });
        names.sort();
        Ok(names)
    }

    fn format(&self) -> Vec<u8> {
        // A map of strings always has a JSON form.
        let body = serde_json::to_string_pretty(self).expect("strings have a JSON form");
        let crc = crc32c::crc32c(body.as_bytes());
        let version = if self.passing.is_empty() { WITHOUT_PASSING } else { VERSION };
        format!("{MAGIC} {version} crc32c={crc:08x}\n{body}").into_bytes()
    }

    fn parse(bytes: &[u8], path: &str) -> Result<Self> {
        let damaged =
            |offset: usize, reason: String| Error::corruption(path, offset as u64, reason);
        let newline = bytes
            .iter()
            .position(|&b| b == b'\n')
            .ok_or_else(|| damaged(0, "no header line".into()))?;
        let (header, body) = (&bytes[..newline], &bytes[newline + 1..]);
        let words: Vec<_> = std::str::from_utf8(header).unwrap_or_default().split(' ').collect();
        let [MAGIC, version, crc] = words[..] else {
            return Err(damaged(0, format!("does not begin with '{MAGIC}'")));
        };
        match version.parse::<u32>() {
            Ok(WITHOUT_PASSING..=VERSION) => {}
            Ok(newer) if newer > VERSION => {
                return Err(Error::Refused {
                    path: path.to_owned(),
                    reason: format!(
                        "written in format {newer}; this program reads up to format {VERSION}: \
                         use a newer siltstone"
                    ),
                });
            }
            _ => return Err(damaged(0, format!("unknown version '{version}'"))),
        }
        if crc != format!("crc32c={:08x}", crc32c::crc32c(body)) {
            return Err(damaged(newline + 1, "checksum does not match".into()));
        }
        serde_json::from_slice(body).map_err(|e| damaged(newline + 1, e.to_string()))
    }
}

/// Table names: 1 to 64 of `a-z A-Z 0-9 _ -`, so that each is a directory's name everywhere.
///
/// # Errors
/// [`Error::Invalid`] that says so.
pub fn check_name(name: &str) -> Result<()> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if fits {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "'{name}' cannot name a table: use 1 to 64 letters, digits, '_' or '-'"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Catalogue {
        let spec = TableSpec {
            engine: "lsm".into(),
            options: [("memtable".to_owned(), "8MiB".to_owned())].into(),
        };
        Catalogue { tables: [("words".to_owned(), spec)].into(), passing: BTreeSet::new() }
    }

    #[test]
    fn it_reads_back() {
        let mut passing = sample();
        passing.passing.insert("old".to_owned());
        for catalogue in [sample(), passing] {
            assert_eq!(Catalogue::parse(&catalogue.format(), "C").unwrap(), catalogue);
        }
    }

    #[test]
    fn older_programs_read_it_while_no_table_is_passing() {
        let mut catalogue = sample();
        assert!(catalogue.format().starts_with(b"siltstone-catalogue 1 "));
        catalogue.passing.insert("old".to_owned());
        assert!(catalogue.format().starts_with(b"siltstone-catalogue 2 "));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let good = sample().format();
        for at in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[at / 8] ^= 1 << (at % 8);
            assert!(Catalogue::parse(&bad, "C").is_err(), "bit {at}");
        }
        for len in 0..good.len() {
            assert!(Catalogue::parse(&good[..len], "C").is_err(), "cut to {len}");
        }
    }

    #[test]
    fn a_newer_version_is_refused_by_name() {
        let newer =
            String::from_utf8(sample().format()).unwrap().replace("catalogue 1", "catalogue 9");
        let error = Catalogue::parse(newer.as_bytes(), "C").unwrap_err();
        assert!(matches!(&error, Error::Refused { reason, .. } if reason.contains("format 9")));
    }
}
