//! Damage to any file at any position: detected, or harmless; never a wrong result.
//!
//! A small store is written once. For each damage a copy of it is corrupted, opened, read in every
//! way and verified.
//!
//! | the store was | what must follow |
//! | --- | --- |
//! | closed | `Corruption` or `Refused` at open, or `Corruption` with the file from a read or `verify`; or every result is right |
//! | not closed, one byte flipped | the same, or the state after fewer batches, but no fewer than were synced before a later write was logged: that write is the evidence that they were durable |
//! | not closed, more than a byte changed | the same, or the state after any number of batches: the damage may destroy the evidence |
//!
//! The last record of an unclosed log may be a torn write, which cannot be distinguished from
//! damage without the evidence after it.
//!
//! Checked: no damage causes a wrong result, a missing key, a panic or a hang; `verify`
//! finds what reads find.
//!
//! Source: the kinds of damage after Bairavasundaram et al., FAST 2008.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use siltstone_engine::{Engine, Entry, Error, ManualClock};
use siltstone_faults::{FaultyVfs, Survival};
use siltstone_runtime::Env;

use crate::histories::catch_panics;
use crate::history::{self, EPOCH, HistoryShape, Step};
use crate::{
    CheckError, CheckResult, EngineUnderTest, Oracle, Scale, Session, TestRng, oracle, session,
};

/// The engine hangs if the check of one damage takes longer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Damages stores that were closed.
///
/// # Errors
/// The undetected damage, and its result.
pub fn damage_when_closed(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    damage(tested, scale, true)
}

/// Damages stores that were not closed.
///
/// # Errors
/// The undetected damage, and its result.
pub fn damage_when_not_closed(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    damage(tested, scale, false)
}

fn damage(tested: &dyn EngineUnderTest, scale: &Scale, closed: bool) -> CheckResult {
    let mut summary = Summary::default();
    // Two distant option sets, unless one was given: their file formats differ most.
    let option_sets = scale.option_sets(tested.option_set_count());
    let stride = (option_sets.len() / 2).max(1);
    for option_set in option_sets.step_by(stride).take(2) {
        let store = Store::write(tested, option_set, scale.seed.unwrap_or(0), closed)
            .map_err(|what| format!("before any damage: {what}"))?;
        let damages = store.damages(scale.flips);
        let judge = |damage: &Damage| store.judge(tested, damage);
        with_timeout(tested.name(), &damages, judge, |(path, corruption), found| {
            summary.count(path, corruption, found);
        })
        .map_err(|what| format!("{} option set {option_set}: {what}", tested.name()))?;
    }
    Ok(summary.to_string())
}

/// One way to corrupt a store.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Corruption {
    Flip {
        at: u64,
        bit: u8,
    },
    ZeroSector(u64),
    Truncate(u64),
    /// Bytes of the file copied to another position, as after a misdirected write.
    Misplace {
        from: u64,
        to: u64,
        len: u64,
    },
    /// Bytes after the end.
    Append(u64),
    /// An older copy of the file.
    Old,
    /// The file exchanged with another one.
    Swap(String),
    Remove,
}

type Damage = (String, Corruption);

/// Judges every damage on a thread of its own, so that a hang is detected.
pub(crate) fn with_timeout<H: Debug + Sync, F: Send>(
    name: &str,
    corruptions: &[H],
    judge: impl Fn(&H) -> Result<F, String> + Send,
    mut on_result: impl FnMut(&H, F),
) -> Result<(), String> {
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        scope.spawn(move || {
            for corruption in corruptions {
                if sender.send(judge(corruption)).is_err() {
                    return;
                }
            }
        });
        for corruption in corruptions {
            match receiver.recv_timeout(TIMEOUT) {
                Ok(Ok(found)) => on_result(corruption, found),
                Ok(Err(what)) => return Err(format!("{corruption:?}: {what}")),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("{corruption:?}: the judging thread panicked"));
                }
                // Not an error, since the scope would wait for the thread forever.
                Err(RecvTimeoutError::Timeout) => {
                    eprintln_and_abort(&format!("{name} hangs on {corruption:?}"));
                }
            }
        }
        Ok(())
    })
}

#[expect(clippy::print_stderr, reason = "the last message of a test that hangs")]
fn eprintln_and_abort(what: &str) -> ! {
    eprintln!("{what}");
    std::process::abort()
}

/// How a damage was detected, or its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DamageOutcome {
    Opening,
    Reading,
    Verifying,
    /// At open, with another file named, which refers to the damaged one.
    Elsewhere,
    /// The state after fewer batches, within the promise.
    Shorter,
    Harmless,
}

/// A store on a simulated disk, and its expected contents.
pub(crate) struct Store {
    pub(crate) disk: FaultyVfs,
    /// The store before the last writes and the maintenance between them.
    before: FaultyVfs,
    oracle: Oracle,
    pub(crate) option_set: u32,
    seed: u64,
    closed: bool,
    /// The number of batches that no single flip may lose.
    proven: u64,
    pub(crate) clock: Arc<ManualClock>,
}

impl Store {
    pub(crate) fn write(
        tested: &dyn EngineUnderTest,
        option_set: u32,
        seed: u64,
        closed: bool,
    ) -> Result<Self, String> {
        let disk = FaultyVfs::new(0);
        let vfs = Arc::new(disk.clone());
        let mut session = Session::unopened(tested, option_set, 0, vfs);
        let shape = HistoryShape { steps: 110, value_bytes: 600, ..HistoryShape::WRITES };
        let mut steps = history::draw(seed, &shape);
        let is_kept = |step: &Step| !matches!(step, Step::Clock(_) | Step::Snapshot);
        steps.retain(is_kept);
        steps.insert(steps.len() * 4 / 5, Step::Maintain);
        let later = steps.split_off(steps.len() / 2);
        catch_panics(|| {
            session.open()?;
            steps.iter().try_for_each(|step| session.step(step))
        })?;
        let before = disk.survivors_as(Survival::KeepAll, 0);
        catch_panics(|| {
            later.iter().try_for_each(|step| session.step(step))?;
            session.step(&Step::Sync)
        })?;
        let proven = session.oracle.sequence();
        catch_panics(|| {
            if closed {
                return Ok(session.engine().close()?);
            }
            let last = history::draw(seed + 1, &HistoryShape { steps: 30, ..shape });
            let is_log = |step: &&Step| matches!(step, Step::Write(batch, _) if !batch.is_empty());
            last.iter().filter(is_log).take(3).try_for_each(|step| session.step(step))
        })?;
        session.drop_engine();
        let Session { oracle, clock, .. } = session;
        Ok(Store { disk, before, oracle, option_set, seed, closed, proven, clock })
    }

    /// The damages to try, about `max_flips` flipped bytes among them.
    fn damages(&self, max_flips: u64) -> Vec<Damage> {
        let mut rng = TestRng::of(self.seed, 3);
        let mut damages = Vec::new();
        let files = self.disk.files();
        let bytes: u64 = files.iter().map(|file| file.len).sum();
        let stride = bytes.div_ceil(max_flips.max(1)).max(1);
        for file in &files {
            let mut corruption = |corruption| damages.push((file.path.clone(), corruption));
            let mut at = rng.below(stride);
            while at < file.len {
                corruption(Corruption::Flip { at, bit: rng.below(8) as u8 });
                // Random strides reach every field of every record in the end.
                at += if stride == 1 { 1 } else { 1 + rng.below(2 * stride - 1) };
            }
            let sectors = file.len.div_ceil(512);
            let some = (max_flips / 16).max(4);
            (0..sectors)
                .filter(|_| rng.below(sectors) < some)
                .for_each(|n| corruption(Corruption::ZeroSector(n)));
            corruption(Corruption::Remove);
            corruption(Corruption::Append(1));
            corruption(Corruption::Append(700));
            if self.before.read_raw(&file.path).is_ok() {
                corruption(Corruption::Old);
            }
            let others = files.iter().filter(|other| other.path > file.path);
            others.for_each(|other| corruption(Corruption::Swap(other.path.clone())));
            if file.len == 0 {
                continue;
            }
            corruption(Corruption::Truncate(0));
            corruption(Corruption::Truncate(file.len - 1));
            for _ in 0..some.min(file.len) {
                corruption(Corruption::Truncate(rng.below(file.len)));
                let len = 1 + rng.below(file.len.min(4096));
                let mut position = || rng.below(file.len - len + 1) / 64 * 64;
                let (from, to) = (position(), position());
                corruption(Corruption::Misplace { from, to, len });
            }
        }
        damages
    }

    fn judge(
        &self,
        tested: &dyn EngineUnderTest,
        (path, corruption): &Damage,
    ) -> Result<DamageOutcome, String> {
        let disk = self.disk.survivors_as(Survival::KeepAll, 0);
        corrupt(&disk, &self.before, path, corruption).map_err(|error| error.to_string())?;
        let is_typed = |error: &Error| match error {
            Error::Refused { path, reason } => !path.is_empty() && !reason.is_empty(),
            Error::Corruption { file, reason, .. } => !file.is_empty() && !reason.is_empty(),
            _ => false,
        };
        // A log with a damaged head looks empty; the next log in the chain detects that.
        let is_named = |error: &Error| match (error, corruption) {
            (Error::Corruption { file, .. }, Corruption::Swap(other)) => {
                file.contains(path.as_str()) || file.contains(other.as_str())
            }
            (Error::Corruption { file, .. }, _) => file.contains(path.as_str()),
            _ => true,
        };
        let open = || {
            let env = Env::replayable(self.clock.clone(), 0);
            tested.open(Arc::new(disk.clone()), env, self.option_set)
        };
        catch_panics(|| {
            let engine = match open() {
                Ok(engine) => engine,
                Err(error) if is_typed(&error) => {
                    return Ok(if is_named(&error) {
                        DamageOutcome::Opening
                    } else {
                        DamageOutcome::Elsewhere
                    });
                }
                Err(error) => return Err(CheckError::Mismatch(format!("opening: {error}"))),
            };
            let read = self.read(engine.as_ref());
            let verified = engine.verify(&mut |_, _| ());
            match read {
                Ok(found) => match verified {
                    Ok(report) if report.is_intact() => Ok(found),
                    Ok(_) => Ok(DamageOutcome::Verifying),
                    Err(error) if is_typed(&error) => Ok(DamageOutcome::Verifying),
                    Err(error) => Err(CheckError::Mismatch(format!("verify: {error}"))),
                },
                Err(CheckError::Engine(error)) if is_typed(&error) && is_named(&error) => {
                    match verified {
                        Ok(report) if report.is_intact() => Err(CheckError::Mismatch(format!(
                            "verify misses what a read finds: {error}"
                        ))),
                        _ => Ok(DamageOutcome::Reading),
                    }
                }
                Err(wrong) => Err(CheckError::Mismatch(format!("reading: {wrong}"))),
            }
            .and_then(|found| match (found, self.closed) {
                (DamageOutcome::Shorter, true) => {
                    Err(CheckError::Mismatch("batches are missing from a closed store".to_owned()))
                }
                _ => Ok(found),
            })
        })
        .and_then(|found| match (found, corruption) {
            (DamageOutcome::Shorter, Corruption::Flip { .. }) => self.check_proven(&open, found),
            _ => Ok(found),
        })
    }

    /// Reads everything in every way.
    fn read(&self, engine: &dyn Engine) -> Result<DamageOutcome, CheckError> {
        let found = session::contents(engine)?;
        let sequence = self.oracle.find_sequence(&found, 0, EPOCH);
        let Some(sequence) = sequence else {
            let last = self.oracle.sequence();
            let expected = self.oracle.range(&siltstone_engine::KeyRange::all(), last, EPOCH);
            let what = oracle::compare(&expected, &found).err().unwrap_or_default();
            return Err(CheckError::Mismatch(what));
        };
        self.read_singly(engine, &found)?;
        if engine.capabilities().ordered {
            self.read_backwards(engine, &found)?;
        }
        Ok(if sequence == self.oracle.sequence() {
            DamageOutcome::Harmless
        } else {
            DamageOutcome::Shorter
        })
    }

    fn read_singly(
        &self,
        engine: &dyn Engine,
        found: &BTreeMap<Vec<u8>, Entry>,
    ) -> Result<(), CheckError> {
        let all = siltstone_engine::KeyRange::all();
        // Keys of every state, so that missing ones are looked up as well.
        let keys: Vec<&[u8]> = (0..=self.oracle.sequence())
            .step_by(7)
            .flat_map(|sequence| self.oracle.range(&all, sequence, EPOCH))
            .map(|expected| expected.key)
            .chain(found.keys().map(Vec::as_slice))
            .collect();
        for key in keys.into_iter().collect::<std::collections::BTreeSet<_>>() {
            if engine.get(key)?.as_ref() != found.get(key) {
                let key = oracle::show(key);
                return Err(CheckError::Mismatch(format!("get {key} and a scan differ")));
            }
        }
        Ok(())
    }

    fn read_backwards(
        &self,
        engine: &dyn Engine,
        found: &BTreeMap<Vec<u8>, Entry>,
    ) -> Result<(), CheckError> {
        let mut cursor = engine.iter()?;
        let mut is_valid = cursor.last()?;
        for (key, entry) in found.iter().rev() {
            if !is_valid || cursor.key() != key || cursor.value() != entry.value {
                let key = oracle::show(key);
                return Err(CheckError::Mismatch(format!("a backward scan misses {key}")));
            }
            is_valid = cursor.prev()?;
        }
        if is_valid {
            Err(CheckError::Mismatch("a backward scan returns more entries".to_owned()))
        } else {
            Ok(())
        }
    }

    /// Checks that a flip has lost no batch that is proven durable.
    fn check_proven(
        &self,
        open: &dyn Fn() -> siltstone_engine::Result<Box<dyn Engine>>,
        found: DamageOutcome,
    ) -> Result<DamageOutcome, String> {
        // The first open has truncated the tail for good, so a second one sees the same.
        let contents = catch_panics(|| session::contents(open()?.as_ref()))?;
        match self.oracle.find_sequence(&contents, self.proven, EPOCH) {
            Some(_) => Ok(found),
            None => Err(format!("fewer batches than the {} that are proven", self.proven)),
        }
    }
}

fn corrupt(
    disk: &FaultyVfs,
    before: &FaultyVfs,
    path: &str,
    corruption: &Corruption,
) -> siltstone_engine::Result<()> {
    use siltstone_vfs::Vfs as _;
    let replace = |path: &str, bytes: Vec<u8>| {
        disk.truncate(path, 0)?;
        disk.write_raw(path, 0, &bytes)
    };
    match *corruption {
        Corruption::Flip { at, bit } => disk.flip_bit(path, at, bit),
        Corruption::ZeroSector(sector) => disk.zero_sector(path, sector),
        Corruption::Truncate(len) => disk.truncate(path, len),
        Corruption::Append(len) => {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 89 + 7) as u8).collect();
            disk.write_raw(path, disk.read_raw(path)?.len() as u64, &bytes)
        }
        Corruption::Old => replace(path, before.read_raw(path)?),
        Corruption::Swap(ref other) => {
            let (one, two) = (disk.read_raw(path)?, disk.read_raw(other)?);
            replace(path, two)?;
            replace(other, one)
        }
        Corruption::Misplace { from, to, len } => {
            let bytes = disk.read_raw(path)?;
            disk.write_raw(path, to, &bytes[from as usize..(from + len) as usize])
        }
        Corruption::Remove => match path.rsplit_once('/') {
            None => disk.remove(path),
            Some((directory, name)) => disk.subdirectory(directory)?.remove(name),
        },
    }
}

/// Damages by kind of file and of corruption, and their results.
#[derive(Default)]
struct Summary(BTreeMap<(&'static str, String), BTreeMap<DamageOutcome, u64>>);

impl Summary {
    fn count(&mut self, path: &str, corruption: &Corruption, found: DamageOutcome) {
        let kind = match corruption {
            Corruption::Flip { .. } => "flipped bytes",
            Corruption::ZeroSector(_) => "zeroed sectors",
            Corruption::Truncate(_) => "truncations",
            Corruption::Misplace { .. } => "misplaced blocks",
            Corruption::Append(_) => "appended bytes",
            Corruption::Old => "older copies",
            Corruption::Swap(_) => "swapped files",
            Corruption::Remove => "missing files",
        };
        let file: String = path.chars().filter(|c| !c.is_ascii_digit()).collect();
        let file = file.trim_matches(['.', '-']).to_owned();
        *self.0.entry((kind, file)).or_default().entry(found).or_default() += 1;
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let total: u64 = self.0.values().flat_map(|counts| counts.values()).sum();
        write!(f, "{total} damages")?;
        for ((kind, file), counts) in &self.0 {
            write!(f, "\n    {kind} in {file}: {}", counts.values().sum::<u64>())?;
            for (found, count) in counts {
                write!(f, ", {count} {}", format!("{found:?}").to_lowercase())?;
            }
        }
        Ok(())
    }
}
