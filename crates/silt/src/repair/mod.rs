//! Makes a damaged table open again, with all that can be read.
//!
//! 1. The manifest is read. If it does not hold, or names files that are missing while others are
//!    there
//!    that it does not name, the footers of the stores tell what it
//!    said: of a partition the HashStores that are there, by their numbers, over the newest SortedStore.
//!    HashStores of a merge that was not cleaned up may then show deleted keys again, and the report
//!    says so.
//! 2. Each store is read whole. What can be read of a damaged one makes a new store in its place
//!    (`salvage`), even without its footer.
//! 3. The chain of logs is read. If anything of it does not hold, every whole record of each log,
//!    behind
//!    damage, too, makes a new chain (`logs`).
//! 4. A new manifest names the result. Damaged files stay beside it under `*.damaged`.
//!
//! A repair that loses power is begun again and saves the same: until the new manifest is in force files
//! stay as they are. Where there is none, what the footers tell makes one first, before there are new
//! stores whose numbers would pass them off as younger.
//!
//! Filters and indexes are made again from the data, as opening does.
//!
//! Every loss is reported by file and bytes. Nothing is deleted. The table must not be open.
//!
//! Source: ours; the order of steps is that of the house's tree.

mod logs;
mod salvage;

use std::collections::BTreeSet;
use std::sync::Arc;

use siltstone_engine::{Error, Loss, Purpose, RepairReport, Result};
use siltstone_table::{FileNumbers, LogSalvage, Manifest, aside, salvage_chain};
use siltstone_vfs::Vfs;

use crate::hash_store::HashStore;
use crate::keys::Keys;
use crate::names::{self, Kind};
use crate::options::Options;
use crate::sorted_store::SortedStore;
use crate::version::{ENGINE, Edit, StoreEntry, fold};
use salvage::Salvage;

/// Rebuilds what can be saved of a damaged table.
///
/// # Errors
/// Failures of the medium, and files of a newer format. Damage is not an error here.
pub fn repair(vfs: &Arc<dyn Vfs>) -> Result<RepairReport> {
    let (report, aside) = Default::default();
    let mut repair =
        Repair { vfs, report, next_file: 1, has_changed: false, is_manifest_sound: false, aside };
    repair.run()?;
    Ok(repair.report)
}

struct Repair<'a> {
    vfs: &'a Arc<dyn Vfs>,
    report: RepairReport,
    next_file: u64,
    /// Something of what the manifest says is no longer so.
    has_changed: bool,
    /// The manifest that is there holds, and can be written anew.
    is_manifest_sound: bool,
    /// Files to be set aside once the new manifest is in force.
    aside: BTreeSet<String>,
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
            None => self.guess(&numbered)?,
        };
        // What no table can have come to is no use.
        let next = FileNumbers::of_manifest(known.next_file).map_or(1, |numbers| numbers.next());
        self.next_file = self.next_file.max(next);
        let keys =
            known.keys.unwrap_or(Keys { seed: 0, partitions: Options::default().partitions });
        if !is_known {
            self.has_changed = true;
            known.keys = Some(keys);
            self.begin_manifest(&known)?;
        }
        let mut state = Edit { keys: Some(keys), first_log: known.first_log, ..Edit::default() };
        for entry in known.hash_stores {
            state.hash_stores.extend(self.check(Kind::HashStore, entry, keys)?);
        }
        for entry in known.sorted_stores {
            state.sorted_stores.extend(self.check(Kind::SortedStore, entry, keys)?);
        }
        self.check_logs(&mut state, known.sealed_log, is_known)?;
        if self.has_changed {
            self.write_manifest(state)
        } else {
            self.report.note("everything that the manifest names is sound");
            Ok(())
        }
    }

    /// What the manifest says; `None`, and a loss in the report, if it does not hold.
    fn read_manifest(&mut self, numbered: &[(Kind, u64)]) -> Result<Option<Edit>> {
        let rescued = Manifest::rescue(self.vfs, ENGINE)?;
        let edit = match rescued.edits.as_ref().map(|edits| fold(edits)) {
            Some(Err(error)) if !error.is_corruption() => return Err(error),
            edit => edit.transpose().unwrap_or(None),
        };
        let edit = edit.filter(|edit| edit.keys.is_some_and(|keys| keys.partitions > 0));
        if let Some(edit) = edit
            && !self.is_superseded(&edit, numbered)?
        {
            self.is_manifest_sound = rescued.damage.is_none() && !rescued.is_torn;
            self.has_changed = !self.is_manifest_sound;
            if let Some((file, reason)) = rescued.damage {
                self.report.note(format!(
                    "{file} is damaged ({reason}): the newest manifest is read, and holds"
                ));
            }
            return Ok(Some(edit));
        }
        let (file, reason) = rescued.damage.unwrap_or_else(|| {
            let reason = "it does not fit the files that are there".to_owned();
            (rescued.name.unwrap_or_else(|| "MANIFEST".to_owned()), reason)
        });
        self.report.note(format!(
            "the manifest does not hold ({file}: {reason}): all stores are taken as they are numbered, \
             and all logs as the newest"
        ));
        self.report.lose(Loss::order(file));
        Ok(None)
    }

    /// Whether the manifest is of before the files that are there: it names some that are missing,
    /// and does not name all stores. An older copy would say so, or one that lost its end.
    fn is_superseded(&self, known: &Edit, numbered: &[(Kind, u64)]) -> Result<bool> {
        let hash = known.hash_stores.iter().map(|entry| (Kind::HashStore, entry.number));
        let sorted = known.sorted_stores.iter().map(|entry| (Kind::SortedStore, entry.number));
        let named: BTreeSet<(Kind, u64)> = hash.chain(sorted).collect();
        let is_store = |kind: Kind| matches!(kind, Kind::HashStore | Kind::SortedStore);
        let has_others = numbered.iter().any(|file| is_store(file.0) && !named.contains(file));
        let is_lacking = || named.iter().any(|file| !numbered.contains(file));
        let lacks_a_log = || -> Result<bool> {
            let logs = self.chain(known.first_log, known.sealed_log)?;
            Ok(logs.iter().any(|log| log.file.is_none()))
        };
        Ok(has_others && (is_lacking() || lacks_a_log()?))
    }

    fn chain(
        &self,
        first_log: Option<u64>,
        sealed_log: Option<(u64, u64)>,
    ) -> Result<Vec<LogSalvage>> {
        salvage_chain(self.vfs.as_ref(), Some(first_log.unwrap_or(0)), sealed_log, None)
    }

    /// What the manifest may have said, by the footers of the stores that are there.
    fn guess(&mut self, numbered: &[(Kind, u64)]) -> Result<Edit> {
        let logs = numbered.iter().filter(|(kind, _)| *kind == Kind::Log);
        let first_log = Some(logs.map(|&(_, number)| number).min().unwrap_or(0));
        let mut state = Edit { first_log, ..Edit::default() };
        let mut nameless = Vec::new();
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
                Err(error) if error.is_corruption() => nameless.push((kind, number)),
                Err(other) => return Err(other),
            }
        }
        for (kind, number) in nameless {
            let partition = match state.keys {
                Some(keys) => self.partition_of(kind, number, keys)?,
                None => None,
            };
            let Some(partition) = partition else {
                let name = kind.name(number);
                self.report.note(format!("{name}: nothing in it tells whose it is"));
                self.report.lose(Loss::entries(&name, 0..u64::MAX));
                aside::leave(self.vfs.as_ref(), &name)?;
                continue;
            };
            let entry = StoreEntry { partition, number, bytes: 0, entries: 0 };
            match kind {
                Kind::HashStore => state.hash_stores.push(entry),
                _ => state.sorted_stores.push(entry),
            }
        }
        state.hash_stores.sort_unstable_by_key(|entry| entry.number);
        // A SortedStore holds what the ones before it held.
        state.sorted_stores.sort_unstable_by_key(|entry| (entry.partition, entry.number));
        let of_all = std::mem::take(&mut state.sorted_stores);
        for (at, &entry) in of_all.iter().enumerate() {
            match of_all.get(at + 1).filter(|next| next.partition == entry.partition) {
                None => state.sorted_stores.push(entry),
                Some(next) => {
                    let (old, new) = (names_of(entry), names_of(*next));
                    self.report.note(format!("{old} is of before {new}: kept as {old}.damaged"));
                    aside::leave(self.vfs.as_ref(), &old)?;
                }
            }
        }
        Ok(state)
    }

    /// The partition of a store whose footer is gone, by what can be read of it.
    fn partition_of(&self, kind: Kind, number: u64, keys: Keys) -> Result<Option<u32>> {
        let mut partition = None;
        self.salvage(kind, number, |key, _| {
            partition = partition.or(Some(keys.partition(&keys.hash(key)) as u32));
            Ok(())
        })?;
        Ok(partition)
    }

    /// A store as the new manifest names it: as it is if it is sound, else one of what can be read of
    /// it; `None` if that is nothing.
    fn check(&mut self, kind: Kind, entry: StoreEntry, keys: Keys) -> Result<Option<StoreEntry>> {
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
            _ => SortedStore::open_as_it_is(self.vfs, entry).and_then(|store| {
                // Without its index it could not be read: it was made again, in memory.
                match store.warning() {
                    Some(_) => Err(Error::corruption(&derived, 0, "it does not hold")),
                    None => store.verify(),
                }
            }),
        };
        let (at, reason) = match checked {
            Ok(()) => return Ok(Some(entry)),
            Err(Error::Corruption { file, .. }) if file == derived => {
                return self.make_again(kind, entry, &derived);
            }
            Err(error) if error.is_not_found() && !self.vfs.exists(&name)? => {
                self.has_changed = true;
                let StoreEntry { bytes, entries, .. } = entry;
                self.report.note(format!("{name} is missing: its {entries} entries are lost"));
                self.report.lose(Loss::entries(name, 0..bytes));
                return Ok(None);
            }
            Err(Error::Corruption { offset, reason, .. }) => (offset, reason),
            Err(other) => return Err(other),
        };
        self.has_changed = true;
        self.report.note(format!("{name} is damaged at byte {at} ({reason})"));
        let saved = self.rebuild(kind, entry, keys)?;
        self.aside.insert(name);
        if self.vfs.exists(&derived)? {
            self.aside.insert(derived);
        }
        Ok(saved)
    }

    /// Makes the filter or index of a store again from its data. The damaged one is kept.
    fn make_again(
        &mut self,
        kind: Kind,
        entry: StoreEntry,
        derived: &str,
    ) -> Result<Option<StoreEntry>> {
        if self.vfs.exists(derived)? {
            aside::leave(self.vfs.as_ref(), derived)?;
        }
        let purpose = Purpose::Maintenance;
        match kind {
            Kind::HashStore => HashStore::open(self.vfs, entry, purpose)?.load(purpose)?,
            _ => SortedStore::open(self.vfs, entry, purpose).map(drop)?,
        }
        let name = kind.name(entry.number);
        self.report.note(format!("{derived} does not hold: it is made again from {name}"));
        Ok(Some(entry))
    }

    /// Writes what can be read of a damaged store to a new one.
    fn rebuild(&mut self, kind: Kind, entry: StoreEntry, keys: Keys) -> Result<Option<StoreEntry>> {
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
        // Of a store without its manifest nothing tells how many there were.
        let of = if entry.entries > 0 { format!(" of {}", entry.entries) } else { String::new() };
        self.report
            .note(format!("{name}: {entries}{of} entries saved, the file kept as {name}.damaged"));
        if entries == 0 || entries != entry.entries {
            for lost in salvage.lost_of(entry.bytes) {
                self.report.lose(Loss::entries(&name, lost));
            }
        }
        Ok((entries > 0).then_some(StoreEntry { bytes, entries, ..saved }))
    }

    /// Reads all that can be read of a store; `each` hears the key and place of every entry.
    fn salvage(
        &self,
        kind: Kind,
        number: u64,
        each: impl FnMut(&[u8], salvage::Place) -> Result<()>,
    ) -> Result<Salvage> {
        match kind {
            Kind::HashStore => Salvage::of_hash_store(self.vfs, number, each),
            _ => Salvage::of_sorted_store(self.vfs, number, each),
        }
    }

    /// Makes a manifest with this content in the place of the one that does not hold.
    fn begin_manifest(&mut self, state: &Edit) -> Result<()> {
        let state = Edit { next_file: Some(self.next_file), ..state.clone() };
        Manifest::replace(self.vfs, ENGINE, &state.encode(), false)?;
        self.is_manifest_sound = true;
        self.vfs.sync_dir(Purpose::Maintenance)
    }

    /// Puts a manifest with this content into force, and sets aside what it does without.
    fn write_manifest(&mut self, mut state: Edit) -> Result<()> {
        state.next_file = Some(self.next_file);
        self.aside.iter().try_for_each(|name| aside::keep(self.vfs.as_ref(), name))?;
        self.vfs.sync_dir(Purpose::Maintenance)?;
        Manifest::replace(self.vfs, ENGINE, &state.encode(), self.is_manifest_sound)?;
        self.aside.iter().try_for_each(|name| aside::leave(self.vfs.as_ref(), name))?;
        self.vfs.sync_dir(Purpose::Maintenance)?;
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

fn names_of(entry: StoreEntry) -> String {
    Kind::SortedStore.name(entry.number)
}
