//! Iteration over a table: step by step of the mapping, and by key within a step.
//!
//! A cursor pins a snapshot, so it returns the state at its creation during writes and collection.
//! Its position is the step and the key; a resumed cursor continues after them in its own snapshot.

use std::sync::Arc;

use siltstone_engine::{Error, ForwardCursor, Result, Timestamp};

use crate::bytes::u64_at;
use crate::history::SnapshotPin;
use crate::record::{Content, Record};
use crate::shared::ENGINE;
use crate::table::Table;

pub(crate) struct SkimpyCursor {
    table: Arc<Table>,
    snapshot: SnapshotPin,
    /// The index of the next step.
    step: u64,
    /// The remaining entries of the current step, in reverse order.
    remaining: Vec<Record>,
    current: Option<Record>,
}

impl SkimpyCursor {
    pub(crate) fn new(table: &Arc<Table>) -> Result<Self> {
        let snapshot = table.shared.pin_now()?;
        Ok(SkimpyCursor {
            table: table.clone(),
            snapshot,
            step: 0,
            remaining: Vec::new(),
            current: None,
        })
    }

    fn advance_to_visible(&mut self) -> Result<bool> {
        self.current = None;
        let now = self.table.shared.env.clock.now();
        loop {
            while let Some(record) = self.remaining.pop() {
                if !record.is_gone(now) {
                    self.current = Some(record);
                    return Ok(true);
                }
            }
            if self.step >= self.table.mapping.steps() {
                return Ok(false);
            }
            self.load_step(self.step)?;
        }
    }

    fn load_step(&mut self, step: u64) -> Result<()> {
        self.table.shared.check_open()?;
        self.remaining = self.table.mapping.step(&self.table.shared, step, self.snapshot.at())?;
        self.remaining.reverse();
        self.step = step + 1;
        Ok(())
    }

    fn current(&self) -> &Record {
        self.current.as_ref().expect("the cursor is at an entry: check `valid`")
    }
}

impl ForwardCursor for SkimpyCursor {
    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn first(&mut self) -> Result<bool> {
        (self.step, self.remaining) = (0, Vec::new());
        self.advance_to_visible()
    }

    fn advance(&mut self) -> Result<bool> {
        self.advance_to_visible()
    }

    fn position(&self) -> Vec<u8> {
        let mut position = (self.step - 1).to_le_bytes().to_vec();
        position.extend_from_slice(&self.current().key);
        position
    }

    fn resume(&mut self, position: &[u8]) -> Result<bool> {
        self.current = None;
        let Some((step, key)) = position.split_at_checked(8) else {
            return Err(Error::Invalid("the bytes are not a position of a scan".into()));
        };
        let step = u64_at(step, 0);
        if step >= self.table.mapping.steps() {
            return Err(Error::Invalid("the position is of another table".into()));
        }
        self.load_step(step)?;
        self.remaining.retain(|record| record.key.as_slice() > key);
        self.advance_to_visible()
    }

    fn valid(&self) -> bool {
        self.current.is_some()
    }

    fn key(&self) -> &[u8] {
        &self.current().key
    }

    fn value(&self) -> &[u8] {
        match &self.current().content {
            Content::Value(value) => value,
            _ => &[],
        }
    }

    fn expires_at(&self) -> Option<Timestamp> {
        self.current().expires_at
    }
}
