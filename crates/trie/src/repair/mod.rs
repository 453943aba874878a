//! Repairs a damaged table, so that it opens with everything that is readable.
//!
//! 0. A consistent table is not changed.
//! 1. The manifest is read. If it is damaged, or names missing files while there are tables that it
//!    does not name, every table goes to the container in its footer, in the order of the sequence
//!    numbers in the footers. A table that a compaction had replaced but not yet removed may then
//!    make deleted keys reappear, and the report says so.
//! 2. Each table is read completely. In a damaged one valid buckets are found by its directory or,
//!    without one, on the grid of its buckets, by their checksums, which are seeded with the file's
//!    number and the offset; so are the frames of large items (`scan`). Their items go to new
//!    tables of the same container (`tables`).
//! 3. A damaged BloomCluster is dropped: the tables have their own filters, too.
//! 4. The chain of logs is read as by recovery, and also behind each damaged part: every intact
//!    record goes into a new table of the root container (`logs`).
//! 5. A new manifest names the result. Then damaged files are renamed to `*.damaged`, and
//!    completely replayed logs are removed. A repair that is interrupted before can be run again.
//!
//! Recovery guarantees a prefix of the writes. Repair saves more than that, and reports each gap: a
//! file, a byte range, and if known the operations in it.
//!
//! Memory: up to [`WINDOW_BYTES`] of a damaged table or a log. Only completely replayed logs are
//! deleted. The table must not be open.
//!
//! Invariant: every item is saved, or is in a reported loss.

mod logs;
mod scan;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use siltstone_durable::EditHeader;
use siltstone_durable::repair::{KnownManifest, ReplacedFiles, salvage_logs};
use siltstone_engine::{Error, Purpose, RepairReport, Result};
use siltstone_runtime::RateLimiter;
use siltstone_table::{FileNumbers, LogSalvage};
use siltstone_vfs::{Mode, Vfs};

use crate::cluster::Cluster;
use crate::config::TrieConfig;
use crate::files::{Kind, StorageTiers};
use crate::htable::{HTable, Origin};
use crate::options::Options;
use crate::tiering;
use crate::version::{AddedTable, Edit, Version};

/// Saved items of a damaged file are written when they reach this size.
const WINDOW_BYTES: usize = 64 << 20;

/// Repairs the table in `vfs`. Of the options only `fast_dir` is used; without it the path that the
/// table recorded is used.
///
/// # Errors
/// Failures of the file system; a newer format. Damage is repaired and reported, and is not an
/// error.
pub fn repair(vfs: &Arc<dyn Vfs>, options: &Options) -> Result<RepairReport> {
    // Without the fast tier its files would be reported as lost, and removed by the next open.
    let upper = options
        .fast_dir
        .clone()
        .map_or_else(|| tiering::fast_tier_dir(vfs.as_ref()), |u| Ok(Some(u)))?;
    let fast = upper.map(|upper| tiering::open(vfs.as_ref(), &upper));
    let (upper, _lock) = fast.transpose()?.unzip();
    repair_on(vfs, upper)
}

/// As [`repair`], with the fast tier given.
///
/// # Errors
/// Those of [`repair`].
pub fn repair_on(vfs: &Arc<dyn Vfs>, upper: Option<Arc<dyn Vfs>>) -> Result<RepairReport> {
    let tiers = StorageTiers { main: vfs.clone(), fast: upper.map(|upper| (upper, 0)) };
    let config =
        TrieConfig { fanout_bits: Options::default().fanout_bits, ..TrieConfig::default() };
    let rate = RateLimiter::unlimited();
    let (report, files) = Default::default();
    let mut repair = Repair { tiers, config, rate, report, files, next_file: 1 };
    repair.run()?;
    Ok(repair.report)
}

struct Repair {
    tiers: StorageTiers,
    config: TrieConfig,
    rate: RateLimiter,
    report: RepairReport,
    /// Damaged files and replayed logs.
    files: ReplacedFiles,
    next_file: u64,
}

impl Repair {
    fn run(&mut self) -> Result<()> {
        let mut files = BTreeMap::new();
        for vfs in self.tiers.all() {
            for name in vfs.list()? {
                if let Some((kind, number)) = Kind::parse(&name) {
                    files.insert((number, kind), vfs.clone());
                    self.next_file = self.next_file.max(number + 1);
                }
            }
        }
        let mut manifest = KnownManifest::<Version>::read(&self.tiers.main)?;
        if let Some(edit) = manifest.edit.as_ref().filter(|_| manifest.is_intact)
            && self.is_table_intact(edit)?
        {
            self.repair_owner(edit)?;
            self.report.note("everything that the manifest names is intact: nothing to repair");
            return Ok(());
        }
        let (known, has_manifest) = match manifest.edit.take() {
            Some(edit) if !self.is_superseded(&edit, &files)? => {
                manifest.report_damage(&mut self.report);
                (edit, true)
            }
            edit => {
                manifest.report_unusable("tables go where their footers say", &mut self.report);
                let config = edit.and_then(|edit| edit.config);
                let rebuild_state = self.rebuild_state(&files)?;
                (Edit { config: rebuild_state.config.or(config), ..rebuild_state }, false)
            }
        };
        // A number that cannot have been allocated is ignored.
        let next =
            FileNumbers::of_manifest(known.header.next_file).map_or(1, |numbers| numbers.next());
        self.next_file = self.next_file.max(next);
        self.config = known.config.unwrap_or(self.config);
        let mut state = Edit { config: Some(self.config), ..Edit::default() };
        for added in &known.added {
            self.check_table(added, &mut state)?;
        }
        for &(container_id, number, bytes) in &known.clusters {
            let cluster = Cluster::open(&self.tiers, number, bytes);
            match cluster.and_then(|cluster| cluster.load(Purpose::Maintenance)) {
                Ok(_) => state.clusters.push((container_id, number, bytes)),
                Err(error) if error.is_corruption() || error.is_not_found() => {
                    self.report
                        .note(format!("{error}: nothing is lost, filters are in the tables, too"));
                    let name = Kind::Cluster.name(number);
                    if self.tier_with(&name)?.is_some() {
                        self.files.keep(name, &mut self.report);
                    }
                }
                Err(other) => return Err(other),
            }
        }
        self.repair_owner(&known)?;
        let last_sequence = self.replay_chain(&known, has_manifest, &mut state)?;
        state.header.last_sequence = Some(last_sequence);
        self.write_manifest(state, manifest.is_intact && has_manifest)
    }

    /// Whether nothing needs repair.
    fn is_table_intact(&self, known: &Edit) -> Result<bool> {
        let Some(config) = known.config else { return Ok(false) };
        let mut is_intact = true;
        let mut note = |checked: Result<()>| match checked {
            Ok(()) => Ok(()),
            Err(error) if error.is_corruption() || error.is_not_found() => {
                is_intact = false;
                Ok(())
            }
            Err(other) => Err(other),
        };
        for added in &known.added {
            let table = HTable::open(&self.tiers, added.number, added.bytes, true).map(Arc::new);
            note(table.and_then(|table| table.verify(config.hash)))?;
        }
        for &(_, number, bytes) in &known.clusters {
            let cluster = Cluster::open(&self.tiers, number, bytes);
            note(cluster.and_then(|cluster| cluster.load(Purpose::Maintenance)).map(drop))?;
        }
        let logs = self.chain(known)?;
        Ok(is_intact && logs.iter().all(|log| log.damage.is_none()))
    }

    /// Rewrites the owner of the fast tier if it is damaged.
    fn repair_owner(&mut self, known: &Edit) -> Result<()> {
        let Some((upper, _)) = self.tiers.fast.clone() else { return Ok(()) };
        let mut are_own = false;
        for added in &known.added {
            if upper.exists(&Kind::HTable.name(added.number))? {
                let table = HTable::open(&self.tiers, added.number, added.bytes, false);
                are_own |= table.is_ok();
            }
        }
        if let Some(config) = known.config
            && tiering::repair_owner(&self.tiers, config.hash.seed, are_own)?
        {
            let note = format!("{}: OWNER was damaged, and is rebuilt", upper.name());
            self.report.note(note);
        }
        Ok(())
    }

    fn chain(&self, known: &Edit) -> Result<Vec<LogSalvage>> {
        salvage_logs(self.tiers.main.as_ref(), &known.header)
    }

    /// Whether the manifest is older than the files: it names missing ones, and not all tables.
    /// That happens with an older copy, or one that lost its end.
    fn is_superseded(
        &self,
        known: &Edit,
        files: &BTreeMap<(u64, Kind), Arc<dyn Vfs>>,
    ) -> Result<bool> {
        let named: BTreeSet<u64> = known.added.iter().map(|added| added.number).collect();
        let exists = |number: u64| files.contains_key(&(number, Kind::HTable));
        let has_missing_files = named.iter().any(|&number| !exists(number))
            || self.chain(known)?.iter().any(|log| log.file.is_none());
        let mut tables = files.keys().filter(|(_, kind)| *kind == Kind::HTable);
        Ok(has_missing_files && tables.any(|(number, _)| !named.contains(number)))
    }

    /// Reconstructs the state from the footers of the tables.
    fn rebuild_state(&mut self, files: &BTreeMap<(u64, Kind), Arc<dyn Vfs>>) -> Result<Edit> {
        let mut found = Vec::new();
        for (&(number, kind), vfs) in files {
            if kind != Kind::HTable {
                continue;
            }
            let name = Kind::HTable.name(number);
            let bytes = vfs.open(&name, Mode::Read)?.len()?;
            match HTable::open(&self.tiers, number, bytes, false) {
                Ok(table) => found.push((table.origin(), number, bytes)),
                // Without a footer its container is unknown: it becomes the oldest of the root.
                Err(Error::Corruption { .. }) => found.push((Origin::default(), number, bytes)),
                Err(other) => return Err(other),
            }
        }
        let config = found.iter().map(|(origin, ..)| origin.config).find(|s| s.fanout_bits > 0);
        found.sort_unstable_by_key(|&(origin, number, _)| (origin.last_sequence, number));
        let last_sequence = found.last().map(|(origin, ..)| origin.last_sequence);
        let added = |(origin, number, bytes): (Origin, u64, u64)| AddedTable {
            container_id: origin.container_id,
            number,
            bytes,
            is_oldest: false,
        };
        let added = found.into_iter().map(added).collect();
        let header = EditHeader { last_sequence, ..EditHeader::default() };
        Ok(Edit { header, added, config, ..Edit::default() })
    }

    fn write_manifest(&mut self, mut state: Edit, is_intact: bool) -> Result<()> {
        let next = Some(self.next_file);
        (state.header.next_file, state.header.first_log) = (next, next);
        let directories: Vec<_> = self.tiers.all().collect();
        self.files.replace_manifest::<Version>(&directories, &state, is_intact)?;
        self.report.note(format!("the new manifest names {} tables", state.added.len()));
        Ok(())
    }

    /// The tier with a file.
    fn tier_with(&self, name: &str) -> Result<Option<Arc<dyn Vfs>>> {
        for vfs in self.tiers.all() {
            if vfs.exists(name)? {
                return Ok(Some(vfs.clone()));
            }
        }
        Ok(None)
    }
}
