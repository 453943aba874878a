//! The libraries of functions of a store, in a log beside its tables.
//!
//! A change appends one record with the libraries that it adds and removes, so it costs what they
//! are large, however many there are. The log is a file in the format of
//! [`siltstone_table::log`], whose readers distinguish a torn end from damage.
//!
//! ```text
// ANCHOR: layout
//! file   := functions-000001.log, by number
//! record := version:u8  change[]           all of it or nothing; the first has all libraries
//! change := 0:u8  name_len:u32  name                        removes a library
//!         | 1:u8  name_len:u32  name  code_len:u32  code    adds or replaces one
// ANCHOR_END: layout
//! ```
//!
//! Integers are little endian, names in lower case. The version is 1. The first change after a
//! start begins a new file, and so does one that finds more than half of the file outdated:
//!
//! ```text
//!   create functions-000002.log ─ its first record ─ sync ─ sync_dir ─ remove the older ─ sync_dir
//! ```
//!
//! Nothing is appended to a file before the older one is durably gone. So the newest file with a
//! whole first record has the libraries.
//!
//! Earlier programs kept all libraries in `functions.rdb`, a payload of FUNCTION DUMP. It is read
//! if there is no log, and replaced by one. These programs do not read the log.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_rdb::{libraries, payload};
use siltstone_table::fixed::take_u32;
use siltstone_table::{LogMode, LogReader, LogWriter};
use siltstone_vfs::{Mode, Vfs};

use super::function_library::Library;

/// The file of earlier programs.
const OLD_FILE: &str = "functions.rdb";
/// Memory that the libraries of it may take.
const MAX_OLD_BYTES: u64 = 1 << 30;
const VERSION: u8 = 1;
/// A file is not replaced before it has this size, in bytes.
const MIN_REPLACED_BYTES: u64 = 64 << 10;
/// Mode of the files: libraries may have secrets.
const MODE: u32 = 0o600;

/// The code of libraries by name, in lower case.
pub(crate) type Codes = BTreeMap<String, Vec<u8>>;

/// The log. Its directory is that of a store that this process has locked.
pub(crate) struct LibraryLog {
    vfs: Arc<dyn Vfs>,
    /// The number of the newest file; 0 if there was none.
    number: u64,
    /// The newest file, if this process has begun it.
    writer: Option<LogWriter>,
}

impl LibraryLog {
    /// Opens the log in a directory, and returns the libraries.
    ///
    /// # Errors
    /// `Corruption` and `Refused` for a file that cannot be read; I/O errors.
    pub(crate) fn open(vfs: Arc<dyn Vfs>) -> Result<(Self, Codes)> {
        let numbers = files(vfs.as_ref())?;
        let number = numbers.last().copied().unwrap_or_default();
        let mut log = LibraryLog { vfs, number, writer: None };
        for number in numbers.iter().rev() {
            if let Some(codes) = read(log.vfs.as_ref(), *number)? {
                log.remove_old_file()?;
                return Ok((log, codes));
            }
        }
        let codes = log.read_old_file()?;
        if let Some(codes) = &codes {
            log.replace(codes.iter().map(|(name, code)| (name.as_str(), code.as_slice())))?;
            log.remove_old_file()?;
        }
        Ok((log, codes.unwrap_or_default()))
    }

    /// Whether the next change is to [`replace`](Self::replace) the file, if all libraries have
    /// this size after it.
    pub(super) fn is_outdated(&self, live_bytes: u64) -> bool {
        let max_bytes = MIN_REPLACED_BYTES.max(2 * live_bytes);
        self.writer.as_ref().is_none_or(|writer| writer.len() >= max_bytes)
    }

    /// Makes a change durable, in a file that is not outdated. After an error it is unknown whether
    /// the next start has the change.
    ///
    /// # Errors
    /// I/O errors; `TooLarge`.
    pub(super) fn append<'c>(
        &mut self,
        removed: &BTreeSet<String>,
        added: impl Iterator<Item = (&'c str, &'c [u8])>,
    ) -> Result<()> {
        let mut record = vec![VERSION];
        for name in removed {
            record.push(0);
            push(&mut record, name.as_bytes());
        }
        push_added(&mut record, added);
        // After an error the next change begins a new file.
        let begun = self.writer.take();
        let mut writer = begun.ok_or_else(|| Error::Invalid("the log has no file".into()))?;
        writer.append(&[&record])?;
        writer.sync()?;
        self.writer = Some(writer);
        Ok(())
    }

    /// Begins a new file with all libraries, and removes the others. After an error it is unknown
    /// which of them the next start reads.
    ///
    /// # Errors
    /// I/O errors; `TooLarge`.
    pub(super) fn replace<'c>(
        &mut self,
        all: impl Iterator<Item = (&'c str, &'c [u8])>,
    ) -> Result<()> {
        self.writer = None;
        self.number += 1;
        let name = file_name(self.number);
        let vfs = self.vfs.as_ref();
        let mut writer = LogWriter::create(vfs, &name, self.number, Purpose::Maintenance)?;
        if let Some(path) = vfs.path().map(|path| path.join(&name)) {
            let mode = std::fs::Permissions::from_mode(MODE);
            let set = std::fs::set_permissions(&path, mode);
            set.map_err(|error| Error::io("set the mode of", path.display().to_string(), &error))?;
        }
        let mut record = vec![VERSION];
        push_added(&mut record, all);
        writer.append(&[&record])?;
        writer.sync()?;
        vfs.sync_dir(Purpose::Maintenance)?;
        for number in files(vfs)?.into_iter().filter(|number| *number != self.number) {
            vfs.remove(&file_name(number))?;
        }
        vfs.sync_dir(Purpose::Maintenance)?;
        self.writer = Some(writer);
        Ok(())
    }

    /// The libraries of earlier programs, if there is such a file.
    fn read_old_file(&self) -> Result<Option<Codes>> {
        if !self.vfs.exists(OLD_FILE)? {
            return Ok(None);
        }
        let file = self.vfs.open(OLD_FILE, Mode::Read)?;
        let mut payload = vec![0; file.len()? as usize];
        file.read_at(0, &mut payload, Purpose::Maintenance)?;
        let refused = |reason: &str| Error::Refused {
            path: format!("{}/{OLD_FILE}", self.vfs.name()),
            reason: format!(
                "{reason}; restore the file of libraries of functions from a backup, or remove it \
                 and load them again"
            ),
        };
        let body =
            payload::verify(&payload).ok_or_else(|| refused("its version or checksum is wrong"))?;
        let codes =
            libraries::restore(body, MAX_OLD_BYTES).map_err(|error| refused(&error.to_string()))?;
        let named = codes.into_iter().map(|code| {
            let library = Library::parse(&code).map_err(|text| refused(&text))?;
            Ok((library.name.to_lowercase(), code))
        });
        named.collect::<Result<_>>().map(Some)
    }

    fn remove_old_file(&self) -> Result<()> {
        if self.vfs.exists(OLD_FILE)? {
            self.vfs.remove(OLD_FILE)?;
            self.vfs.sync_dir(Purpose::Maintenance)?;
        }
        Ok(())
    }
}

fn file_name(number: u64) -> String {
    format!("functions-{number:06}.log")
}

/// The numbers of the files in a directory, ascending.
fn files(vfs: &dyn Vfs) -> Result<Vec<u64>> {
    let number = |name: &String| {
        let number = name.strip_prefix("functions-")?.strip_suffix(".log")?.parse().ok()?;
        (file_name(number) == *name).then_some(number)
    };
    let mut numbers: Vec<_> = vfs.list()?.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The libraries of a file; `None` if its first record was never whole.
fn read(vfs: &dyn Vfs, number: u64) -> Result<Option<Codes>> {
    let name = file_name(number);
    let mut reader = LogReader::open(vfs, &name, number, LogMode::Recover)?;
    let mut codes = None;
    while let Some(record) = reader.next()? {
        let at = record.position;
        let codes = codes.get_or_insert_with(Codes::new);
        apply(codes, record.bytes).map_err(|reason| Error::Corruption {
            file: format!("{}/{name}", vfs.name()),
            offset: at,
            reason,
        })?;
    }
    Ok(codes)
}

/// Applies a record.
fn apply(codes: &mut Codes, record: &[u8]) -> std::result::Result<(), String> {
    let malformed = || "a record of libraries of functions is malformed".to_owned();
    let (version, mut rest) = record.split_first().ok_or_else(malformed)?;
    if *version != VERSION {
        return Err(format!(
            "a record has version {version}, and this program knows {VERSION}: use a newer one"
        ));
    }
    let at = &mut rest;
    while let Some((kind, after)) = at.split_first() {
        *at = after;
        let name = take(at).ok_or_else(malformed)?;
        let name = String::from_utf8(name).map_err(|_| malformed())?;
        match kind {
            0 => drop(codes.remove(&name)),
            1 => drop(codes.insert(name, take(at).ok_or_else(malformed)?)),
            _ => return Err(malformed()),
        }
    }
    Ok(())
}

fn push_added<'c>(record: &mut Vec<u8>, added: impl Iterator<Item = (&'c str, &'c [u8])>) {
    for (name, code) in added {
        record.push(1);
        push(record, name.as_bytes());
        push(record, code);
    }
}

fn push(record: &mut Vec<u8>, bytes: &[u8]) {
    record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    record.extend_from_slice(bytes);
}

fn take(at: &mut &[u8]) -> Option<Vec<u8>> {
    let len = take_u32(at)? as usize;
    let (bytes, rest) = at.split_at_checked(len)?;
    *at = rest;
    Some(bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use siltstone_faults::{FaultyVfs, Survival};
    use siltstone_testkit::TestRng;

    use super::*;

    fn library(name: &str, bytes: usize) -> (String, Vec<u8>) {
        let code = format!("#!lua name={name}\n{}", "x".repeat(bytes));
        (name.to_lowercase(), code.into_bytes())
    }

    fn open(vfs: &FaultyVfs) -> Result<(LibraryLog, Codes)> {
        LibraryLog::open(Arc::new(vfs.clone()))
    }

    /// Does what the libraries of a server do for a change.
    fn change(
        log: &mut LibraryLog,
        after: &Codes,
        removed: &[String],
        added: &[&str],
    ) -> Result<()> {
        fn row<'c>((name, code): (&'c String, &'c Vec<u8>)) -> (&'c str, &'c [u8]) {
            (name, code)
        }
        match log.is_outdated(after.values().map(|code| code.len() as u64).sum()) {
            true => log.replace(after.iter().map(row)),
            false => {
                let added = after.iter().filter(|(name, _)| added.contains(&name.as_str()));
                log.append(&removed.iter().cloned().collect(), added.map(row))
            }
        }
    }

    fn add(log: &mut LibraryLog, codes: &mut Codes, name: &str, bytes: usize) -> Result<()> {
        let (name, code) = library(name, bytes);
        codes.insert(name.clone(), code);
        change(log, codes, &[], &[&name])
    }

    #[test]
    fn changes_append_and_outdated_files_are_replaced() {
        let vfs = FaultyVfs::new(1);
        let (mut log, mut codes) = open(&vfs).unwrap();
        assert!(codes.is_empty());
        for number in 0..100 {
            add(&mut log, &mut codes, &format!("lib{number}"), 1000).unwrap();
        }
        // None of them has begun a new file, though the libraries have 100 kB.
        assert_eq!(vfs.list().unwrap(), ["functions-000001.log"]);
        let removed: Vec<_> = codes.keys().skip(2).cloned().collect();
        codes.retain(|name, _| !removed.contains(name));
        change(&mut log, &codes, &removed, &[]).unwrap();
        assert_eq!(vfs.list().unwrap(), ["functions-000002.log"]);
        assert_eq!(open(&vfs).unwrap().1, codes);
        // Libraries that are replaced again and again do not fill the device.
        for round in 0..200 {
            add(&mut log, &mut codes, "lib0", 1000 + round).unwrap();
        }
        let files = vfs.list().unwrap();
        let bytes = vfs.open(&files[0], Mode::Read).unwrap().len().unwrap();
        assert!(files.len() == 1 && bytes < 100_000, "{files:?} of {bytes} bytes");
        let (mut log, found) = open(&vfs).unwrap();
        assert_eq!(found, codes);
        add(&mut log, &mut codes, "later", 10).unwrap();
        assert_eq!(open(&vfs).unwrap().1, codes);
    }

    #[test]
    fn power_cut_leaves_the_libraries_before_a_change_or_after_it() {
        let run = |vfs: &FaultyVfs, seed: u64| {
            // The libraries that are certainly kept, and those of the last change.
            let mut rng = TestRng::new(seed);
            let (mut kept, mut last) = (Codes::new(), Codes::new());
            let Ok((mut log, _)) = open(vfs) else { return (kept, last) };
            for _ in 0..40 {
                let name = format!("l{}", rng.below(4));
                let removed = rng.one_in(4) && last.remove(&name).is_some();
                let added = if removed { None } else { Some(library(&name, rng.index(30_000))) };
                last.extend(added);
                let (removed, added) = match removed {
                    true => (vec![name], vec![]),
                    false => (vec![], vec![name]),
                };
                let added: Vec<_> = added.iter().map(String::as_str).collect();
                if change(&mut log, &last, &removed, &added).is_err() {
                    return (kept, last);
                }
                kept.clone_from(&last);
            }
            (kept, last)
        };
        let vfs = FaultyVfs::new(7);
        run(&vfs, 7);
        let operations = vfs.operations();
        for operation in 0..operations {
            let vfs = FaultyVfs::new(7);
            vfs.cut_power_at(operation);
            let (kept, last) = run(&vfs, 7);
            for seed in 0..4 {
                for survivor in
                    [Survival::LoseAll, Survival::KeepPrefix, Survival::KeepAll, Survival::Random]
                {
                    let after = vfs.survivors_as(survivor, seed);
                    let (mut log, found) = open(&after).unwrap();
                    assert!(found == kept || found == last, "operation {operation}");
                    let mut codes = found;
                    add(&mut log, &mut codes, "next", 10).unwrap();
                    assert_eq!(open(&after).unwrap().1, codes);
                }
            }
        }
    }

    #[test]
    fn file_of_earlier_programs_is_replaced_by_a_log() {
        let codes = [library("B", 10), library("a", 20)];
        let payload = libraries::dump(codes.iter().map(|(_, code)| code.as_slice()));
        let store = || {
            let vfs = FaultyVfs::new(3);
            let file = vfs.create(OLD_FILE).unwrap();
            file.write_at(0, &payload, Purpose::Maintenance).unwrap();
            file.sync(Purpose::Maintenance).unwrap();
            vfs.sync_dir(Purpose::Maintenance).unwrap();
            vfs
        };
        let vfs = store();
        let before = vfs.operations();
        let codes = Codes::from(codes.clone());
        assert_eq!(open(&vfs).unwrap().1, codes);
        assert_eq!(vfs.list().unwrap(), ["functions-000001.log"]);
        assert_eq!(open(&vfs).unwrap().1, codes);
        // A power cut in the midst leaves the old file or the log.
        for operation in before..vfs.operations() {
            let vfs = store();
            vfs.cut_power_at(operation);
            assert!(open(&vfs).is_err());
            for seed in 0..8 {
                let after = vfs.survivors_as(Survival::Random, seed);
                assert_eq!(open(&after).unwrap().1, codes, "operation {operation}, seed {seed}");
                assert_eq!(after.list().unwrap().len(), 1);
            }
        }
        // A damaged file is refused by name, and stays.
        let vfs = store();
        vfs.open(OLD_FILE, Mode::ReadWrite)
            .unwrap()
            .write_at(3, b"?", Purpose::Maintenance)
            .unwrap();
        let error = open(&vfs).err().unwrap().to_string();
        assert!(error.contains(OLD_FILE) && error.contains("checksum"), "{error}");
        assert_eq!(vfs.list().unwrap(), [OLD_FILE]);
    }

    #[test]
    fn damaged_and_newer_records_are_refused_by_name() {
        let vfs = FaultyVfs::new(5);
        let (mut log, mut codes) = open(&vfs).unwrap();
        for name in ["a", "b", "c"] {
            add(&mut log, &mut codes, name, 40_000).unwrap();
        }
        let name = "functions-000001.log";
        let file = vfs.open(name, Mode::ReadWrite).unwrap();
        file.write_at(50_000, b"damage", Purpose::Maintenance).unwrap();
        let error = open(&vfs).err().unwrap().to_string();
        assert!(error.contains(name), "{error}");
        for (record, expected) in [(&b"\x02"[..], "version 2"), (b"\x01\x01\x09", "malformed")] {
            let error = apply(&mut Codes::new(), record).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
