//! Walks in pages: a cursor for each, which goes on where the one before stood.
//!
//! Between pages keys are written and deleted, flushed and compacted, and now and then the table is opened
//! anew. What is known of each key is its value now, and whether it was there all the time since the walk
//! was begun.
//!
//! Promise checked: every key that is there all the time is shown, in ordered engines once; what a page
//! shows is there when its cursor is made, with that value; a table at rest shows each key once; bytes that
//! are no position are refused or go on somewhere, and do no harm.
//!
//! Source: ours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

use crate::histories::guarded;
use crate::history::EPOCH;
use crate::{Dice, Scale, Subject, Verdict, Wrong};

/// Keys are below this number.
const KEYS: u64 = 1500;

/// Walks tables in pages.
///
/// # Errors
/// Which key was missed or shown wrongly, and how to repeat it.
pub fn walks_in_pages(subject: &dyn Subject, scale: &Scale) -> Verdict {
    let mut pages = 0;
    for case in scale.cases(scale.histories / 4, subject.variants()) {
        let trial = || {
            let mut table = Table::open(subject, case.variant, Dice::of(case.seed, 5))?;
            let writes = table.dice.below(3000);
            table.change(writes)?;
            table.walk_at_rest()?;
            pages += table.walk_while_it_changes()?;
            table.refuse_what_is_no_position()
        };
        guarded(trial).map_err(|what| {
            let options = subject.describe(case.variant);
            format!("{} ({options}): {what}\n{case}", subject.name())
        })?;
    }
    Ok(format!("{pages} pages over changing tables"))
}

/// A table, and what is in it.
struct Table<'s> {
    subject: &'s dyn Subject,
    variant: u32,
    vfs: Arc<dyn Vfs>,
    engine: Box<dyn Engine>,
    dice: Dice,
    live: BTreeMap<u64, Vec<u8>>,
    /// Keys that were there all the time since the walk was begun.
    always: BTreeSet<u64>,
}

/// Keys and values of a page, and where the next one begins.
type Page = (Vec<(u64, Vec<u8>)>, Option<Vec<u8>>);

impl<'s> Table<'s> {
    fn open(subject: &'s dyn Subject, variant: u32, dice: Dice) -> Result<Self, Wrong> {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let engine = Self::opened(subject, variant, &vfs)?;
        let (live, always) = (BTreeMap::new(), BTreeSet::new());
        Ok(Table { subject, variant, vfs, engine, dice, live, always })
    }

    fn opened(
        subject: &dyn Subject,
        variant: u32,
        vfs: &Arc<dyn Vfs>,
    ) -> Result<Box<dyn Engine>, Wrong> {
        let env = Env::replayable(Arc::new(ManualClock::at(EPOCH)), 7);
        Ok(subject.open(vfs.clone(), env, variant)?)
    }

    /// Writes and deletes so many keys, and sometimes flushes, compacts or opens the table anew.
    fn change(&mut self, writes: u64) -> Result<(), Wrong> {
        for _ in 0..writes {
            let key = self.dice.below(KEYS);
            let mut batch = WriteBatch::new();
            if self.dice.one_in(6) {
                batch.delete(&key.to_be_bytes());
                self.live.remove(&key);
                self.always.remove(&key);
            } else {
                let len = if self.dice.one_in(60) { 900 } else { self.dice.below(60) };
                let value = self.dice.bytes(len as usize);
                batch.put(&key.to_be_bytes(), &value);
                self.live.insert(key, value);
            }
            self.engine.write(&batch, Durability::Buffered)?;
        }
        match self.dice.below(12) {
            0 => self.engine.flush()?,
            1 | 2 => self.engine.maintain()?,
            3 if self.engine.capabilities().durable => {
                self.engine.close()?;
                self.engine = Self::opened(self.subject, self.variant, &self.vfs)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A page of at most `most` entries from a position on.
    fn page(&self, from: Option<&[u8]>, most: u64) -> Result<Page, Wrong> {
        let mut cursor = self.engine.iter()?;
        let mut is_there = match from {
            None => cursor.first()?,
            Some(position) => cursor.resume(position)?,
        };
        let mut entries = Vec::new();
        while is_there {
            let key = cursor.key().first_chunk().map_or(u64::MAX, |key| u64::from_be_bytes(*key));
            entries.push((key, cursor.value().to_vec()));
            if entries.len() as u64 == most {
                return Ok((entries, Some(cursor.position())));
            }
            is_there = cursor.next()?;
        }
        Ok((entries, None))
    }

    fn walk_at_rest(&self) -> Result<(), Wrong> {
        for most in [20, 5000] {
            let (mut shown, mut from) = (Vec::new(), None);
            loop {
                let (more, next) = self.page(from.as_deref(), most)?;
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
                let what = format!("pages of {most} show {count} entries of {expected}, or others");
                return Err(Wrong::Answer(what));
            }
        }
        Ok(())
    }

    fn walk_while_it_changes(&mut self) -> Result<u64, Wrong> {
        self.always = self.live.keys().copied().collect();
        let (mut shown, mut from, mut pages) = (BTreeSet::new(), None, 0);
        loop {
            let most = 1 + self.dice.below(60);
            let (entries, next) = self.page(from.as_deref(), most)?;
            for (key, value) in entries {
                if self.live.get(&key) != Some(&value) {
                    let there = self.live.contains_key(&key);
                    let what = if there { "with another value" } else { "and is not there" };
                    return Err(Wrong::Answer(format!("key {key} is shown {what}")));
                }
                let is_new = shown.insert(key);
                if !is_new && self.engine.capabilities().ordered {
                    return Err(Wrong::Answer(format!("key {key} is shown twice")));
                }
            }
            (from, pages) = (next, pages + 1);
            if from.is_none() {
                break;
            }
            let writes = self.dice.below(150);
            self.change(writes)?;
        }
        match self.always.difference(&shown).next() {
            Some(key) => {
                Err(Wrong::Answer(format!("key {key} was there all the time, and missed")))
            }
            None => Ok(pages),
        }
    }

    fn refuse_what_is_no_position(&self) -> Result<(), Wrong> {
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
