//! Batches, snapshots and cursors while other threads write and background jobs run.
//!
//! ```text
//!   writers    pairs (a-i, b-i) get the same number in one batch; other keys fill memtables
//!   readers    at a snapshot and by a range: a-i = b-i, the same twice
//!   scanners   a cursor opened earlier, moved slowly while its tables are compacted
//! ```
//!
//! Checked: batches are atomic; a snapshot reads the same each time and later snapshots are
//! not older; a cursor shows the state of its creation to its end, forwards and backwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use siltstone_engine::{Cursor, Durability, Engine, KeyRange, WriteBatch};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

use crate::scale::Case;
use crate::{CheckError, CheckResult, EngineUnderTest, Scale, TestRng, session};

const PAIRS: u64 = 4;
const ROUNDS: u64 = 120;
/// Keys between the pairs: enough for several tables per level.
const FILLERS: u64 = 100;

/// Runs writers, readers and scanners at once.
///
/// # Errors
/// A state that never existed.
pub fn threads(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    threads_on(tested, scale, &mut || Ok(Arc::new(Ram::new())))
}

/// The same in directories that `make` makes.
pub(crate) fn threads_on(
    tested: &dyn EngineUnderTest,
    scale: &Scale,
    make: &mut dyn FnMut() -> Result<Arc<dyn Vfs>, String>,
) -> CheckResult {
    let mut reads = 0;
    for case in scale.cases(scale.rounds, tested.option_set_count()) {
        let vfs = make()?;
        let env = Env::system(2);
        let engine = tested
            .open(vfs.clone(), env.clone(), case.option_set)
            .map_err(|error| error.to_string())?;
        reads += run_threads(engine.as_ref(), tested, case)
            .map_err(|wrong| format!("{}: {wrong}\n{case}", tested.name()))?;
        // Dropped during background work and reopened: everything is there, or nothing for an
        // engine in memory.
        let mut before = session::contents(engine.as_ref()).map_err(|wrong| wrong.to_string())?;
        if !tested.capabilities().durable {
            before.clear();
        }
        drop(engine);
        let engine = tested.open(vfs, env, case.option_set).map_err(|error| error.to_string())?;
        let after = session::contents(engine.as_ref()).map_err(|wrong| wrong.to_string())?;
        if before != after {
            return Err(format!("reopening has changed the contents\n{case}"));
        }
        engine.close().map_err(|error| error.to_string())?;
    }
    Ok(format!("{} runs, {reads} reads of pairs", scale.rounds))
}

fn run_threads(
    engine: &dyn Engine,
    tested: &dyn EngineUnderTest,
    case: Case,
) -> Result<u64, CheckError> {
    let capabilities = tested.capabilities();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        // However a thread ends, the others are stopped.
        let until_over = move |work: &dyn Fn(&mut TestRng) -> Result<(), CheckError>, id: u64| {
            let mut rng = TestRng::of(case.seed, id);
            let mut rounds = 0;
            while !over.load(Relaxed) || rounds == 0 {
                work(&mut rng)?;
                rounds += 1;
            }
            Ok::<u64, CheckError>(rounds)
        };
        let mut readers = Vec::new();
        if capabilities.versioned {
            readers
                .push(scope.spawn(move || until_over(&|rng| read_at_snapshot(engine, rng), 100)));
        }
        readers.push(scope.spawn(move || until_over(&|_| scan(engine), 101)));
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

fn panicked() -> CheckError {
    CheckError::Mismatch("a thread panicked".to_owned())
}

fn pair(side: char, number: u64) -> Vec<u8> {
    format!("{side}-{number}").into_bytes()
}

/// Writes pairs, and other keys between them.
fn write(engine: &dyn Engine, seed: u64, id: u64) -> Result<(), CheckError> {
    let mut rng = TestRng::of(seed, id);
    for round in 0..ROUNDS {
        let number = rng.below(PAIRS);
        let mut batch = WriteBatch::new();
        if rng.one_in(5) {
            batch.delete(&pair('a', number)).delete(&pair('b', number));
        } else {
            let value = format!("{id}-{round}");
            batch.put(&pair('a', number), value.as_bytes());
            // Fillers put distance between the two in the batch and in the table.
            for _ in 0..rng.below(8) {
                let (filler, len) = (rng.below(FILLERS), rng.index(300));
                batch.put(format!("aa-{filler}").as_bytes(), &rng.bytes(len));
            }
            batch.put(&pair('b', number), value.as_bytes());
        }
        engine.write(&batch, Durability::Buffered)?;
        // Often, since two threads may find the same job due.
        if round % 4 == 3 {
            engine.maintain()?;
        }
    }
    Ok(())
}

/// Reads pairs at a snapshot, one by one and by a range, and again.
fn read_at_snapshot(engine: &dyn Engine, rng: &mut TestRng) -> Result<(), CheckError> {
    let point = engine.snapshot()?;
    let later = engine.snapshot()?;
    if later.sequence() < point.sequence() {
        return Err(CheckError::Mismatch(
            "a later snapshot has a lower sequence number".to_owned(),
        ));
    }
    let number = rng.below(PAIRS);
    let get = |side| -> Result<_, CheckError> { Ok(engine.get_at(&pair(side, number), &point)?) };
    let first = get('a')?;
    std::thread::yield_now();
    let second = get('b')?;
    if first != second {
        return Err(CheckError::Mismatch(format!(
            "a partial batch at a snapshot: {first:?}, {second:?}"
        )));
    }
    if engine.capabilities().ordered {
        let forwards = pairs(engine.range(KeyRange::all(), Some(&point))?.as_mut())?;
        let again = pairs(engine.range(KeyRange::all(), Some(&point))?.as_mut())?;
        if forwards != again {
            return Err(CheckError::Mismatch(
                "a snapshot reads differently the second time".to_owned(),
            ));
        }
    }
    if get('a')? != first {
        return Err(CheckError::Mismatch("a snapshot returns another value later".to_owned()));
    }
    Ok(())
}

/// Scans slowly; backwards as well in ordered engines.
fn scan(engine: &dyn Engine) -> Result<(), CheckError> {
    let mut cursor = engine.iter()?;
    let forwards = pairs(cursor.as_mut())?;
    for number in 0..PAIRS {
        let find = |side| {
            let key = pair(side, number);
            forwards.iter().find(|(other, _)| *other == key).map(|(_, value)| value)
        };
        if find('a') != find('b') {
            let (a, b) = (find('a'), find('b'));
            return Err(CheckError::Mismatch(format!("a partial batch in a scan: {a:?}, {b:?}")));
        }
    }
    if engine.capabilities().ordered {
        let mut backwards = Vec::new();
        let mut found = cursor.last()?;
        while found {
            backwards.push((cursor.key().to_vec(), cursor.value().to_vec()));
            std::thread::yield_now();
            found = cursor.prev()?;
        }
        backwards.reverse();
        if backwards != forwards {
            return Err(CheckError::Mismatch(
                "a cursor returns other entries backwards".to_owned(),
            ));
        }
    }
    Ok(())
}

/// Keys and values in scan order.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// All entries, slowly.
fn pairs(cursor: &mut dyn Cursor) -> Result<Entries, CheckError> {
    let mut entries = Vec::new();
    let mut found = cursor.first()?;
    while found {
        entries.push((cursor.key().to_vec(), cursor.value().to_vec()));
        std::thread::yield_now();
        found = cursor.next()?;
    }
    Ok(entries)
}
