//! Damaged stores are repaired, and every row is accounted for.
//!
//! ```text
//!   store ──damage──▶ copy ─▶ open, scan, get, verify   no wrong result
//!                       └──▶ repair ─▶ report   the damaged files are still in the directory
//!                            repair ─▶ report   nothing has changed, nothing more is lost
//!                            open, verify, scan   no damage; each row is right, or reported lost
//! ```
//!
//! A store is written once (`store`) and damaged in many ways, each on a copy of its own: one bit
//! flipped, bytes zeroed, the file truncated, extended, deleted, exchanged with another of its
//! kind, replaced by an older copy. Values are random bytes, so the location of a row is found by
//! a search in the files (`account`), without knowledge of any format.
//!
//! Some damage looks like a power cut: an unclosed store loses the unsynced end of its last log,
//! or a whole edit of its manifest. Then open returns the state after fewer batches, and repair
//! must leave that state, or report the loss. Nor can an older copy of the only file of a store be
//! distinguished from the newest.
//!
//! Checked: rows kept + rows reported lost = rows written; a row is lost only if the
//! damaged file held it; nothing is deleted; a repaired store verifies, and a second repair changes
//! nothing.

mod account;
mod store;

use std::collections::BTreeMap;

use siltstone_engine::{Engine, Error, LossEffect, RepairReport};
use siltstone_runtime::Env;
use siltstone_vfs::Ram;

use crate::damage::with_timeout;
use crate::histories::catch_panics;
use crate::{CheckError, CheckResult, EngineUnderTest, Scale, session};
use account::Row;
use store::{Damage, Image, Store};

/// Damages per store. Many stores with few damages each reach more states than the reverse.
const DAMAGES_PER_STORE: u64 = 20;

/// The check stops after this many failures.
const MAX_FAILURES: usize = 6;

/// Repairs damaged stores.
///
/// # Errors
/// The damage after which a row was unaccounted for, or another failure.
pub fn repairs(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    let stores = scale.damaged_stores.div_ceil(DAMAGES_PER_STORE).max(1);
    let (mut summary, mut failures) = (Summary::default(), Vec::new());
    for case in scale.cases(stores, tested.option_set_count()) {
        let describe = |what: String| {
            let options = tested.describe(case.option_set);
            format!("{} ({options}): {what}\n{case}", tested.name())
        };
        let store = Store::write(tested, case)
            .map_err(|what| describe(format!("before any damage: {what}")))?;
        let mut damages = store.damages(DAMAGES_PER_STORE as usize);
        damages.retain(|damage| !tested.is_unrepairable(damage.path(), damage.kind()));
        // Several failures are collected, to show what they have in common.
        let judge = |damage: &Damage| Ok(judge(tested, &store, damage));
        with_timeout(tested.name(), &damages, judge, |damage, outcome| match outcome {
            Ok(outcome) => summary.count(damage, &outcome),
            Err(what) => {
                failures.push(describe(format!("{damage:?}: {what}\n  {}", store.describe())));
            }
        })
        .map_err(describe)?;
        if failures.len() >= MAX_FAILURES {
            break;
        }
    }
    match failures.is_empty() {
        true => Ok(summary.to_string()),
        false => Err(failures.join("\n\n")),
    }
}

/// The rows of a store.
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The result of a damage.
#[derive(Debug, Default)]
struct Outcome {
    /// Keys whose newest state is there.
    kept: u64,
    /// Keys whose newest state is lost, in a reported extent.
    lost: u64,
    /// A loss was reported, but every row is there.
    is_false_report: bool,
    /// The damage looks like a power cut: the store opened with fewer batches.
    looks_like_power_cut: bool,
}

fn judge(tested: &dyn EngineUnderTest, store: &Store, damage: &Damage) -> Result<Outcome, String> {
    let damaged = store.damaged(damage)?;
    let is_older_store = damage.is_older_copy() && tested.is_whole_store(damage.path());
    let may_lack_batches = is_older_store || !store.is_closed;
    let opened = catch_panics(|| before_repair(tested, store, &damaged.disk(), may_lack_batches))?;
    let disk = damaged.disk();
    let report = catch_panics(|| repair(tested, store, &disk, "repairing"))?;
    let repaired = Image::of(disk.as_ref())?;
    let lines = || report.lines.join("\n  ");
    for (path, bytes) in damaged.changed_from(&store.image) {
        let is_kept = bytes.is_empty() || repaired.files().any(|(_, kept)| kept == bytes);
        if !is_kept {
            return Err(format!("the damaged {path} is not kept\n  {}", lines()));
        }
    }
    let again = catch_panics(|| repair(tested, store, &disk, "repairing again"))?;
    if !again.is_lossless() {
        return Err(format!("a second repair loses more: {:?}\n  {}", again.lines, lines()));
    }
    if let Some(path) = Image::of(disk.as_ref())?.changed_from(&repaired).next() {
        return Err(format!("a second repair changes {}\n  {}", path.0, lines()));
    }
    let found = catch_panics(|| {
        let engine = open(tested, store, &disk)?;
        let verified = engine.verify(&mut |_, _| ())?;
        if !verified.is_intact() {
            return Err(CheckError::Mismatch(format!(
                "damage after repair: {:?}",
                verified.damage
            )));
        }
        rows(engine.as_ref(), store)
    })
    .map_err(|what| format!("after repair: {what}\n  {}", lines()))?;
    let excuse = opened.filter(|state| may_lack_batches && *state == found && report.is_lossless());
    account(store, &damaged, &found, &report, excuse.is_some())
        .map_err(|what| format!("{what}\n  {}", lines()))
}

fn open(
    tested: &dyn EngineUnderTest,
    store: &Store,
    disk: &std::sync::Arc<Ram>,
) -> Result<Box<dyn Engine>, CheckError> {
    let env = Env::replayable(store.clock.clone(), 0);
    Ok(tested.open(disk.clone(), env, store.option_set)?)
}

fn repair(
    tested: &dyn EngineUnderTest,
    store: &Store,
    disk: &std::sync::Arc<Ram>,
    what: &str,
) -> Result<RepairReport, CheckError> {
    let vfs: std::sync::Arc<dyn siltstone_vfs::Vfs> = disk.clone();
    let repaired = tested.repair(&vfs, store.option_set);
    repaired.map_err(|error| CheckError::Mismatch(format!("{what}: {error}")))
}

/// Opens and reads a damaged store. Returns its state if everything can be read and it is the state
/// after a prefix of the writes.
fn before_repair(
    tested: &dyn EngineUnderTest,
    store: &Store,
    disk: &std::sync::Arc<Ram>,
    may_lack_batches: bool,
) -> Result<Option<Rows>, CheckError> {
    let is_reported = |error: &Error| match error {
        Error::Refused { path, reason } => !path.is_empty() && !reason.is_empty(),
        Error::Corruption { file, reason, .. } => !file.is_empty() && !reason.is_empty(),
        _ => false,
    };
    let engine = match open(tested, store, disk) {
        Ok(engine) => engine,
        Err(CheckError::Engine(error)) if is_reported(&error) => return Ok(None),
        Err(wrong) => return Err(wrong),
    };
    let found = match rows(engine.as_ref(), store) {
        Ok(found) => found,
        Err(CheckError::Engine(error)) if is_reported(&error) => return Ok(None),
        Err(wrong) => return Err(wrong),
    };
    let Some(sequence) = store.history.sequence_of(&found) else {
        return Err(CheckError::Mismatch("before repair: a state that never existed".to_owned()));
    };
    if !may_lack_batches && sequence != store.history.last_sequence() {
        return Err(CheckError::Mismatch("before repair: a closed store lacks batches".to_owned()));
    }
    Ok(Some(found))
}

/// All rows by a scan; `get` must return the same.
fn rows(engine: &dyn Engine, store: &Store) -> Result<Rows, CheckError> {
    let found = session::contents(engine)?;
    let found: Rows = found.into_iter().map(|(key, entry)| (key, entry.value)).collect();
    for key in store.history.keys() {
        if engine.get(key)?.map(|entry| entry.value).as_ref() != found.get(key) {
            let key = crate::oracle::show(key);
            return Err(CheckError::Mismatch(format!("get {key} and a scan differ")));
        }
    }
    Ok(found)
}

/// Finds each key's newest state, or the reported loss of it.
fn account(
    store: &Store,
    damaged: &Image,
    found: &Rows,
    report: &RepairReport,
    looks_like_power_cut: bool,
) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    for (key, row) in store.history.rows() {
        let shown = crate::oracle::show(key);
        let is = found.get(key);
        if is == row.newest() {
            outcome.kept += 1;
            continue;
        }
        if is.is_some_and(|value| !row.ever_was(value)) {
            return Err(format!("{shown} has a value that was never written"));
        }
        outcome.lost += 1;
        if looks_like_power_cut {
            outcome.looks_like_power_cut = true;
            continue;
        }
        let is_missing = is.is_none();
        check_loss(store, damaged, key, row, is_missing, report).map_err(|what| {
            let how = if is_missing { "is missing" } else { "is old" };
            format!("{shown} {how}, and {what}")
        })?;
    }
    if let Some(key) = found.keys().find(|key| !store.history.has(key)) {
        return Err(format!("{} was never written", crate::oracle::show(key)));
    }
    outcome.is_false_report = outcome.lost == 0 && !report.is_lossless();
    Ok(outcome)
}

/// Checks that the loss of a row is in the report, and due to the damage.
fn check_loss(
    store: &Store,
    damaged: &Image,
    key: &[u8],
    row: &Row,
    is_missing: bool,
    report: &RepairReport,
) -> Result<(), String> {
    let is_order_lost = report.losses.iter().any(|loss| loss.effect == LossEffect::Order);
    if is_order_lost && !is_missing {
        return Ok(());
    }
    let locations = store.locations().get(key, row);
    let covering = report.losses.iter().find(|loss| {
        let covers = |(path, at): &&(String, u64)| {
            path.rsplit('/').next() == loss.file.rsplit('/').next() && loss.bytes.contains(at)
        };
        loss.effect == LossEffect::Entries && locations.iter().any(covers)
    });
    if covering.is_none() {
        return Err(format!("no reported loss covers any of its locations {locations:?}"));
    }
    let changed: Vec<_> = damaged.changed_from(&store.image).map(|(path, _)| path).collect();
    let deleted = store.image.files().filter(|(path, _)| !damaged.has(path)).map(|(path, _)| path);
    let changed: Vec<_> = changed.into_iter().chain(deleted).collect();
    // Without a manifest the locations of rows in persistent memory are unknown.
    let was_damaged = locations.iter().any(|location| changed.contains(&location.0.as_str()));
    if !was_damaged && !is_order_lost {
        return Err(format!("the damaged {changed:?} did not hold it, but {locations:?}"));
    }
    Ok(())
}

/// Damages by kind of file and of damage, and their results.
#[derive(Default)]
struct Summary {
    damages: u64,
    kinds: BTreeMap<(String, &'static str), [u64; 5]>,
}

impl Summary {
    fn count(&mut self, damage: &Damage, outcome: &Outcome) {
        self.damages += 1;
        let counts = self.kinds.entry((damage.kind_of_file(), damage.kind())).or_default();
        counts[0] += 1;
        counts[1] += u64::from(outcome.lost > 0 && !outcome.looks_like_power_cut);
        counts[2] += outcome.lost;
        counts[3] += u64::from(outcome.is_false_report);
        counts[4] += u64::from(outcome.looks_like_power_cut);
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} damaged stores", self.damages)?;
        for ((file, kind), [all, lossy, rows, false_reports, cuts]) in &self.kinds {
            write!(f, "\n    {file}, {kind}: {all}, of which {lossy} lost {rows} rows, ")?;
            write!(f, "{false_reports} falsely reported a loss, {cuts} look like a power cut")?;
        }
        Ok(())
    }
}
