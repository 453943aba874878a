//! Clears of all keys while other threads write, flush and take checkpoints.
//!
//! ```text
//!   writer    read the round ─ note it as its own ─ write it as a value      up to MAX_WRITES a round
//!   clears    note each writer's round ─ clear ─ next round ─ no value of a writer below its noted round
//!                                               └ power is cut: the same
//! ```
//!
//! A writer whose noted round is 5 has returned from its writes of round 4. A write of round 5 may
//! be in progress for any time, over several clears, and appear after them.
//!
//! Checked: a clear removes every write that returned before it, and none that began after it. It
//! is durable when it returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use siltstone_engine::{Durability, Engine, WriteBatch};
use siltstone_faults::FaultyVfs;
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

use crate::scale::Case;
use crate::sink::VfsSink;
use crate::{CheckError, CheckResult, EngineUnderTest, Scale, TestRng, session};

const WRITERS: usize = 3;
const CLEARS: u64 = 4;
/// Of one writer between two clears. Without a limit the checks of what is left fall behind on a
/// machine with few cores, and the table grows all the more.
const MAX_WRITES: u64 = 1000;
const INTERVAL: Duration = Duration::from_millis(8);

/// Clears repeatedly among concurrent writers and checkpoints.
///
/// # Errors
/// An old write that is still there, a new one that is not, or damage.
pub fn concurrent_clears(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    if !tested.capabilities().durable {
        return Ok("not durable".to_owned());
    }
    for case in scale.cases(scale.rounds, tested.option_set_count()) {
        run_threads(tested, case).map_err(|wrong| {
            let options = tested.describe(case.option_set);
            format!("{} ({options}): {wrong}\n{case}", tested.name())
        })?;
    }
    Ok(format!("{} clears, and as many power cuts", scale.rounds * CLEARS))
}

/// The rounds of the clears and of the writes.
#[derive(Default)]
struct Rounds {
    /// The round of the clears; 0 ends the writers.
    current: AtomicU64,
    /// By writer, the round of its write in progress, or else of its next write.
    of_writers: [AtomicU64; WRITERS],
}

fn run_threads(tested: &dyn EngineUnderTest, case: Case) -> Result<(), CheckError> {
    let disk = FaultyVfs::new(case.seed);
    let open = |vfs: Arc<dyn Vfs>| tested.open(vfs, Env::system(2), case.option_set);
    let engine = open(Arc::new(disk.clone()))?;
    let rounds = Rounds { current: AtomicU64::new(1), ..Rounds::default() };
    let (rounds, shared) = (&rounds, engine.as_ref());
    let mut rng = TestRng::of(case.seed, 9);
    std::thread::scope(|scope| {
        let mut threads: Vec<_> =
            (0..WRITERS).map(|id| scope.spawn(move || write(shared, id, rounds))).collect();
        threads.push(scope.spawn(move || {
            while rounds.current.load(SeqCst) > 0 {
                let copy: Arc<dyn Vfs> = Arc::new(Ram::new());
                shared.checkpoint(&mut VfsSink::new(tested.view(copy.clone())))?;
                check_intact(open(copy)?.as_ref())?;
            }
            Ok(())
        }));
        let cleared = (2..2 + CLEARS).try_for_each(|next| {
            std::thread::sleep(INTERVAL);
            let least = clear(shared, rounds, next)?;
            let survivors = disk.survivors(rng.draw());
            check_rounds(open(Arc::new(survivors))?.as_ref(), least, "after a power cut")
        });
        // Stops the threads.
        rounds.current.store(0, SeqCst);
        for thread in threads {
            thread.join().map_err(|_| CheckError::Mismatch("a thread panicked".to_owned()))??;
        }
        cleared
    })?;
    engine.clear()?;
    engine.write(WriteBatch::new().put(b"last", b"1"), Durability::Buffered)?;
    check_intact(engine.as_ref())?;
    engine.close()?;
    drop(engine);
    let found = session::contents(open(Arc::new(disk))?.as_ref())?;
    match found.into_keys().eq([b"last".to_vec()]) {
        true => Ok(()),
        false => Err(CheckError::Mismatch("a cleared key is there after a reopen".to_owned())),
    }
}

/// Writes the current round to some keys often, to others once, until the round is 0.
fn write(engine: &dyn Engine, id: usize, rounds: &Rounds) -> Result<(), CheckError> {
    let (mut i, mut limit, mut last_round) = (0_u64, 0, 0);
    loop {
        let round = rounds.current.load(SeqCst);
        rounds.of_writers[id].store(round, SeqCst);
        if round == 0 {
            return Ok(());
        }
        if round != last_round {
            (limit, last_round) = (i + MAX_WRITES, round);
        }
        if i == limit {
            std::thread::sleep(INTERVAL / 16);
            continue;
        }
        let key = format!("{id}:{:06}", if i.is_multiple_of(3) { i % 20 } else { i });
        let value = [&round.to_be_bytes()[..], &[7; 40]].concat();
        engine.write(WriteBatch::new().put(key.as_bytes(), &value), Durability::Buffered)?;
        i += 1;
    }
}

/// Clears, and checks what is left. Returns the rounds of the writers before: writes of lower
/// rounds are removed for good.
fn clear(engine: &dyn Engine, rounds: &Rounds, next: u64) -> Result<[u64; WRITERS], CheckError> {
    let least = rounds.of_writers.each_ref().map(|round| round.load(SeqCst));
    engine.clear()?;
    rounds.current.store(next, SeqCst);
    check_rounds(engine, least, "after a clear")?;
    Ok(least)
}

/// Checks that no write has a lower round than the `least` one of its writer.
fn check_rounds(engine: &dyn Engine, least: [u64; WRITERS], when: &str) -> Result<(), CheckError> {
    for (key, entry) in session::contents(engine)? {
        let round = entry.value.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let writer = usize::from(key[0] - b'0');
        if round < least[writer] {
            let (key, least) = (key.escape_ascii(), least[writer]);
            let what = format!("{when} of round {least}: {key} of round {round}");
            return Err(CheckError::Mismatch(what));
        }
    }
    Ok(())
}

fn check_intact(engine: &dyn Engine) -> Result<(), CheckError> {
    match engine.verify(&mut |_, _| ())? {
        report if report.is_intact() => Ok(()),
        report => Err(CheckError::Mismatch(format!("damage: {:?}", report.damage))),
    }
}
