//! An engine that tells in which order its writes became visible, and makes races likely.
//!
//! Writes go to the engine underneath one at a time, so their order is known. Between the steps that
//! others could run into (before a write, after it has become visible, before and after a snapshot is
//! taken) the thread now and then lets others run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use siltstone_engine::{Durability, Engine, ReadPoint, Result, WriteBatch, forward_engine};

use crate::Dice;

/// Where a witness pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before a write begins.
    BeforeWrite,
    /// When it is visible, and its writer does not know yet.
    AfterWrite,
    /// Before a snapshot is taken.
    BeforeSnapshot,
    /// When it is taken, and its reader does not have it yet.
    AfterSnapshot,
}

/// The engine.
pub struct Witness {
    engine: Arc<dyn Engine>,
    written: Mutex<Vec<WriteBatch>>,
    pause: Box<dyn Fn(Moment) + Send + Sync>,
}

impl Witness {
    /// A witness that pauses at random, by this seed.
    pub fn new(engine: Arc<dyn Engine>, seed: u64) -> Self {
        let dice = Mutex::new(Dice::new(seed));
        Self::pausing(engine, move |_| {
            let chance = dice.lock().below(16);
            match chance {
                0 => std::thread::sleep(Duration::from_micros(200)),
                1..8 => std::thread::yield_now(),
                _ => {}
            }
        })
    }

    /// A witness that pauses as it is told to.
    pub fn pausing(
        engine: Arc<dyn Engine>,
        pause: impl Fn(Moment) + Send + Sync + 'static,
    ) -> Self {
        Witness { engine, written: Mutex::default(), pause: Box::new(pause) }
    }

    /// The values that each key had, one after the other; an empty value is a deletion.
    pub fn orders(&self) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
        let mut orders: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
        for batch in self.written.lock().iter() {
            for op in batch.iter() {
                let value = match op {
                    siltstone_engine::Op::Put { value, .. } => value.to_vec(),
                    siltstone_engine::Op::Delete { .. } => Vec::new(),
                };
                orders.entry(op.key().to_vec()).or_default().push(value);
            }
        }
        orders
    }
}

impl Engine for Witness {
    forward_engine!(engine: name capabilities get get_at sync iter range at);
    forward_engine!(engine: flush maintain checkpoint verify stats warnings trouble close);

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        (self.pause)(Moment::BeforeWrite);
        let mut written = self.written.lock();
        self.engine.write(batch, durability)?;
        written.push(batch.clone());
        drop(written);
        (self.pause)(Moment::AfterWrite);
        Ok(())
    }

    fn snapshot(&self) -> Result<ReadPoint> {
        (self.pause)(Moment::BeforeSnapshot);
        let point = self.engine.snapshot();
        (self.pause)(Moment::AfterSnapshot);
        point
    }
}
