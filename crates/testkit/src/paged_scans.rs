//! Scans in pages: each page has a new cursor that resumes at the position of the last.
//!
//! Between pages keys are written and deleted, flushed and compacted, and at times the table is
//! reopened. The check knows each key's present value, and whether the key existed throughout the
//! scan.
//!
//! Checked: every key that exists throughout is returned, in ordered engines once; an entry
//! of a page exists when the page's cursor is created, with that value; an unchanging table returns
//! each key once; invalid positions are refused or resume somewhere, without harm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

use crate::histories::catch_panics;
use crate::history::EPOCH;
use crate::{CheckError, CheckResult, EngineUnderTest, Scale, TestRng};

/// Keys are below this number.
const KEYS: u64 = 1500;

/// Scans tables in pages.
///
/// # Errors
/// A missing or wrong key, and how to repeat it.
pub fn paged_scans(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    let mut pages = 0;
    for case in scale.cases(scale.histories / 4, tested.option_set_count()) {
        let trial = || {
            let mut table = Table::open(tested, case.option_set, TestRng::of(case.seed, 5))?;
            let writes = table.rng.below(3000);
            table.change(writes)?;
            table.scan_unchanging()?;
            pages += table.scan_changing()?;
            table.resume_at_invalid_positions()
        };
        catch_panics(trial).map_err(|what| {
            let options = tested.describe(case.option_set);
            format!("{} ({options}): {what}\n{case}", tested.name())
        })?;
    }
    Ok(format!("{pages} pages over changing tables"))
}

/// A table and its expected contents.
struct Table<'s> {
    tested: &'s dyn EngineUnderTest,
    option_set: u32,
    vfs: Arc<dyn Vfs>,
    engine: Box<dyn Engine>,
    rng: TestRng,
    live: BTreeMap<u64, Vec<u8>>,
    /// Keys that existed throughout the scan.
    always: BTreeSet<u64>,
}

/// Keys and values of a page, and the position of the next one.
type Page = (Vec<(u64, Vec<u8>)>, Option<Vec<u8>>);

impl<'s> Table<'s> {
    fn open(
        tested: &'s dyn EngineUnderTest,
        option_set: u32,
        rng: TestRng,
    ) -> Result<Self, CheckError> {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let engine = Self::open_engine(tested, option_set, &vfs)?;
        let (live, always) = (BTreeMap::new(), BTreeSet::new());
        Ok(Table { tested, option_set, vfs, engine, rng, live, always })
    }

    fn open_engine(
        tested: &dyn EngineUnderTest,
        option_set: u32,
        vfs: &Arc<dyn Vfs>,
    ) -> Result<Box<dyn Engine>, CheckError> {
        let env = Env::replayable(Arc::new(ManualClock::at(EPOCH)), 7);
        Ok(tested.open(vfs.clone(), env, option_set)?)
    }

    /// Writes and deletes `writes` keys, and at times flushes, compacts or reopens the table.
    fn change(&mut self, writes: u64) -> Result<(), CheckError> {
        for _ in 0..writes {
            let key = self.rng.below(KEYS);
            let mut batch = WriteBatch::new();
            if self.rng.one_in(6) {
                batch.delete(&key.to_be_bytes());
                self.live.remove(&key);
                self.always.remove(&key);
            } else {
                let len = if self.rng.one_in(60) { 900 } else { self.rng.below(60) };
                let value = self.rng.bytes(len as usize);
                batch.put(&key.to_be_bytes(), &value);
                self.live.insert(key, value);
            }
            self.engine.write(&batch, Durability::Buffered)?;
        }
        match self.rng.below(12) {
            0 => self.engine.flush()?,
            1 | 2 => self.engine.maintain()?,
            3 if self.engine.capabilities().durable => {
                self.engine.close()?;
                self.engine = Self::open_engine(self.tested, self.option_set, &self.vfs)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A page of up to `max` entries from a position on.
    fn page(&self, from: Option<&[u8]>, max: u64) -> Result<Page, CheckError> {
        let mut cursor = self.engine.iter()?;
        let mut is_valid = match from {
            None => cursor.first()?,
            Some(position) => cursor.resume(position)?,
        };
        let mut entries = Vec::new();
        while is_valid {
            let key = cursor.key().first_chunk().map_or(u64::MAX, |key| u64::from_be_bytes(*key));
            entries.push((key, cursor.value().to_vec()));
            if entries.len() as u64 == max {
                return Ok((entries, Some(cursor.position())));
            }
            is_valid = cursor.next()?;
        }
        Ok((entries, None))
    }

    fn scan_unchanging(&self) -> Result<(), CheckError> {
        for max in [20, 5000] {
            let (mut shown, mut from) = (Vec::new(), None);
            loop {
                let (more, next) = self.page(from.as_deref(), max)?;
                shown.extend(more);
                from = next;
                if from.is_none() {
                    break;
                }
            }
            let count = shown.len();
            let is_right = shown.into_iter().collect::<BTreeMap<_, _>>() == self.live;
            if !is_right || count != self.live.len() {
                let expected = self.live.len();
                let what = format!("pages of {max} show {count} of {expected} entries, or others");
                return Err(CheckError::Mismatch(what));
            }
        }
        Ok(())
    }

    fn scan_changing(&mut self) -> Result<u64, CheckError> {
        self.always = self.live.keys().copied().collect();
        let (mut shown, mut from, mut pages) = (BTreeSet::new(), None, 0);
        loop {
            let max = 1 + self.rng.below(60);
            let (entries, next) = self.page(from.as_deref(), max)?;
            for (key, value) in entries {
                if self.live.get(&key) != Some(&value) {
                    let exists = self.live.contains_key(&key);
                    let what = if exists { "with another value" } else { "and does not exist" };
                    return Err(CheckError::Mismatch(format!("key {key} is shown {what}")));
                }
                let is_new = shown.insert(key);
                if !is_new && self.engine.capabilities().ordered {
                    return Err(CheckError::Mismatch(format!("key {key} is shown twice")));
                }
            }
            (from, pages) = (next, pages + 1);
            if from.is_none() {
                break;
            }
            let writes = self.rng.below(150);
            self.change(writes)?;
        }
        match self.always.difference(&shown).next() {
            Some(key) => {
                Err(CheckError::Mismatch(format!("key {key} existed throughout, and was missed")))
            }
            None => Ok(pages),
        }
    }

    fn resume_at_invalid_positions(&self) -> Result<(), CheckError> {
        let Some(position) = self.page(None, 10)?.1 else { return Ok(()) };
        for at in 0..position.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = position.clone();
                bad[at] = value;
                match self.engine.iter()?.resume(&bad) {
                    Ok(_) | Err(Error::Invalid(_)) => {}
                    Err(other) => return Err(other.into()),
                }
            }
        }
        Ok(())
    }
}
