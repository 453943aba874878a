//! Damaged stores are repaired, and every row is accounted for.
//!
//! ```text
//!   store ──damage──▶ copy ─▶ open, scan, get, verify   no wrong answer
//!                       └──▶ repair ─▶ report   the damaged files are still in the directory
//!                            repair ─▶ report   nothing has changed, nothing more is lost
//!                            open, verify, scan   sound; each row is right, or in a reported loss
//! ```
//!
//! A store is written once (`store`) and damaged in many ways, each on a copy of its own: one bit
//! flipped, bytes zeroed, the file cut off, extended, deleted, exchanged with another of its kind,
//! replaced by an older copy of itself. Values are random bytes, so where a row was is found by a
//! search in the files (`account`), without knowledge of any format.
//!
//! One damage cannot be told from what a power cut leaves: a store that was not closed loses the
//! unsynced end of its last log, or a whole edit of its manifest. Then opening gives the state
//! after fewer batches, and repair must leave just that, or report the loss. Nor can an older copy
//! of the only file of a store be told from the newest.
//!
//! Promise checked: rows kept + rows reported lost = rows written; a row is lost only if the
//! damaged file held it; nothing is deleted; a repaired store is sound, and a second repair leaves
//! it as it is.

mod account;
mod store;

use std::collections::BTreeMap;

use siltstone_engine::{Engine, Error, LossEffect, RepairReport};
use siltstone_runtime::Env;
use siltstone_vfs::Ram;

use crate::damage::watched;
use crate::histories::guarded;
use crate::{Scale, Subject, Verdict, Wrong, session};
use account::Row;
use store::{Damage, Image, Store};

/// Damages of each store. Many stores with few damages each meet more states than the reverse.
const DAMAGES_PER_STORE: u64 = 20;

/// After so many damages of which something was wrong no more are tried.
const MAX_WRONG: usize = 6;

/// Repairs damaged stores.
///
/// # Errors
/// The damage after which a row was unaccounted for, or what else is wrong.
pub fn repairs(subject: &dyn Subject, scale: &Scale) -> Verdict {
    let stores = scale.damaged_stores.div_ceil(DAMAGES_PER_STORE).max(1);
    let (mut tally, mut wrong) = (Tally::default(), Vec::new());
    for case in scale.cases(stores, subject.variants()) {
        let describe = |what: String| {
            let options = subject.describe(case.variant);
            format!("{} ({options}): {what}\n{case}", subject.name())
        };
        let store = Store::write(subject, case)
            .map_err(|what| describe(format!("before any damage: {what}")))?;
        let mut damages = store.damages(DAMAGES_PER_STORE as usize);
        damages.retain(|damage| !subject.gives_up_on(damage.path(), damage.kind()));
        // Several at once tell more of what they have in common.
        let judge = |damage: &Damage| Ok(judge(subject, &store, damage));
        watched(subject.name(), &damages, judge, |damage, outcome| match outcome {
            Ok(outcome) => tally.count(damage, &outcome),
            Err(what) => {
                wrong.push(describe(format!("{damage:?}: {what}\n  {}", store.describe())));
            }
        })
        .map_err(describe)?;
        if wrong.len() >= MAX_WRONG {
            break;
        }
    }
    match wrong.is_empty() {
        true => Ok(tally.to_string()),
        false => Err(wrong.join("\n\n")),
    }
}

/// The rows of a store.
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// What came of a damage.
#[derive(Debug, Default)]
struct Outcome {
    /// Keys whose newest state is there.
    kept: u64,
    /// Keys whose newest state is lost, in a reported extent.
    lost: u64,
    /// A loss was reported, and every row is there.
    reported_for_nothing: bool,
    /// It passes for a power cut: the store opened with fewer batches.
    passes_for_power_cut: bool,
}

fn judge(subject: &dyn Subject, store: &Store, damage: &Damage) -> Result<Outcome, String> {
    let damaged = store.damaged(damage)?;
    let is_older_store = damage.is_older_copy() && subject.is_whole_store(damage.path());
    let may_lack = is_older_store || !store.is_closed;
    let opened = guarded(|| before_repair(subject, store, &damaged.medium(), may_lack))?;
    let medium = damaged.medium();
    let report = guarded(|| repair(subject, store, &medium, "repairing"))?;
    let repaired = Image::of(&medium)?;
    let told = || report.lines.join("\n  ");
    for (path, bytes) in damaged.changed_from(&store.image) {
        let is_kept = bytes.is_empty() || repaired.files().any(|(_, kept)| kept == bytes);
        if !is_kept {
            return Err(format!("the damaged {path} is not kept\n  {}", told()));
        }
    }
    let again = guarded(|| repair(subject, store, &medium, "repairing again"))?;
    if !again.is_lossless() {
        return Err(format!("a second repair loses more: {:?}\n  {}", again.lines, told()));
    }
    if let Some(path) = Image::of(&medium)?.changed_from(&repaired).next() {
        return Err(format!("a second repair changes {}\n  {}", path.0, told()));
    }
    let found = guarded(|| {
        let engine = open(subject, store, &medium)?;
        let verified = engine.verify(&mut |_, _| ())?;
        if !verified.is_sound() {
            return Err(Wrong::Answer(format!("not sound after repair: {:?}", verified.damage)));
        }
        rows(engine.as_ref(), store)
    })
    .map_err(|what| format!("after repair: {what}\n  {}", told()))?;
    let excuse = opened.filter(|state| may_lack && *state == found && report.is_lossless());
    account(store, &damaged, &found, &report, excuse.is_some())
        .map_err(|what| format!("{what}\n  {}", told()))
}

fn open(
    subject: &dyn Subject,
    store: &Store,
    medium: &std::sync::Arc<Ram>,
) -> Result<Box<dyn Engine>, Wrong> {
    let env = Env::replayable(store.clock.clone(), 0);
    Ok(subject.open(medium.clone(), env, store.variant)?)
}

fn repair(
    subject: &dyn Subject,
    store: &Store,
    medium: &std::sync::Arc<Ram>,
    what: &str,
) -> Result<RepairReport, Wrong> {
    let vfs: std::sync::Arc<dyn siltstone_vfs::Vfs> = medium.clone();
    let repaired = subject.repair(&vfs, store.variant);
    repaired.map_err(|error| Wrong::Answer(format!("{what}: {error}")))
}

/// Opens and reads a damaged store. Its state, if it is one of a prefix of the writes and
/// everything can be read.
fn before_repair(
    subject: &dyn Subject,
    store: &Store,
    medium: &std::sync::Arc<Ram>,
    may_lack: bool,
) -> Result<Option<Rows>, Wrong> {
    let is_told = |error: &Error| match error {
        Error::Refused { path, reason } => !path.is_empty() && !reason.is_empty(),
        Error::Corruption { file, reason, .. } => !file.is_empty() && !reason.is_empty(),
        _ => false,
    };
    let engine = match open(subject, store, medium) {
        Ok(engine) => engine,
        Err(Wrong::Fault(error)) if is_told(&error) => return Ok(None),
        Err(wrong) => return Err(wrong),
    };
    let found = match rows(engine.as_ref(), store) {
        Ok(found) => found,
        Err(Wrong::Fault(error)) if is_told(&error) => return Ok(None),
        Err(wrong) => return Err(wrong),
    };
    let Some(moment) = store.history.moment_of(&found) else {
        return Err(Wrong::Answer("before repair: an answer of no moment".to_owned()));
    };
    if !may_lack && moment != store.history.last_moment() {
        return Err(Wrong::Answer("before repair: a closed store lacks batches".to_owned()));
    }
    Ok(Some(found))
}

/// All rows by a scan, each of which `get` must give, too.
fn rows(engine: &dyn Engine, store: &Store) -> Result<Rows, Wrong> {
    let found = session::contents(engine)?;
    let found: Rows = found.into_iter().map(|(key, entry)| (key, entry.value)).collect();
    for key in store.history.keys() {
        if engine.get(key)?.map(|entry| entry.value).as_ref() != found.get(key) {
            let key = crate::oracle::show(key);
            return Err(Wrong::Answer(format!("get {key} is not what a scan finds")));
        }
    }
    Ok(found)
}

/// Finds for each key its newest state, or the reported loss of it.
fn account(
    store: &Store,
    damaged: &Image,
    found: &Rows,
    report: &RepairReport,
    passes_for_power_cut: bool,
) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    for (key, row) in store.history.rows() {
        let shown = crate::oracle::show(key);
        let is = found.get(key);
        if is == row.newest() {
            outcome.kept += 1;
            continue;
        }
        if is.is_some_and(|value| !row.was(value)) {
            return Err(format!("{shown} has a value that was never written"));
        }
        outcome.lost += 1;
        if passes_for_power_cut {
            outcome.passes_for_power_cut = true;
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
    outcome.reported_for_nothing = outcome.lost == 0 && !report.is_lossless();
    Ok(outcome)
}

/// Whether the loss of a row is in the report, and due to the damage.
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
    let places = store.places().get(key, row);
    let covering = report.losses.iter().find(|loss| {
        let covers = |(path, at): &&(String, u64)| {
            path.rsplit('/').next() == loss.file.rsplit('/').next() && loss.bytes.contains(at)
        };
        loss.effect == LossEffect::Entries && places.iter().any(covers)
    });
    if covering.is_none() {
        return Err(format!("no reported loss covers any of its places {places:?}"));
    }
    let changed: Vec<_> = damaged.changed_from(&store.image).map(|(path, _)| path).collect();
    let deleted = store.image.files().filter(|(path, _)| !damaged.has(path)).map(|(path, _)| path);
    let changed: Vec<_> = changed.into_iter().chain(deleted).collect();
    // Without a manifest nothing tells where rows in persistent memory are.
    let was_damaged = places.iter().any(|place| changed.contains(&place.0.as_str()));
    if !was_damaged && !is_order_lost {
        return Err(format!("the damaged {changed:?} did not hold it, but {places:?}"));
    }
    Ok(())
}

/// Damages by kind of file and of damage, and what came of them.
#[derive(Default)]
struct Tally {
    damages: u64,
    kinds: BTreeMap<(String, &'static str), [u64; 5]>,
}

impl Tally {
    fn count(&mut self, damage: &Damage, outcome: &Outcome) {
        self.damages += 1;
        let counts = self.kinds.entry((damage.kind_of_file(), damage.kind())).or_default();
        counts[0] += 1;
        counts[1] += u64::from(outcome.lost > 0 && !outcome.passes_for_power_cut);
        counts[2] += outcome.lost;
        counts[3] += u64::from(outcome.reported_for_nothing);
        counts[4] += u64::from(outcome.passes_for_power_cut);
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} damaged stores", self.damages)?;
        for ((file, kind), [all, lossy, rows, for_nothing, cuts]) in &self.kinds {
            write!(f, "\n    {file}, {kind}: {all}, of which {lossy} lost {rows} rows, ")?;
            write!(f, "{for_nothing} reported a loss of none, {cuts} pass for a power cut")?;
        }
        Ok(())
    }
}
