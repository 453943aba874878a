//! Checkpoints while other threads write.
//!
//! ```text
//!   writers    batch n:  hot-w = n  fillers  log-w-n = n        without a pause
//!   copies     opened:   hot-w = n  ⇔  log-w-0 … log-w-n and no other
//! ```
//!
//! While a copy is checked, the writers pause: on a store that only grows, each check would take
//! longer than the one before.
//!
//! Checked: a checkpoint is a state of the table that existed, for every writer, and not
//! before the call; and the call returns although writers never pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use siltstone_engine::{Durability, Engine, WriteBatch};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

use crate::scale::Case;
use crate::sink::VfsSink;
use crate::{CheckError, CheckResult, EngineUnderTest, Scale, TestRng, session};

const WRITERS: u64 = 2;
const COPIES: u64 = 4;
const FILLERS: u64 = 40;

/// Takes checkpoints among concurrent writers.
///
/// # Errors
/// A state that never existed.
pub fn concurrent_checkpoints(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    let mut batches = 0;
    for case in scale.cases(scale.rounds, tested.option_set_count()) {
        batches += run_threads(tested, case)
            .map_err(|wrong| format!("{}: {wrong}\n{case}", tested.name()))?;
    }
    Ok(format!("{} checkpoints, {batches} batches in them", scale.rounds * COPIES))
}

fn run_threads(tested: &dyn EngineUnderTest, case: Case) -> Result<u64, CheckError> {
    let env = Env::system(2);
    let engine = tested.open(Arc::new(Ram::new()), env.clone(), case.option_set)?;
    let engine = engine.as_ref();
    let (over, is_checking) = (AtomicBool::new(false), AtomicBool::new(false));
    let written: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let batches = std::thread::scope(|scope| {
        let (over, is_checking) = (&over, &is_checking);
        let writers: Vec<_> = (0..)
            .zip(&written)
            .map(|(id, written)| {
                let pauses = || is_checking.load(SeqCst) && !over.load(SeqCst);
                scope.spawn(move || write(engine, case.seed, id, over, pauses, written))
            })
            .collect();
        let copied: Result<u64, CheckError> = (0..COPIES).try_fold(0, |batches, _| {
            let floors: Vec<u64> = written.iter().map(|written| written.load(SeqCst)).collect();
            let target: Arc<dyn Vfs> = Arc::new(Ram::new());
            engine.checkpoint(&mut VfsSink::new(tested.view(target.clone())))?;
            is_checking.store(true, SeqCst);
            let checked = check_copy(tested, target, case, &env, &floors);
            is_checking.store(false, SeqCst);
            Ok(batches + checked?)
        });
        over.store(true, SeqCst);
        for writer in writers {
            writer.join().map_err(|_| CheckError::Mismatch("a thread panicked".to_owned()))??;
        }
        copied
    })?;
    engine.close()?;
    Ok(batches)
}

fn write(
    engine: &dyn Engine,
    seed: u64,
    id: u64,
    over: &AtomicBool,
    pauses: impl Fn() -> bool,
    written: &AtomicU64,
) -> Result<(), CheckError> {
    let mut rng = TestRng::of(seed, id);
    while !over.load(SeqCst) {
        while pauses() {
            std::thread::sleep(Duration::from_micros(100));
        }
        let number = written.load(SeqCst) + 1;
        let mut batch = WriteBatch::new();
        batch.put(format!("hot-{id}").as_bytes(), &number.to_be_bytes());
        for _ in 0..rng.below(4) {
            let (filler, len) = (rng.below(FILLERS), rng.index(100));
            batch.put(format!("filler-{filler}").as_bytes(), &rng.bytes(len));
        }
        batch.put(format!("log-{id}-{number}").as_bytes(), &[]);
        engine.write(&batch, Durability::Buffered)?;
        written.store(number, SeqCst);
    }
    Ok(())
}

/// Opens a checkpoint and counts its batches; each writer has at least its floor.
fn check_copy(
    tested: &dyn EngineUnderTest,
    target: Arc<dyn Vfs>,
    case: Case,
    env: &Env,
    floors: &[u64],
) -> Result<u64, CheckError> {
    let copied = tested.open(target, env.clone(), case.option_set)?;
    let found = session::contents(copied.as_ref())?;
    let mut batches = 0;
    for (id, &floor) in (0..).zip(floors) {
        let prefix = format!("log-{id}-").into_bytes();
        let logged = found.keys().filter(|key| key.starts_with(&prefix)).count() as u64;
        let last =
            (1..).take_while(|number| found.contains_key(format!("log-{id}-{number}").as_bytes()));
        let last = last.last().unwrap_or(0);
        let hot = copied.get(format!("hot-{id}").as_bytes())?.map(|entry| entry.value);
        let hot = hot.map_or(0, |value| value.try_into().map_or(0, u64::from_be_bytes));
        if (hot, logged) != (last, last) || last < floor {
            return Err(CheckError::Mismatch(format!(
                "a checkpoint shows batch {hot} of writer {id}, {logged} in its log, {last} of them \
                 without a gap, and {floor} were written before"
            )));
        }
        batches += last;
    }
    copied.close()?;
    Ok(batches)
}
