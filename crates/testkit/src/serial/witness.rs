//! An engine that records the order in which its writes became visible, and makes races likely.
//!
//! Writes go to the engine below one at a time, so their order is known. At points where races are
//! possible (before a write, after it has become visible, before and after a snapshot is taken) the
//! thread pauses at random.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use siltstone_engine::{Durability, Engine, ReadPoint, Result, WriteBatch, forward_engine};

use crate::TestRng;

/// A point at which a witness pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PausePoint {
    /// Before a write.
    BeforeWrite,
    /// After a write has become visible, before its writer returns.
    AfterWrite,
    /// Before a snapshot is taken.
    BeforeSnapshot,
    /// After a snapshot is taken, before its reader gets it.
    AfterSnapshot,
}

/// The recording engine.
pub struct Witness {
    engine: Arc<dyn Engine>,
    written: Mutex<Vec<WriteBatch>>,
    pause: Box<dyn Fn(PausePoint) + Send + Sync>,
}

impl Witness {
    /// A witness with random pauses from a seed.
    pub fn new(engine: Arc<dyn Engine>, seed: u64) -> Self {
        let rng = Mutex::new(TestRng::new(seed));
        Self::pausing(engine, move |_| {
            let draw = rng.lock().below(16);
            match draw {
                0 => std::thread::sleep(Duration::from_micros(200)),
                1..8 => std::thread::yield_now(),
                _ => {}
            }
        })
    }

    /// A witness that calls `pause` at each point.
    pub fn pausing(
        engine: Arc<dyn Engine>,
        pause: impl Fn(PausePoint) + Send + Sync + 'static,
    ) -> Self {
        Witness { engine, written: Mutex::default(), pause: Box::new(pause) }
    }

    /// The successive values of each key; an empty value is a deletion.
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
    forward_engine!(engine: name capabilities get get_at lookup multi_lookup sync iter range at);
    forward_engine!(engine: flush maintain changes checkpoint verify stats warnings trouble close);
    forward_engine!(engine: set_merge_operator merge_operator);

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        (self.pause)(PausePoint::BeforeWrite);
        let mut written = self.written.lock();
        self.engine.write(batch, durability)?;
        written.push(batch.clone());
        drop(written);
        (self.pause)(PausePoint::AfterWrite);
        Ok(())
    }

    fn snapshot(&self) -> Result<ReadPoint> {
        (self.pause)(PausePoint::BeforeSnapshot);
        let point = self.engine.snapshot();
        (self.pause)(PausePoint::AfterSnapshot);
        point
    }
}
