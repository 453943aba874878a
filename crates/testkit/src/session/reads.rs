//! The reads of a session: each result of the engine is compared with the oracle's.

use std::hash::Hash;
use std::sync::Arc;

use siltstone_engine::{Clock, Error, KeyRange, ReadPoint, Timestamp};
use siltstone_vfs::{Ram, Vfs};

use super::Session;
use super::entries::contents;
use crate::oracle::{compare, show, show_entry};
use crate::sink::VfsSink;
use crate::{CheckError, CheckedCursor, Move};

impl Session<'_> {
    /// The snapshot that a step names, if there is any.
    fn snapshot(&self, number: Option<usize>) -> Option<&(ReadPoint, u64)> {
        number?.checked_rem(self.snapshots.len()).map(|at| &self.snapshots[at])
    }

    pub(super) fn get(&mut self, key: &[u8], number: Option<usize>) -> Result<(), CheckError> {
        let (found, sequence) = match self.snapshot(number) {
            Some((point, sequence)) => (self.engine().get_at(key, point)?, *sequence),
            None => (self.engine().get(key)?, self.oracle.sequence()),
        };
        let expected = self.oracle.get(key, sequence, self.clock.now());
        let fits = match (&expected, &found) {
            (None, None) => true,
            (Some(expected), None) => !expected.certain,
            (Some(expected), Some(found)) => expected.entry == found,
            (None, Some(_)) => false,
        };
        if !fits {
            let (should, is) = (show_entry(expected.map(|e| e.entry)), show_entry(found.as_ref()));
            let at = if sequence == self.oracle.sequence() { "" } else { " at a snapshot" };
            let what = format!("get {}{at} should return {should} and returns {is}", show(key));
            return Err(CheckError::Mismatch(what));
        }
        self.record(found.map(|entry| (entry.value, entry.expires_at)));
        Ok(())
    }

    /// A cursor over a range, at a snapshot or now, for a clock that never shows less than `now`.
    ///
    /// # Errors
    /// The engine's.
    pub fn checked_cursor(
        &self,
        range: &KeyRange,
        number: Option<usize>,
        now: Timestamp,
    ) -> Result<CheckedCursor, CheckError> {
        let (point, sequence) = match self.snapshot(number) {
            Some((point, sequence)) => (Some(point), *sequence),
            None => (None, self.oracle.sequence()),
        };
        let cursor = self.engine().range(range.clone(), point)?;
        Ok(CheckedCursor::new(cursor, &self.oracle.range(range, sequence, now)))
    }

    pub(super) fn move_cursor(
        &mut self,
        cursor: &mut CheckedCursor,
        moves: &[Move],
    ) -> Result<(), CheckError> {
        for step in moves {
            let key = cursor.step(step)?;
            key.hash(&mut self.digest);
        }
        Ok(())
    }

    /// Reads everything and compares.
    ///
    /// # Errors
    /// The engine's, or a mismatch.
    pub fn read_all(&mut self) -> Result<(), CheckError> {
        let found = contents(self.engine())?;
        let expected =
            self.oracle.range(&KeyRange::all(), self.oracle.sequence(), self.clock.now());
        compare(&expected, &found).map_err(CheckError::Mismatch)?;
        self.record(found.into_iter().map(|(key, entry)| (key, entry.value)).collect::<Vec<_>>());
        Ok(())
    }

    pub(super) fn checkpoint(&mut self) -> Result<(), CheckError> {
        let copy: Arc<dyn Vfs> = Arc::new(Ram::new());
        let copying = self.engine().checkpoint(&mut VfsSink::new(self.tested.view(copy.clone())));
        if !self.tested.capabilities().durable {
            return match copying {
                Err(Error::Unsupported { .. }) => Ok(()),
                other => Err(CheckError::Mismatch(format!(
                    "a checkpoint of an engine in memory: {other:?}"
                ))),
            };
        }
        copying?;
        let copied = self.open_on(copy)?;
        let found = contents(copied.as_ref())?;
        let expected =
            self.oracle.range(&KeyRange::all(), self.oracle.sequence(), self.clock.now());
        compare(&expected, &found)
            .map_err(|what| CheckError::Mismatch(format!("in the checkpoint: {what}")))?;
        Ok(copied.close()?)
    }

    /// Runs `verify` on the engine.
    ///
    /// # Errors
    /// The engine's, or the damage that it found.
    pub fn verify(&mut self) -> Result<(), CheckError> {
        let report = self.engine().verify(&mut |_, _| ())?;
        match report.damage.first() {
            None => Ok(()),
            Some(damage) => Err(CheckError::Mismatch(format!("verify found {damage:?}"))),
        }
    }

    fn record(&mut self, result: impl Hash) {
        result.hash(&mut self.digest);
    }
}
