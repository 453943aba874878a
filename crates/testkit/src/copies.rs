//! Checkpoints while other threads write.
//!
//! ```text
//!   writers    batch n:  hot-w = n  fillers  log-w-n = n        without a pause
//!   copies     opened:   hot-w = n  ⇔  log-w-0 … log-w-n and no other
//! ```
//!
//! Promise checked: a checkpoint is the table at one moment of its writing, for every writer; that
//! moment is not before the call; and the call returns though writers never rest.
//!
//! Source: ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use siltstone_engine::{Durability, Engine, WriteBatch};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

use crate::scale::Case;
use crate::sink::MediaSink;
use crate::{Dice, Scale, Subject, Verdict, Wrong, session};

const WRITERS: u64 = 2;
const COPIES: u64 = 4;
const FILLERS: u64 = 40;

/// Takes checkpoints among writers.
///
/// # Errors
/// What a copy shows that never was.
pub fn copies_among_writers(subject: &dyn Subject, scale: &Scale) -> Verdict {
    let mut batches = 0;
    for case in scale.cases(scale.rounds, subject.variants()) {
        batches += among_writers(subject, case)
            .map_err(|wrong| format!("{}: {wrong}\n{case}", subject.name()))?;
    }
    Ok(format!("{} checkpoints, {batches} batches in them", scale.rounds * COPIES))
}

fn among_writers(subject: &dyn Subject, case: Case) -> Result<u64, Wrong> {
    let env = Env::system(2);
    let engine = subject.open(Arc::new(Ram::new()), env.clone(), case.variant)?;
    let (engine, over) = (engine.as_ref(), AtomicBool::new(false));
    let written: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let batches = std::thread::scope(|scope| {
        let over = &over;
        let writers: Vec<_> = (0..)
            .zip(&written)
            .map(|(id, written)| scope.spawn(move || write(engine, case.seed, id, over, written)))
            .collect();
        let copied: Result<u64, Wrong> = (0..COPIES).try_fold(0, |batches, _| {
            let least: Vec<u64> = written.iter().map(|written| written.load(SeqCst)).collect();
            Ok(batches + copy(subject, engine, case, &env, &least)?)
        });
        over.store(true, SeqCst);
        for writer in writers {
            writer.join().map_err(|_| Wrong::Answer("a thread panicked".to_owned()))??;
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
    written: &AtomicU64,
) -> Result<(), Wrong> {
    let mut dice = Dice::of(seed, id);
    while !over.load(SeqCst) {
        let number = written.load(SeqCst) + 1;
        let mut batch = WriteBatch::new();
        batch.put(format!("hot-{id}").as_bytes(), &number.to_be_bytes());
        for _ in 0..dice.below(4) {
            let (filler, len) = (dice.below(FILLERS), dice.index(100));
            batch.put(format!("filler-{filler}").as_bytes(), &dice.bytes(len));
        }
        batch.put(format!("log-{id}-{number}").as_bytes(), &[]);
        engine.write(&batch, Durability::Buffered)?;
        written.store(number, SeqCst);
    }
    Ok(())
}

/// Takes a copy, opens it, and counts the batches in it; of each writer it must have `least`.
fn copy(
    subject: &dyn Subject,
    engine: &dyn Engine,
    case: Case,
    env: &Env,
    least: &[u64],
) -> Result<u64, Wrong> {
    let target: Arc<dyn Vfs> = Arc::new(Ram::new());
    engine.checkpoint(&mut MediaSink::new(target.clone()))?;
    let copied = subject.open(target, env.clone(), case.variant)?;
    let found = session::contents(copied.as_ref())?;
    let mut batches = 0;
    for (id, &least) in (0..).zip(least) {
        let prefix = format!("log-{id}-").into_bytes();
        let logged = found.keys().filter(|key| key.starts_with(&prefix)).count() as u64;
        let last =
            (1..).take_while(|number| found.contains_key(format!("log-{id}-{number}").as_bytes()));
        let last = last.last().unwrap_or(0);
        let hot = copied.get(format!("hot-{id}").as_bytes())?.map(|entry| entry.value);
        let hot = hot.map_or(0, |value| value.try_into().map_or(0, u64::from_be_bytes));
        if (hot, logged) != (last, last) || last < least {
            return Err(Wrong::Answer(format!(
                "a checkpoint shows batch {hot} of writer {id}, {logged} in its log, {last} of them \
                 without a gap, and {least} were written before"
            )));
        }
        batches += last;
    }
    copied.close()?;
    Ok(batches)
}
