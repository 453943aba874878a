//! Batches, snapshots and cursors while other threads write and background work runs.
//!
//! ```text
//!   writers    pairs (a-i, b-i) get the same number in one batch; other keys fill memtables
//!   readers    at a snapshot and by a range: a-i = b-i, twice the same
//!   walkers    a cursor opened before, moved step by step while tables are merged away under it
//! ```
//!
//! Promise checked: a batch is visible whole or not at all; a snapshot reads the same each time and
//! never goes back in time; a cursor shows the moment of its making to its end, forwards and back.
//!
//! Source: ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use siltstone_engine::{Cursor, Durability, Engine, KeyRange, WriteBatch};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

use crate::scale::Case;
use crate::{Dice, Scale, Subject, Verdict, Wrong, session};

const PAIRS: u64 = 4;
const ROUNDS: u64 = 120;
/// Keys between the pairs: enough for several tables a level.
const FILLERS: u64 = 100;

/// Runs writers, readers and walkers at once.
///
/// # Errors
/// What was seen that never was.
pub fn threads(subject: &dyn Subject, scale: &Scale) -> Verdict {
    let mut reads = 0;
    for case in scale.cases(scale.rounds, subject.variants()) {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let env = Env::system(2);
        let engine = subject
            .open(vfs.clone(), env.clone(), case.variant)
            .map_err(|error| error.to_string())?;
        reads += together(engine.as_ref(), subject, case)
            .map_err(|wrong| format!("{}: {wrong}\n{case}", subject.name()))?;
        // Dropped amid background work, and opened again: everything is there, or nothing of an
        // engine in memory.
        let mut before = session::contents(engine.as_ref()).map_err(|wrong| wrong.to_string())?;
        if !subject.capabilities().durable {
            before.clear();
        }
        drop(engine);
        let engine = subject.open(vfs, env, case.variant).map_err(|error| error.to_string())?;
        let after = session::contents(engine.as_ref()).map_err(|wrong| wrong.to_string())?;
        if before != after {
            return Err(format!("reopening has changed what is there\n{case}"));
        }
        engine.close().map_err(|error| error.to_string())?;
    }
    Ok(format!("{} runs, {reads} reads of pairs", scale.rounds))
}

fn together(engine: &dyn Engine, subject: &dyn Subject, case: Case) -> Result<u64, Wrong> {
    let capabilities = subject.capabilities();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        // However a reader ends, the others must hear of it.
        let until_over = move |work: &dyn Fn(&mut Dice) -> Result<(), Wrong>, id: u64| {
            let mut dice = Dice::of(case.seed, id);
            let mut rounds = 0;
            while !over.load(Relaxed) || rounds == 0 {
                work(&mut dice)?;
                rounds += 1;
            }
            Ok::<u64, Wrong>(rounds)
        };
        let mut readers = Vec::new();
        if capabilities.versioned {
            readers
                .push(scope.spawn(move || until_over(&|dice| read_at_snapshot(engine, dice), 100)));
        }
        readers.push(scope.spawn(move || until_over(&|_| walk(engine), 101)));
        let writers = [1, 2].map(|id| scope.spawn(move || write(engine, case.seed, id)));
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        over.store(true, Relaxed);
        let mut reads = 0;
        for reader in readers {
            reads += reader.join().map_err(|_| panicked())??;
        }
        for written in written {
            written.map_err(|_| panicked())??;
        }
        Ok(reads)
    })
}

fn panicked() -> Wrong {
    Wrong::Answer("a thread panicked".to_owned())
}

fn pair(side: char, number: u64) -> Vec<u8> {
    format!("{side}-{number}").into_bytes()
}

/// Writes pairs, and much else between them.
fn write(engine: &dyn Engine, seed: u64, id: u64) -> Result<(), Wrong> {
    let mut dice = Dice::of(seed, id);
    for round in 0..ROUNDS {
        let number = dice.below(PAIRS);
        let mut batch = WriteBatch::new();
        if dice.one_in(5) {
            batch.delete(&pair('a', number)).delete(&pair('b', number));
        } else {
            let value = format!("{id}-{round}");
            batch.put(&pair('a', number), value.as_bytes());
            // What lies between makes the two far apart in the batch and in the table.
            for _ in 0..dice.below(8) {
                let (filler, len) = (dice.below(FILLERS), dice.index(300));
                batch.put(format!("aa-{filler}").as_bytes(), &dice.bytes(len));
            }
            batch.put(&pair('b', number), value.as_bytes());
        }
        engine.write(&batch, Durability::Buffered)?;
        // Often: what one thread finds due another may be doing.
        if round % 4 == 3 {
            engine.maintain()?;
        }
    }
    Ok(())
}

/// Reads pairs at a snapshot, one by one and by a range, and all of it again.
fn read_at_snapshot(engine: &dyn Engine, dice: &mut Dice) -> Result<(), Wrong> {
    let point = engine.snapshot()?;
    let later = engine.snapshot()?;
    if later.sequence() < point.sequence() {
        return Err(Wrong::Answer("a later snapshot is at an earlier moment".to_owned()));
    }
    let number = dice.below(PAIRS);
    let look = |side| -> Result<_, Wrong> { Ok(engine.get_at(&pair(side, number), &point)?) };
    let first = look('a')?;
    std::thread::yield_now();
    let second = look('b')?;
    if first != second {
        return Err(Wrong::Answer(format!("half a batch at a snapshot: {first:?}, {second:?}")));
    }
    if engine.capabilities().ordered {
        let forwards = pairs(engine.range(KeyRange::all(), Some(&point))?.as_mut())?;
        let again = pairs(engine.range(KeyRange::all(), Some(&point))?.as_mut())?;
        if forwards != again {
            return Err(Wrong::Answer("a snapshot reads differently the second time".to_owned()));
        }
    }
    if look('a')? != first {
        return Err(Wrong::Answer("a snapshot gives another answer later".to_owned()));
    }
    Ok(())
}

/// Walks slowly over a moment; back as well where there is an order.
fn walk(engine: &dyn Engine) -> Result<(), Wrong> {
    let mut cursor = engine.iter()?;
    let forwards = pairs(cursor.as_mut())?;
    for number in 0..PAIRS {
        let find = |side| {
            let key = pair(side, number);
            forwards.iter().find(|(other, _)| *other == key).map(|(_, value)| value)
        };
        if find('a') != find('b') {
            let (a, b) = (find('a'), find('b'));
            return Err(Wrong::Answer(format!("half a batch in a walk: {a:?}, {b:?}")));
        }
    }
    if engine.capabilities().ordered {
        let mut backwards = Vec::new();
        let mut there = cursor.last()?;
        while there {
            backwards.push((cursor.key().to_vec(), cursor.value().to_vec()));
            std::thread::yield_now();
            there = cursor.prev()?;
        }
        backwards.reverse();
        if backwards != forwards {
            return Err(Wrong::Answer("a cursor walks back over something else".to_owned()));
        }
    }
    Ok(())
}

/// Keys and values in the order of a walk.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// All entries, slowly.
fn pairs(cursor: &mut dyn Cursor) -> Result<Entries, Wrong> {
    let mut entries = Vec::new();
    let mut there = cursor.first()?;
    while there {
        entries.push((cursor.key().to_vec(), cursor.value().to_vec()));
        std::thread::yield_now();
        there = cursor.next()?;
    }
    Ok(entries)
}
