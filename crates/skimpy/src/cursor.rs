//! Walking a table: step by step of the mapping, the keys of a step in their order.
//!
//! A cursor holds a point, so what it shows is the moment of its making, whatever is written or
//! collected meanwhile. Its position is the step and the key: a walk that is taken up again goes on
//! behind it, at the moment of its new cursor.
//!
//! Source: ours.

use std::sync::Arc;

use siltstone_engine::{Error, ForwardCursor, Result, Timestamp};

use crate::engine::{ENGINE, Inner};
use crate::history::Hold;
use crate::page::u64_at;
use crate::record::{Content, Record};

pub(crate) struct SkimpyCursor {
    inner: Arc<Inner>,
    hold: Hold,
    /// The next step.
    step: u64,
    /// What the present step shows, the last first.
    left: Vec<Record>,
    current: Option<Record>,
}

impl SkimpyCursor {
    pub(crate) fn new(inner: &Arc<Inner>) -> Result<Self> {
        let hold = inner.hold_now()?;
        Ok(SkimpyCursor { inner: inner.clone(), hold, step: 0, left: Vec::new(), current: None })
    }

    fn go_on(&mut self) -> Result<bool> {
        self.current = None;
        let now = self.inner.env.clock.now();
        loop {
            while let Some(record) = self.left.pop() {
                if !record.is_gone(now) {
                    self.current = Some(record);
                    return Ok(true);
                }
            }
            if self.step >= self.inner.mapping.steps() {
                return Ok(false);
            }
            self.begin(self.step)?;
        }
    }

    fn begin(&mut self, step: u64) -> Result<()> {
        self.inner.check_open()?;
        self.left = self.inner.mapping.step(&self.inner, step, self.hold.at())?;
        self.left.reverse();
        self.step = step + 1;
        Ok(())
    }

    fn here(&self) -> &Record {
        self.current.as_ref().expect("the cursor stands on an entry")
    }
}

impl ForwardCursor for SkimpyCursor {
    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn first(&mut self) -> Result<bool> {
        (self.step, self.left) = (0, Vec::new());
        self.go_on()
    }

    fn advance(&mut self) -> Result<bool> {
        self.go_on()
    }

    fn position(&self) -> Vec<u8> {
        let mut position = (self.step - 1).to_le_bytes().to_vec();
        position.extend_from_slice(&self.here().key);
        position
    }

    fn resume(&mut self, position: &[u8]) -> Result<bool> {
        self.current = None;
        let Some((step, key)) = position.split_at_checked(8) else {
            return Err(Error::Invalid("that is no position of a walk".into()));
        };
        let step = u64_at(step, 0);
        if step >= self.inner.mapping.steps() {
            return Err(Error::Invalid("that is a position of another table".into()));
        }
        self.begin(step)?;
        self.left.retain(|record| record.key.as_slice() > key);
        self.go_on()
    }

    fn valid(&self) -> bool {
        self.current.is_some()
    }

    fn key(&self) -> &[u8] {
        &self.here().key
    }

    fn value(&self) -> &[u8] {
        match &self.here().content {
            Content::Value(value) => value,
            _ => &[],
        }
    }

    fn expires_at(&self) -> Option<Timestamp> {
        self.here().expires_at
    }
}
