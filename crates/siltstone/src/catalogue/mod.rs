//! The file `CATALOG`: the tables with their engines and options.
//!
//! ```text
//! siltstone-catalogue 1 crc32c=1a2b3c4d\n      version, checksum of everything after the newline
//! {"tables": {"default": {"engine": "lsm", "options": {…}}}, "pending": ["old"],
//!  "ids": {"default": 7}, "next_id": 8}
//! ```
//!
//! The file is text, so that people can read it, and is replaced atomically: written as a draft,
//! synced, renamed, directory synced. In the file the list of pending tables is called `pending`.
//! Version 1 has no such list, and is written while no table is pending. Version 3 adds `ids`, the
//! tables that have taken part in batches over several tables, and is written once there are any.
//! Version 5 adds `places`, the tables that servers show in the place of others, and is written
//! while there are any. Version 6 adds `directories`, the tables whose directory is not the one of
//! their name since they have moved to another engine, and is written while there are any. A
//! reader refuses versions above its own. Version 4 is that of an encrypted
//! store; the text behind it is then the header of an encrypted file. `repair` rebuilds a damaged
//! or missing catalogue from the table directories.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Mode, Vfs};

use crate::names::{CATALOGUE as NAME, CATALOGUE_MAGIC as MAGIC, TABLE_PREFIX, spare_of};

mod json;
mod json_text;
mod repair;

pub use repair::repair;
pub(crate) use repair::repair_with;

const DRAFT_NAME: &str = "CATALOG.new";
const VERSION: u32 = 6;
/// The version in the header of an encrypted catalogue, which is read before this text.
const VERSION_ENCRYPTED: u32 = 4;
/// The version without directories.
const VERSION_WITHOUT_DIRECTORIES: u32 = 5;
/// The version without places.
const VERSION_WITHOUT_PLACES: u32 = 3;
/// The version without identities of tables.
const VERSION_WITHOUT_IDS: u32 = 2;
/// The version without pending tables.
const VERSION_WITHOUT_PENDING: u32 = 1;
/// Far above any real catalogue; bounds the allocation for a file with a wrong length.
const MAX_BYTES: u64 = 64 << 20;

/// The tables of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// Tables by name.
    pub tables: BTreeMap<String, TableSpec>,
    /// Tables that are being created or dropped; after a crash their directories are removed.
    pub pending: BTreeSet<String>,
    /// The identities of the tables that have taken part in batches over several tables.
    pub ids: BTreeMap<String, u64>,
    /// Greater than all identities that were assigned; 0 if there was none.
    pub next_id: u64,
    /// Tables that servers show in the place of others, by place. See [`Self::in_place_of`].
    pub places: BTreeMap<String, String>,
    /// The directories of tables that are not those of their names, without the prefix `table-`.
    /// See [`Self::directory_of`].
    pub directories: BTreeMap<String, String>,
}

/// A table's engine and options.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TableSpec {
    /// The engine's name.
    pub engine: String,
    /// The options that differ from the engine's defaults.
    pub options: BTreeMap<String, String>,
}

impl Catalogue {
    /// The name of the file.
    pub const NAME: &str = NAME;

    /// Whether `vfs` contains a catalogue, i.e. is a store.
    ///
    /// # Errors
    /// I/O errors.
    pub fn exists(vfs: &dyn Vfs) -> Result<bool> {
        vfs.exists(NAME)
    }

    /// Whether a directory of this machine holds a file that begins like a catalogue, encrypted or
    /// not.
    pub(crate) fn is_in(dir: &Path) -> bool {
        let mut begin = [0; MAGIC.len()];
        let file = std::fs::File::open(dir.join(NAME));
        file.is_ok_and(|mut file| file.read_exact(&mut begin).is_ok()) && begin == *MAGIC.as_bytes()
    }

    /// Whether a file of this name is a catalogue.
    pub fn owns(name: &str) -> bool {
        name == NAME
    }

    /// Whether a file of this name is a draft of a catalogue.
    pub(crate) fn is_draft(name: &str) -> bool {
        name == DRAFT_NAME
    }

    /// Reads the catalogue.
    ///
    /// # Errors
    /// [`Error::Refused`] for a newer version, [`Error::Corruption`] for a damaged file; I/O
    /// errors.
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
    ///
    /// # Errors
    /// I/O errors; the old or the new catalogue is there then.
    pub fn write(&self, vfs: &dyn Vfs) -> Result<()> {
        self.replace(vfs).map_err(|(error, _)| error)
    }

    /// The same. The error states whether the new catalogue may be there.
    pub(crate) fn replace(&self, vfs: &dyn Vfs) -> Result<(), (Error, bool)> {
        let prepare = || {
            if vfs.exists(DRAFT_NAME)? {
                vfs.remove(DRAFT_NAME)?;
            }
            let file = vfs.create(DRAFT_NAME)?;
            file.write_at(0, &self.format(), Purpose::Manifest)?;
            file.sync(Purpose::Manifest)
        };
        prepare().map_err(|error| (error, false))?;
        let switch = || {
            vfs.rename(DRAFT_NAME, NAME)?;
            vfs.sync_dir(Purpose::Manifest)
        };
        switch().map_err(|error| (error, true))
    }

    /// The name of a table's directory, without the prefix `table-`: the table's name, or another
    /// one since it has moved to another engine ([`Db::begin_move`](crate::Db::begin_move)).
    #[must_use]
    pub fn directory_of<'a>(&'a self, table: &'a str) -> &'a str {
        self.directories.get(table).map_or(table, String::as_str)
    }

    /// Records the name of a table's directory, without the prefix.
    pub(crate) fn set_directory(&mut self, table: &str, directory: String) {
        match table == directory {
            true => drop(self.directories.remove(table)),
            false => drop(self.directories.insert(table.to_owned(), directory)),
        }
    }

    /// Whether a directory, without the prefix, is that of a table.
    pub(crate) fn has_directory(&self, directory: &str) -> bool {
        let table = spare_of(directory).unwrap_or(directory);
        self.tables.contains_key(table) && self.directory_of(table) == directory
    }

    /// The directories of tables, without the prefix, that are neither listed nor pending, sorted.
    pub(crate) fn unlisted(&self, vfs: &dyn Vfs) -> Result<Vec<String>> {
        let mut names = vfs.subdirectories()?;
        names.retain_mut(|name| match name.strip_prefix(TABLE_PREFIX) {
            Some(table) => {
                *name = table.to_owned();
                !self.has_directory(name) && !self.pending.contains(name)
            }
            None => false,
        });
        names.sort();
        Ok(names)
    }

    /// The oldest version that suffices.
    fn version(&self) -> u32 {
        match (self.next_id, self.pending.is_empty()) {
            _ if !self.directories.is_empty() => VERSION,
            _ if !self.places.is_empty() => VERSION_WITHOUT_DIRECTORIES,
            (0, true) => VERSION_WITHOUT_PENDING,
            (0, false) => VERSION_WITHOUT_IDS,
            _ => VERSION_WITHOUT_PLACES,
        }
    }

    /// The content of the file.
    pub(crate) fn format(&self) -> Vec<u8> {
        let body = json::format(self);
        let crc = crc32c::crc32c(body.as_bytes());
        let version = self.version();
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
        let stated = match version.parse::<u32>() {
            Ok(
                known @ (VERSION_WITHOUT_PENDING..=VERSION_WITHOUT_PLACES
                | VERSION_WITHOUT_DIRECTORIES
                | VERSION),
            ) => known,
            Ok(newer) if newer > VERSION => {
                return Err(Error::Refused {
                    path: path.to_owned(),
                    reason: format!(
                        "written in format {newer}; this program reads up to format {VERSION}: \
                         use a newer siltstone"
                    ),
                });
            }
            Ok(VERSION_ENCRYPTED) => {
                let reason = "the header of the encrypted catalogue is damaged";
                return Err(damaged(0, reason.to_owned()));
            }
            _ => return Err(damaged(0, format!("unknown version '{version}'"))),
        };
        if crc != format!("crc32c={:08x}", crc32c::crc32c(body)) {
            return Err(damaged(newline + 1, "checksum does not match".into()));
        }
        let catalogue = json::parse(body).map_err(|mistake| damaged(newline + 1, mistake))?;
        // The checksum does not cover the version.
        match catalogue.version() == stated {
            true => Ok(catalogue),
            false => Err(damaged(0, format!("version {stated} does not have such contents"))),
        }
    }
}

/// Checks a table name: 1 to 64 of `a-z A-Z 0-9 _ -`, so that it is a valid directory name on
/// every file system.
///
/// # Errors
/// [`Error::Invalid`] with these rules.
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
        Catalogue { tables: [("words".to_owned(), spec)].into(), ..Catalogue::default() }
    }

    #[test]
    fn catalogue_reads_back() {
        let mut with_pending = sample();
        with_pending.pending.insert("old".to_owned());
        let mut with_ids = with_pending.clone();
        with_ids.ids.insert("words".to_owned(), 7);
        with_ids.next_id = 8;
        let mut with_places = with_ids.clone();
        with_places.places = [("a", "b"), ("b", "a")].map(|(a, b)| (a.into(), b.into())).into();
        let mut with_directories = with_places.clone();
        with_directories.directories.insert("words".into(), "words.1".into());
        for catalogue in [sample(), with_pending, with_ids, with_places, with_directories] {
            assert_eq!(Catalogue::parse(&catalogue.format(), "C").unwrap(), catalogue);
        }
    }

    #[test]
    fn catalogue_has_the_oldest_version_that_suffices() {
        let mut catalogue = sample();
        assert!(catalogue.format().starts_with(b"siltstone-catalogue 1 "));
        catalogue.pending.insert("old".to_owned());
        assert!(catalogue.format().starts_with(b"siltstone-catalogue 2 "));
        catalogue.next_id = 8;
        assert!(catalogue.format().starts_with(b"siltstone-catalogue 3 "));
        catalogue.places.insert("a".to_owned(), "b".to_owned());
        assert!(catalogue.format().starts_with(b"siltstone-catalogue 5 "));
        catalogue.set_directory("words", "words.1".to_owned());
        assert!(catalogue.format().starts_with(b"siltstone-catalogue 6 "));
        catalogue.set_directory("words", "words".to_owned());
        assert!(catalogue.format().starts_with(b"siltstone-catalogue 5 "));
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_detected() {
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
    fn newer_version_is_refused_by_number() {
        let newer =
            String::from_utf8(sample().format()).unwrap().replace("catalogue 1", "catalogue 9");
        let error = Catalogue::parse(newer.as_bytes(), "C").unwrap_err();
        assert!(matches!(&error, Error::Refused { reason, .. } if reason.contains("format 9")));
    }
}
