//! Makes a damaged table open again, with all that can be read.
//!
//! 0. A table that is sound is left as it is.
//! 1. The manifest is read. If it does not hold, or names files that are missing while others are
//!    there that
//!    it does not name, every table goes where its footer says, in the order of the sequence
//!    numbers
//!    that the footers state. A table that a compaction had replaced and that was not yet removed
//!    may
//!    then show deleted keys again, and the report says so.
//! 2. Each table is read whole. A damaged one is searched for buckets that hold, by its directory
//!    or,
//!    without one, on the grid of its buckets: a checksum that is seeded by the file's number and
//!    the
//!    place proves each. What they hold goes to new tables in the same place of the trie
//!    (`tables`).
//! 3. A damaged BloomCluster is forgotten: the tables have their filters themselves.
//! 4. The chain of logs is read as opening reads it, and behind each damage, too: every whole
//!    record goes
//!    into a new table of the root container (`logs`).
//! 5. A new manifest names the result. Then damaged files are kept beside it under `*.damaged`, and
//!    logs
//!    that were replayed whole are removed: a repair that is cut off before can be run again.
//!
//! Opening promises a prefix of the writes. Repair saves more on purpose, and reports each gap: a
//! file, its bytes, and where it is known the operations that were there.
//!
//! In memory are at most some [`WINDOW_BYTES`] of a damaged table or a log. Nothing is deleted but
//! logs that were replayed whole. The table must not be open.
//!
//! Invariant: every item is saved, or lies in a reported loss.

mod logs;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use siltstone_engine::{Error, Loss, Purpose, RepairReport, Result};
use siltstone_runtime::RateLimiter;
use siltstone_table::{FileNumbers, LogSalvage, Manifest, aside, salvage_chain};
use siltstone_vfs::{Mode, Vfs};

use crate::cluster::Cluster;
use crate::files::{Homes, Kind};
use crate::htable::{HTable, Origin};
use crate::options::Options;
use crate::second;
use crate::version::{Added, ENGINE, Edit, TrieShape, fold};

/// Items saved of a damaged file are written out when they take so much.
const WINDOW_BYTES: usize = 64 << 20;

/// Repairs the table on `media`, opened with these options. Of the options only `upper` matters;
/// without it the table's own note of it counts.
///
/// # Errors
/// Failures of the medium; a newer format. Damage is not an error here: it is what is repaired.
pub fn repair(vfs: &Arc<dyn Vfs>, options: &Options) -> Result<RepairReport> {
    // Without the files that are there they would pass for lost, and be removed at the next
    // opening.
    let upper =
        options.upper.clone().map_or_else(|| second::upper_of(vfs.as_ref()), |u| Ok(Some(u)))?;
    let second = upper.map(|upper| second::open(vfs.as_ref(), &upper));
    let (upper, _lock) = second.transpose()?.unzip();
    repair_on(vfs, upper)
}

/// The same with the second medium given.
///
/// # Errors
/// Those of [`repair`].
pub fn repair_on(vfs: &Arc<dyn Vfs>, upper: Option<Arc<dyn Vfs>>) -> Result<RepairReport> {
    let homes = Homes { main: vfs.clone(), upper: upper.map(|upper| (upper, 0)) };
    let shape = TrieShape { fanout_bits: Options::default().fanout_bits, ..TrieShape::default() };
    let rate = RateLimiter::unlimited();
    let (report, aside, replayed) = Default::default();
    let mut repair = Repair { homes, shape, rate, report, aside, replayed, next_file: 1 };
    repair.run()?;
    Ok(repair.report)
}

struct Repair {
    homes: Homes,
    shape: TrieShape,
    rate: RateLimiter,
    report: RepairReport,
    /// Damaged files, to be kept under another name once the new manifest is in force.
    aside: BTreeSet<String>,
    /// Logs, to be removed then.
    replayed: BTreeSet<String>,
    next_file: u64,
}

impl Repair {
    fn run(&mut self) -> Result<()> {
        let mut files = BTreeMap::new();
        for vfs in self.homes.all() {
            for name in vfs.list()? {
                if let Some((kind, number)) = Kind::parse(&name) {
                    files.insert((number, kind), vfs.clone());
                    self.next_file = self.next_file.max(number + 1);
                }
            }
        }
        let rescued = Manifest::rescue(&self.homes.main, ENGINE)?;
        let edit = match rescued.edits.as_ref().map(|edits| fold(edits)) {
            Some(Err(error)) if !error.is_corruption() => return Err(error),
            edit => edit.transpose().unwrap_or(None),
        };
        let is_sound = edit.is_some() && rescued.damage.is_none() && !rescued.is_torn;
        if let Some(edit) = edit.as_ref().filter(|_| is_sound)
            && self.is_table_sound(edit)?
        {
            self.mend_owner(edit)?;
            self.report.note("everything that the manifest names is sound: nothing to repair");
            return Ok(());
        }
        let (known, has_manifest) = match edit {
            Some(edit) if !self.is_superseded(&edit, &files)? => {
                if let Some((file, reason)) = &rescued.damage {
                    self.report.note(format!(
                        "{file} is damaged ({reason}): the newest manifest is read, and holds"
                    ));
                }
                (edit, true)
            }
            edit => {
                let (file, reason) = rescued.damage.unwrap_or_else(|| {
                    let reason = "it does not fit the files that are there".to_owned();
                    (rescued.name.unwrap_or_else(|| "MANIFEST".to_owned()), reason)
                });
                self.report.note(format!(
                    "the manifest does not hold ({file}: {reason}): tables go where their footers say"
                ));
                self.report.lose(Loss::order(file));
                let shape = edit.and_then(|edit| edit.shape);
                let guess = self.guess(&files)?;
                (Edit { shape: guess.shape.or(shape), ..guess }, false)
            }
        };
        // What no table can have come to is no use.
        let next = FileNumbers::of_manifest(known.next_file).map_or(1, |numbers| numbers.next());
        self.next_file = self.next_file.max(next);
        self.shape = known.shape.unwrap_or(self.shape);
        let mut state = Edit { shape: Some(self.shape), ..Edit::default() };
        for added in &known.added {
            self.check_table(added, &mut state)?;
        }
        for &(place, number, bytes) in &known.clusters {
            let cluster = Cluster::open(&self.homes, number, bytes);
            match cluster.and_then(|cluster| cluster.load(Purpose::Maintenance)) {
                Ok(_) => state.clusters.push((place, number, bytes)),
                Err(error) if error.is_corruption() || error.is_not_found() => {
                    self.report
                        .note(format!("{error}: nothing is lost, filters are in the tables, too"));
                    let name = Kind::Cluster.name(number);
                    if self.medium_of(&name)?.is_some() {
                        self.keep(name);
                    }
                }
                Err(other) => return Err(other),
            }
        }
        self.mend_owner(&known)?;
        let last_sequence = self.replay_chain(&known, has_manifest, &mut state)?;
        let state = Edit { last_sequence: Some(last_sequence), ..state };
        self.write_manifest(state, is_sound && has_manifest)
    }

    /// Whether nothing is to be repaired.
    fn is_table_sound(&self, known: &Edit) -> Result<bool> {
        let Some(shape) = known.shape else { return Ok(false) };
        let mut is_sound = true;
        let mut note = |checked: Result<()>| match checked {
            Ok(()) => Ok(()),
            Err(error) if error.is_corruption() || error.is_not_found() => {
                is_sound = false;
                Ok(())
            }
            Err(other) => Err(other),
        };
        for added in &known.added {
            let table = HTable::open(&self.homes, added.number, added.bytes, true).map(Arc::new);
            note(table.and_then(|table| table.verify(shape.hash)))?;
        }
        for &(_, number, bytes) in &known.clusters {
            let cluster = Cluster::open(&self.homes, number, bytes);
            note(cluster.and_then(|cluster| cluster.load(Purpose::Maintenance)).map(drop))?;
        }
        let logs = self.chain(known)?;
        Ok(is_sound && logs.iter().all(|log| log.damage.is_none()))
    }

    /// Has the second medium name its owner again if that is damaged.
    fn mend_owner(&mut self, known: &Edit) -> Result<()> {
        let Some((upper, _)) = self.homes.upper.clone() else { return Ok(()) };
        let mut are_ours = false;
        for added in &known.added {
            if upper.exists(&Kind::HTable.name(added.number))? {
                let table = HTable::open(&self.homes, added.number, added.bytes, false);
                are_ours |= table.is_ok();
            }
        }
        if let Some(shape) = known.shape
            && second::mend_owner(&self.homes, shape.hash.seed, are_ours)?
        {
            let note = format!("{}: OWNER was damaged, and is made anew", upper.name());
            self.report.note(note);
        }
        Ok(())
    }

    fn chain(&self, known: &Edit) -> Result<Vec<LogSalvage>> {
        let first = Some(known.first_log.unwrap_or(0));
        salvage_chain(self.homes.main.as_ref(), first, known.sealed_log, None)
    }

    /// Whether the manifest is of before the files that are there: it names some that are missing,
    /// and does not name all tables. An older copy would say so, or one that lost its end.
    fn is_superseded(
        &self,
        known: &Edit,
        files: &BTreeMap<(u64, Kind), Arc<dyn Vfs>>,
    ) -> Result<bool> {
        let named: BTreeSet<u64> = known.added.iter().map(|added| added.number).collect();
        let is_there = |number: u64| files.contains_key(&(number, Kind::HTable));
        let is_lacking = named.iter().any(|&number| !is_there(number))
            || self.chain(known)?.iter().any(|log| log.file.is_none());
        let mut tables = files.keys().filter(|(_, kind)| *kind == Kind::HTable);
        Ok(is_lacking && tables.any(|(number, _)| !named.contains(number)))
    }

    /// What a manifest would say, as far as the tables tell.
    fn guess(&mut self, files: &BTreeMap<(u64, Kind), Arc<dyn Vfs>>) -> Result<Edit> {
        let mut found = Vec::new();
        for (&(number, kind), vfs) in files {
            if kind != Kind::HTable {
                continue;
            }
            let name = Kind::HTable.name(number);
            let bytes = vfs.open(&name, Mode::Read)?.len()?;
            match HTable::open(&self.homes, number, bytes, false) {
                Ok(table) => found.push((table.origin(), number, bytes)),
                // Without a footer nobody knows its place: the root shows it, as the oldest there.
                Err(Error::Corruption { .. }) => found.push((Origin::default(), number, bytes)),
                Err(other) => return Err(other),
            }
        }
        let shape = found.iter().map(|(origin, ..)| origin.shape).find(|s| s.fanout_bits > 0);
        found.sort_unstable_by_key(|&(origin, number, _)| (origin.last_sequence, number));
        let last_sequence = found.last().map(|(origin, ..)| origin.last_sequence);
        let added = |(origin, number, bytes): (Origin, u64, u64)| Added {
            place: origin.place,
            number,
            bytes,
            is_oldest: false,
        };
        let added = found.into_iter().map(added).collect();
        Ok(Edit { added, shape, last_sequence, ..Edit::default() })
    }

    fn write_manifest(&mut self, state: Edit, is_sound: bool) -> Result<()> {
        let first = Some(self.next_file);
        let state = Edit { next_file: first, first_log: first, ..state };
        self.aside.iter().try_for_each(|name| self.put_aside(name, aside::keep))?;
        self.homes.sync_dirs(Purpose::Maintenance)?;
        let vfs = &self.homes.main;
        Manifest::replace(vfs, ENGINE, &state.encode(), is_sound)?;
        self.aside.iter().try_for_each(|name| self.put_aside(name, aside::leave))?;
        let replayed = self.replayed.iter().filter(|name| !self.aside.contains(*name));
        replayed.into_iter().try_for_each(|name| vfs.remove(name))?;
        self.homes.sync_dirs(Purpose::Maintenance)?;
        self.report.note(format!("the new manifest names {} tables", state.added.len()));
        Ok(())
    }

    fn put_aside(&self, name: &str, put: fn(&dyn Vfs, &str) -> Result<()>) -> Result<()> {
        self.medium_of(name)?.map_or(Ok(()), |vfs| put(vfs.as_ref(), name))
    }

    /// The medium on which a file is.
    fn medium_of(&self, name: &str) -> Result<Option<Arc<dyn Vfs>>> {
        for vfs in self.homes.all() {
            if vfs.exists(name)? {
                return Ok(Some(vfs.clone()));
            }
        }
        Ok(None)
    }

    /// Keeps a damaged file under another name, and says so.
    fn keep(&mut self, name: String) {
        self.report.note(format!("{name} is kept as {name}.damaged"));
        self.aside.insert(name);
    }
}
