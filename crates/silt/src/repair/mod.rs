//! Repair: rebuilds a damaged table from everything that can be read.
//!
//! 1. Read the manifest. If it is damaged, or names missing files while stores exist that it does
//!    not name, reconstruct its content from the footers of the stores: per partition all
//!    HashStores in the order of their numbers, over the newest SortedStore. One without a footer
//!    is taken only if there is no other: it may be what a merge had written when power was cut.
//!    HashStores left over from a merge may make deleted keys reappear; the report says so.
//! 2. Read each store completely. The readable part of a damaged one becomes a new store
//!    (`salvage`), even without its footer.
//! 3. Read the chain of logs. If any of it is damaged, copy every whole record of each log, also
//!    those after the damage, to a new chain (`logs`).
//! 4. Write a new manifest that names the result. Keep damaged files beside it as `*.damaged`.
//!
//! A repair that is interrupted by a power cut can be repeated and saves the same entries: no file
//! is changed until the new manifest is in force. If there is no manifest, the reconstructed one is
//! written first, before there are new stores whose numbers would make them look newer.
//!
//! Filters and indexes are rebuilt from data, as at open.
//!
//! The report has every loss by file and bytes. No file is deleted. The table must not be open.

mod logs;
mod salvage;

use std::collections::BTreeSet;
use std::sync::Arc;

use siltstone_durable::repair::{KnownManifest, ReplacedFiles, salvage_logs};
use siltstone_durable::{EditHeader, VersionEdit};
use siltstone_engine::{Error, Loss, Purpose, RepairReport, Result};
use siltstone_table::{FileNumbers, Manifest, quarantine};
use siltstone_vfs::Vfs;

use crate::hash_store::HashStore;
use crate::keys::KeyHasher;
use crate::names::{self, Kind};
use crate::options::Options;
use crate::sorted_store::SortedStore;
use crate::store_entry::StoreEntry;
use crate::version::{ENGINE, Edit, Version};
use salvage::Salvage;

/// Rebuilds a damaged table from everything that can be read.
///
/// # Errors
/// I/O errors, and files of a newer format. Damage is not an error here.
pub fn repair(vfs: &Arc<dyn Vfs>) -> Result<RepairReport> {
    let (report, files) = Default::default();
    let mut repair =
        Repair { vfs, report, next_file: 1, has_changed: false, is_manifest_intact: false, files };
    repair.run()?;
    Ok(repair.report)
}

struct Repair<'a> {
    vfs: &'a Arc<dyn Vfs>,
    report: RepairReport,
    next_file: u64,
    /// Whether the result differs from the manifest.
    has_changed: bool,
    /// Whether the present manifest is undamaged and can be rewritten.
    is_manifest_intact: bool,
    /// Damaged files.
    files: ReplacedFiles,
}

impl Repair<'_> {
    fn run(&mut self) -> Result<()> {
        let names = self.vfs.list()?;
        let numbered: Vec<_> = names.iter().filter_map(|name| names::parse(name)).collect();
        self.next_file = numbered.iter().map(|&(_, number)| number + 1).max().unwrap_or(1);
        let known = self.read_manifest(&numbered)?;
        let is_known = known.is_some();
        let mut known = match known {
            Some(state) => state,
            None => self.reconstruct_manifest(&numbered)?,
        };
        // Ignore a file number that no table can have reached.
        let next =
            FileNumbers::of_manifest(known.header.next_file).map_or(1, |numbers| numbers.next());
        self.next_file = self.next_file.max(next);
        let keys =
            known.keys.unwrap_or(KeyHasher { seed: 0, partitions: Options::default().partitions });
        if !is_known {
            self.has_changed = true;
            known.keys = Some(keys);
            self.write_first_manifest(&known)?;
        }
        let mut state = Edit { keys: Some(keys), ..Edit::default() };
        state.header.first_log = known.header.first_log;
        for entry in known.hash_stores {
            state.hash_stores.extend(self.check(Kind::HashStore, entry, keys)?);
        }
        for entry in known.sorted_stores {
            state.sorted_stores.extend(self.check(Kind::SortedStore, entry, keys)?);
        }
        self.check_logs(&mut state, known.header.sealed_log, is_known)?;
        if self.has_changed {
            self.write_manifest(state)
        } else {
            self.report.note("everything that the manifest names is intact");
            Ok(())
        }
    }

    /// The content of the manifest; `None`, and a loss in the report, if it is damaged or outdated.
    fn read_manifest(&mut self, numbered: &[(Kind, u64)]) -> Result<Option<Edit>> {
        let mut manifest = KnownManifest::<Version>::read(self.vfs)?;
        let edit = manifest.edit.take();
        let edit = edit.filter(|edit| edit.keys.is_some_and(|keys| keys.partitions > 0));
        if let Some(edit) = edit
            && !self.is_superseded(&edit, numbered)?
        {
            self.is_manifest_intact = manifest.is_intact;
            self.has_changed = !manifest.is_intact;
            manifest.report_damage(&mut self.report);
            return Ok(Some(edit));
        }
        let instead = "stores are ordered by their numbers, and all logs are newer than the stores";
        manifest.report_unusable(instead, &mut self.report);
        Ok(None)
    }

    /// Whether the manifest is older than the files in the directory, i.e. an old copy, or one that
    /// lost its end: it names missing files, and does not name all stores.
    fn is_superseded(&self, known: &Edit, numbered: &[(Kind, u64)]) -> Result<bool> {
        let hash = known.hash_stores.iter().map(|entry| (Kind::HashStore, entry.number));
        let sorted = known.sorted_stores.iter().map(|entry| (Kind::SortedStore, entry.number));
        let named: BTreeSet<(Kind, u64)> = hash.chain(sorted).collect();
        let is_store = |kind: Kind| matches!(kind, Kind::HashStore | Kind::SortedStore);
        let has_unnamed = numbered.iter().any(|file| is_store(file.0) && !named.contains(file));
        let lacks_a_store = || named.iter().any(|file| !numbered.contains(file));
        let lacks_a_log = || -> Result<bool> {
            let logs = salvage_logs(self.vfs.as_ref(), &known.header)?;
            Ok(logs.iter().any(|log| log.file.is_none()))
        };
        Ok(has_unnamed && (lacks_a_store() || lacks_a_log()?))
    }

    /// Reconstructs the content of the manifest from the footers of the stores.
    fn reconstruct_manifest(&mut self, numbered: &[(Kind, u64)]) -> Result<Edit> {
        let logs = numbered.iter().filter(|(kind, _)| *kind == Kind::Log);
        let first_log = Some(logs.map(|&(_, number)| number).min().unwrap_or(0));
        let header = EditHeader { first_log, ..EditHeader::default() };
        let mut state = Edit { header, ..Edit::default() };
        let mut without_footer = Vec::new();
        let mut stores: Vec<(Kind, u64)> = numbered.to_vec();
        stores.sort_unstable_by_key(|&(_, number)| number);
        for (kind, number) in stores {
            let read = match kind {
                Kind::HashStore => HashStore::describe(self.vfs.as_ref(), number),
                Kind::SortedStore => SortedStore::describe(self.vfs.as_ref(), number)
                    .map(|(entry, keys, ..)| (entry, keys)),
                _ => continue,
            };
            match read {
                Ok((entry, keys)) => {
                    state.keys = Some(keys);
                    match kind {
                        Kind::HashStore => state.hash_stores.push(entry),
                        _ => state.sorted_stores.push(entry),
                    }
                }
                Err(error) if error.is_corruption() || error.is_failed_read() => {
                    without_footer.push((kind, number));
                }
                Err(other) => return Err(other),
            }
        }
        for (kind, number) in without_footer {
            let partition = match state.keys {
                Some(keys) => self.partition_of(kind, number, keys)?,
                None => None,
            };
            let Some(partition) = partition else {
                let name = kind.name(number);
                self.report.note(format!("{name}: its partition cannot be determined"));
                self.report.record_loss(Loss::entries(&name, 0..u64::MAX));
                quarantine::finish_quarantine(self.vfs.as_ref(), &name)?;
                continue;
            };
            let entry = StoreEntry { partition, number, bytes: 0, entries: 0 };
            match kind {
                Kind::HashStore => state.hash_stores.push(entry),
                _ => state.sorted_stores.push(entry),
            }
        }
        state.hash_stores.sort_unstable_by_key(|entry| entry.number);
        self.choose_sorted_stores(&mut state.sorted_stores)?;
        Ok(state)
    }

    /// Keeps one SortedStore per partition, and quarantines the others. The newest contains the
    /// entries of its predecessors, but one without a footer may lack some of them.
    fn choose_sorted_stores(&mut self, stores: &mut Vec<StoreEntry>) -> Result<()> {
        let has_footer = |entry: &StoreEntry| entry.bytes > 0;
        stores.sort_unstable_by_key(|entry| (entry.partition, has_footer(entry), entry.number));
        let mut chosen = Vec::new();
        for of_partition in stores.chunk_by(|a, b| a.partition == b.partition) {
            let Some((&best, others)) = of_partition.split_last() else { continue };
            let kept = sorted_store_name(best);
            for &other in others {
                let name = sorted_store_name(other);
                if other.number < best.number {
                    self.report
                        .note(format!("{name} is older than {kept}: kept as {name}.damaged"));
                } else {
                    let reason = format!("may lack entries of {kept}: kept as {name}.damaged");
                    self.report.note(format!("{name} has no footer and {reason}"));
                    self.report.record_loss(Loss::entries(&name, 0..u64::MAX));
                }
                quarantine::finish_quarantine(self.vfs.as_ref(), &name)?;
            }
            chosen.push(best);
        }
        *stores = chosen;
        Ok(())
    }

    /// The partition of a store without a footer, from a readable entry.
    fn partition_of(&self, kind: Kind, number: u64, keys: KeyHasher) -> Result<Option<u32>> {
        let mut partition = None;
        self.salvage(kind, number, |key, _| {
            partition = partition.or(Some(keys.partition(&keys.hash(key)) as u32));
            Ok(())
        })?;
        Ok(partition)
    }

    /// The store for the new manifest: `entry` itself if it is undamaged, else a new store with its
    /// readable entries; `None` if there are none.
    fn check(
        &mut self,
        kind: Kind,
        entry: StoreEntry,
        keys: KeyHasher,
    ) -> Result<Option<StoreEntry>> {
        let name = kind.name(entry.number);
        let derived = match kind {
            Kind::HashStore => Kind::Filter.name(entry.number),
            _ => Kind::Index.name(entry.number),
        };
        let purpose = Purpose::Maintenance;
        let checked = match kind {
            Kind::HashStore => {
                HashStore::open(self.vfs, entry, purpose).and_then(|store| store.verify())
            }
            _ => SortedStore::open_read_only(self.vfs, entry).and_then(|store| {
                // An index that was rebuilt in memory is to be rebuilt on disk.
                match store.warning() {
                    Some(_) => Err(Error::corruption(&derived, 0, "it is damaged")),
                    None => store.verify(),
                }
            }),
        };
        let (at, reason) = match checked {
            Ok(()) => return Ok(Some(entry)),
            Err(Error::Corruption { file, .. }) if file == derived => {
                return self.rebuild_derived(kind, entry, &derived);
            }
            Err(Error::Io { operation: "read", file, .. }) if file.ends_with(&derived) => {
                return self.rebuild_derived(kind, entry, &derived);
            }
            Err(error) if error.is_not_found() && !self.vfs.exists(&name)? => {
                self.has_changed = true;
                let StoreEntry { bytes, entries, .. } = entry;
                self.report.note(format!("{name} is missing: its {entries} entries are lost"));
                self.report.record_loss(Loss::entries(name, 0..bytes));
                return Ok(None);
            }
            Err(Error::Corruption { offset, reason, .. }) => (offset, reason),
            // A part of the file cannot be read. It is unknown which.
            Err(error) if error.is_failed_read() => (0, error.to_string()),
            Err(other) => return Err(other),
        };
        self.has_changed = true;
        self.report.note(format!("{name} is damaged at byte {at} ({reason})"));
        let saved = self.rebuild(kind, entry, keys)?;
        self.files.keep_reported([name]);
        if self.vfs.exists(&derived)? {
            self.files.keep_reported([derived]);
        }
        Ok(saved)
    }

    /// Rebuilds the filter or index of a store from its data, and quarantines the damaged file.
    fn rebuild_derived(
        &mut self,
        kind: Kind,
        entry: StoreEntry,
        derived: &str,
    ) -> Result<Option<StoreEntry>> {
        if self.vfs.exists(derived)? {
            quarantine::finish_quarantine(self.vfs.as_ref(), derived)?;
        }
        let purpose = Purpose::Maintenance;
        match kind {
            Kind::HashStore => HashStore::open(self.vfs, entry, purpose)?.load(purpose)?,
            _ => SortedStore::open(self.vfs, entry, purpose)?.load(purpose)?,
        }
        let name = kind.name(entry.number);
        self.report.note(format!("{derived} is damaged: it is rebuilt from {name}"));
        Ok(Some(entry))
    }

    /// Writes the readable entries of a damaged store to a new one.
    fn rebuild(
        &mut self,
        kind: Kind,
        entry: StoreEntry,
        keys: KeyHasher,
    ) -> Result<Option<StoreEntry>> {
        let name = kind.name(entry.number);
        let number = self.new_number();
        let saved = StoreEntry { partition: entry.partition, number, ..entry };
        let mut items = Vec::new();
        let salvage = self.salvage(kind, entry.number, |key, place| {
            items.push((keys.hash(key), place));
            Ok(())
        })?;
        let (bytes, entries) = match kind {
            _ if items.is_empty() => (0, 0),
            Kind::HashStore => salvage.write_hash_store(self.vfs, &saved, keys, &items)?,
            _ => salvage.write_sorted_store(self.vfs, &saved, keys, &items)?,
        };
        // Without the manifest the original number of entries is unknown.
        let of = if entry.entries > 0 { format!(" of {}", entry.entries) } else { String::new() };
        self.report
            .note(format!("{name}: {entries}{of} entries saved, the file kept as {name}.damaged"));
        if entries == 0 || entries != entry.entries {
            for lost in salvage.lost_ranges(entry.bytes) {
                self.report.record_loss(Loss::entries(&name, lost));
            }
        }
        Ok((entries > 0).then_some(StoreEntry { bytes, entries, ..saved }))
    }

    /// Reads the readable part of a store; calls `each` with the key and location of every entry.
    fn salvage(
        &self,
        kind: Kind,
        number: u64,
        each: impl FnMut(&[u8], salvage::EntryLocation) -> Result<()>,
    ) -> Result<Salvage> {
        match kind {
            Kind::HashStore => Salvage::of_hash_store(self.vfs, number, each),
            _ => Salvage::of_sorted_store(self.vfs, number, each),
        }
    }

    /// Replaces the unusable manifest by one with this content.
    fn write_first_manifest(&mut self, state: &Edit) -> Result<()> {
        let mut state = state.clone();
        state.header.next_file = Some(self.next_file);
        Manifest::replace(self.vfs, ENGINE, &state.encode(), false)?;
        self.is_manifest_intact = true;
        self.vfs.sync_dir(Purpose::Maintenance)
    }

    /// Puts a manifest with this content into force, and quarantines the damaged files.
    fn write_manifest(&mut self, mut state: Edit) -> Result<()> {
        state.header.next_file = Some(self.next_file);
        let is_intact = self.is_manifest_intact;
        self.files.replace_manifest::<Version>(&[self.vfs], &state, is_intact)?;
        let (hash, sorted) = (state.hash_stores.len(), state.sorted_stores.len());
        self.report
            .note(format!("the new manifest names {hash} HashStores and {sorted} SortedStores"));
        Ok(())
    }

    fn new_number(&mut self) -> u64 {
        self.next_file += 1;
        self.next_file - 1
    }
}

fn sorted_store_name(entry: StoreEntry) -> String {
    Kind::SortedStore.name(entry.number)
}
