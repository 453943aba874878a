//! Damage to any file at any place: found, or harmless; never a wrong answer.
//!
//! A small store is written once. For each damage a copy of it is spoiled, opened, read in every
//! way and verified.
//!
//! | the store was | what must follow |
//! | --- | --- |
//! | closed | `Corruption` or `Refused` from opening, or `Corruption` naming the file from reading or `verify`; or every answer is right |
//! | not closed, one byte flipped | the same, or the state after fewer batches, but at least all that were synced before a later write was logged: that write is the proof that they were durable |
//! | not closed, more than a byte spoiled | the same, or the state after any number of batches: damage may take the proof along |
//!
//! The last record of a log that was not closed may be half-written in good faith, so its damage
//! is not told from a torn write; that is why the promise needs the proof behind it.
//!
//! Promise checked: no damage becomes a wrong answer, a missing key, a panic or a hang; what reading
//! finds, `verify` finds too.
//!
//! Source: ours; the kinds of damage after Bairavasundaram et al., FAST 2008.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use siltstone_engine::{Engine, Entry, Error, ManualClock};
use siltstone_faults::{Faulty, Survival};
use siltstone_runtime::Env;

use crate::histories::guarded;
use crate::history::{self, EPOCH, Shape, Step};
use crate::{Dice, Oracle, Scale, Session, Subject, Verdict, Wrong, oracle, session};

/// A damage that takes longer than this to judge has made the engine hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Damages stores that were closed.
///
/// # Errors
/// The damage that was not found, and what came of it.
pub fn damage_when_closed(subject: &dyn Subject, scale: &Scale) -> Verdict {
    damage(subject, scale, true)
}

/// Damages stores that were not closed.
///
/// # Errors
/// The damage that was not found, and what came of it.
pub fn damage_when_not_closed(subject: &dyn Subject, scale: &Scale) -> Verdict {
    damage(subject, scale, false)
}

fn damage(subject: &dyn Subject, scale: &Scale, closed: bool) -> Verdict {
    let mut tally = Tally::default();
    // Two option sets, not neighbours, unless one was asked for: the files differ most by format.
    let variants = scale.variants(subject.variants());
    let stride = (variants.len() / 2).max(1);
    for variant in variants.step_by(stride).take(2) {
        let store = Store::write(subject, variant, scale.seed.unwrap_or(0), closed)
            .map_err(|what| format!("before any damage: {what}"))?;
        let damages = store.damages(scale.flips);
        let judge = |damage: &Damage| store.judge(subject, damage);
        watched(subject.name(), &damages, judge, |(path, harm), found| {
            tally.count(path, harm, found);
        })
        .map_err(|what| format!("{} variant {variant}: {what}", subject.name()))?;
    }
    Ok(tally.to_string())
}

/// One way to spoil a store.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Harm {
    Flip {
        at: u64,
        bit: u8,
    },
    ZeroSector(u64),
    Truncate(u64),
    /// Bytes of the same file in another place, as after a misdirected write.
    Misplace {
        from: u64,
        to: u64,
        len: u64,
    },
    /// Bytes behind its end.
    Append(u64),
    /// The file as it was some time before.
    Old,
    /// Another file in its place, and it in the other's.
    Swap(String),
    Remove,
}

type Damage = (String, Harm);

/// Judges every harm on a thread of its own, so that a hang is seen.
pub(crate) fn watched<H: Debug + Sync, F: Send>(
    name: &str,
    harms: &[H],
    judge: impl Fn(&H) -> Result<F, String> + Send,
    mut heard: impl FnMut(&H, F),
) -> Result<(), String> {
    std::thread::scope(|scope| {
        let (tell, hear) = mpsc::channel();
        scope.spawn(move || {
            for harm in harms {
                if tell.send(judge(harm)).is_err() {
                    return;
                }
            }
        });
        for harm in harms {
            match hear.recv_timeout(PATIENCE) {
                Ok(Ok(found)) => heard(harm, found),
                Ok(Err(what)) => return Err(format!("{harm:?}: {what}")),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("{harm:?}: the judge died"));
                }
                // The scope would wait for the thread for ever.
                Err(RecvTimeoutError::Timeout) => {
                    eprintln_and_abort(&format!("{name} hangs on {harm:?}"));
                }
            }
        }
        Ok(())
    })
}

#[expect(clippy::print_stderr, reason = "the last words of a test that hangs")]
fn eprintln_and_abort(what: &str) -> ! {
    eprintln!("{what}");
    std::process::abort()
}

/// What came of a damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Opening,
    Reading,
    Verifying,
    /// On the way in, by what depends on the file: another file is named.
    Elsewhere,
    /// Fewer batches than were written, within the promise.
    Shorter,
    Harmless,
}

/// A store on a medium, and what it should say.
pub(crate) struct Store {
    pub(crate) medium: Faulty,
    /// As it was before the last writes and the maintenance between them.
    before: Faulty,
    oracle: Oracle,
    pub(crate) variant: u32,
    seed: u64,
    closed: bool,
    /// Batches that no single flip may take.
    proven: u64,
    pub(crate) clock: Arc<ManualClock>,
}

impl Store {
    pub(crate) fn write(
        subject: &dyn Subject,
        variant: u32,
        seed: u64,
        closed: bool,
    ) -> Result<Self, String> {
        let medium = Faulty::new(0);
        let vfs = Arc::new(medium.clone());
        let mut session = Session::unopened(subject, variant, 0, vfs);
        let shape = Shape { steps: 110, value_bytes: 600, ..Shape::WRITES };
        let mut steps = history::draw(seed, &shape);
        let wanted = |step: &Step| !matches!(step, Step::Clock(_) | Step::Snapshot);
        steps.retain(wanted);
        steps.insert(steps.len() * 4 / 5, Step::Maintain);
        let later = steps.split_off(steps.len() / 2);
        guarded(|| {
            session.open()?;
            steps.iter().try_for_each(|step| session.step(step))
        })?;
        let before = medium.survivors_as(Survival::KeepAll, 0);
        guarded(|| {
            later.iter().try_for_each(|step| session.step(step))?;
            session.step(&Step::Sync)
        })?;
        let proven = session.oracle.moment();
        guarded(|| {
            if closed {
                return Ok(session.engine().close()?);
            }
            let last = history::draw(seed + 1, &Shape { steps: 30, ..shape });
            let is_log = |step: &&Step| matches!(step, Step::Write(batch, _) if !batch.is_empty());
            last.iter().filter(is_log).take(3).try_for_each(|step| session.step(step))
        })?;
        session.drop_engine();
        let Session { oracle, clock, .. } = session;
        Ok(Store { medium, before, oracle, variant, seed, closed, proven, clock })
    }

    /// What to do to the store, about `most` bytes flipped.
    fn damages(&self, most: u64) -> Vec<Damage> {
        let mut dice = Dice::of(self.seed, 3);
        let mut damages = Vec::new();
        let files = self.medium.files();
        let bytes: u64 = files.iter().map(|file| file.len).sum();
        let stride = bytes.div_ceil(most.max(1)).max(1);
        for file in &files {
            let mut harm = |harm| damages.push((file.path.clone(), harm));
            let mut at = dice.below(stride);
            while at < file.len {
                harm(Harm::Flip { at, bit: dice.below(8) as u8 });
                // Strides of uneven length meet every field of every record in the end.
                at += if stride == 1 { 1 } else { 1 + dice.below(2 * stride - 1) };
            }
            let sectors = file.len.div_ceil(512);
            let some = (most / 16).max(4);
            (0..sectors)
                .filter(|_| dice.below(sectors) < some)
                .for_each(|n| harm(Harm::ZeroSector(n)));
            harm(Harm::Remove);
            harm(Harm::Append(1));
            harm(Harm::Append(700));
            if self.before.read_raw(&file.path).is_ok() {
                harm(Harm::Old);
            }
            let others = files.iter().filter(|other| other.path > file.path);
            others.for_each(|other| harm(Harm::Swap(other.path.clone())));
            if file.len == 0 {
                continue;
            }
            harm(Harm::Truncate(0));
            harm(Harm::Truncate(file.len - 1));
            for _ in 0..some.min(file.len) {
                harm(Harm::Truncate(dice.below(file.len)));
                let len = 1 + dice.below(file.len.min(4096));
                let mut place = || dice.below(file.len - len + 1) / 64 * 64;
                let (from, to) = (place(), place());
                harm(Harm::Misplace { from, to, len });
            }
        }
        damages
    }

    fn judge(&self, subject: &dyn Subject, (path, harm): &Damage) -> Result<Found, String> {
        let medium = self.medium.survivors_as(Survival::KeepAll, 0);
        inflict(&medium, &self.before, path, harm).map_err(|error| error.to_string())?;
        let is_typed = |error: &Error| match error {
            Error::Refused { path, reason } => !path.is_empty() && !reason.is_empty(),
            Error::Corruption { file, reason, .. } => !file.is_empty() && !reason.is_empty(),
            _ => false,
        };
        // A log whose head is spoiled looks empty; what misses it is the one that follows.
        let is_named = |error: &Error| match (error, harm) {
            (Error::Corruption { file, .. }, Harm::Swap(other)) => {
                file.contains(path.as_str()) || file.contains(other.as_str())
            }
            (Error::Corruption { file, .. }, _) => file.contains(path.as_str()),
            _ => true,
        };
        let open = || {
            let env = Env::replayable(self.clock.clone(), 0);
            subject.open(Arc::new(medium.clone()), env, self.variant)
        };
        guarded(|| {
            let engine = match open() {
                Ok(engine) => engine,
                Err(error) if is_typed(&error) => {
                    return Ok(if is_named(&error) { Found::Opening } else { Found::Elsewhere });
                }
                Err(error) => return Err(Wrong::Answer(format!("opening: {error}"))),
            };
            let read = self.read(engine.as_ref());
            let verified = engine.verify(&mut |_, _| ());
            match read {
                Ok(found) => match verified {
                    Ok(report) if report.is_sound() => Ok(found),
                    Ok(_) => Ok(Found::Verifying),
                    Err(error) if is_typed(&error) => Ok(Found::Verifying),
                    Err(error) => Err(Wrong::Answer(format!("verify: {error}"))),
                },
                Err(Wrong::Fault(error)) if is_typed(&error) && is_named(&error) => {
                    match verified {
                        Ok(report) if report.is_sound() => {
                            Err(Wrong::Answer(format!("verify misses what reading finds: {error}")))
                        }
                        _ => Ok(Found::Reading),
                    }
                }
                Err(wrong) => Err(Wrong::Answer(format!("reading: {wrong}"))),
            }
            .and_then(|found| match (found, self.closed) {
                (Found::Shorter, true) => {
                    Err(Wrong::Answer("batches are missing from a closed store".to_owned()))
                }
                _ => Ok(found),
            })
        })
        .and_then(|found| match (found, harm) {
            (Found::Shorter, Harm::Flip { .. }) => self.is_proven_there(&open, found),
            _ => Ok(found),
        })
    }

    /// Reads everything in every way.
    fn read(&self, engine: &dyn Engine) -> Result<Found, Wrong> {
        let found = session::contents(engine)?;
        let moment = self.oracle.find_moment(&found, 0, EPOCH);
        let Some(moment) = moment else {
            let last = self.oracle.moment();
            let expected = self.oracle.range(&siltstone_engine::KeyRange::all(), last, EPOCH);
            let what = oracle::compare(&expected, &found).err().unwrap_or_default();
            return Err(Wrong::Answer(what));
        };
        self.read_singly(engine, &found)?;
        if engine.capabilities().ordered {
            self.read_backwards(engine, &found)?;
        }
        Ok(if moment == self.oracle.moment() { Found::Harmless } else { Found::Shorter })
    }

    fn read_singly(
        &self,
        engine: &dyn Engine,
        found: &BTreeMap<Vec<u8>, Entry>,
    ) -> Result<(), Wrong> {
        let all = siltstone_engine::KeyRange::all();
        // Keys of every moment, so that what is missing is asked for as well.
        let keys: Vec<&[u8]> = (0..=self.oracle.moment())
            .step_by(7)
            .flat_map(|moment| self.oracle.range(&all, moment, EPOCH))
            .map(|expected| expected.key)
            .chain(found.keys().map(Vec::as_slice))
            .collect();
        for key in keys.into_iter().collect::<std::collections::BTreeSet<_>>() {
            if engine.get(key)?.as_ref() != found.get(key) {
                let key = oracle::show(key);
                return Err(Wrong::Answer(format!("get {key} is not what a walk finds")));
            }
        }
        Ok(())
    }

    fn read_backwards(
        &self,
        engine: &dyn Engine,
        found: &BTreeMap<Vec<u8>, Entry>,
    ) -> Result<(), Wrong> {
        let mut cursor = engine.iter()?;
        let mut there = cursor.last()?;
        for (key, entry) in found.iter().rev() {
            if !there || cursor.key() != key || cursor.value() != entry.value {
                let key = oracle::show(key);
                return Err(Wrong::Answer(format!("walking back misses {key}")));
            }
            there = cursor.prev()?;
        }
        if there { Err(Wrong::Answer("walking back finds more".to_owned())) } else { Ok(()) }
    }

    /// A flip may shorten the state only behind the proof.
    fn is_proven_there(
        &self,
        open: &dyn Fn() -> siltstone_engine::Result<Box<dyn Engine>>,
        found: Found,
    ) -> Result<Found, String> {
        // The first opening has cut off the tail for good, so a second one sees the same.
        let contents = guarded(|| session::contents(open()?.as_ref()))?;
        match self.oracle.find_moment(&contents, self.proven, EPOCH) {
            Some(_) => Ok(found),
            None => Err(format!("fewer batches than the {} that were proven", self.proven)),
        }
    }
}

fn inflict(
    medium: &Faulty,
    before: &Faulty,
    path: &str,
    harm: &Harm,
) -> siltstone_engine::Result<()> {
    use siltstone_vfs::Vfs as _;
    let replace = |path: &str, bytes: Vec<u8>| {
        medium.truncate(path, 0)?;
        medium.write_raw(path, 0, &bytes)
    };
    match *harm {
        Harm::Flip { at, bit } => medium.flip_bit(path, at, bit),
        Harm::ZeroSector(sector) => medium.zero_sector(path, sector),
        Harm::Truncate(len) => medium.truncate(path, len),
        Harm::Append(len) => {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 89 + 7) as u8).collect();
            medium.write_raw(path, medium.read_raw(path)?.len() as u64, &bytes)
        }
        Harm::Old => replace(path, before.read_raw(path)?),
        Harm::Swap(ref other) => {
            let (one, two) = (medium.read_raw(path)?, medium.read_raw(other)?);
            replace(path, two)?;
            replace(other, one)
        }
        Harm::Misplace { from, to, len } => {
            let bytes = medium.read_raw(path)?;
            medium.write_raw(path, to, &bytes[from as usize..(from + len) as usize])
        }
        Harm::Remove => match path.rsplit_once('/') {
            None => medium.remove(path),
            Some((directory, name)) => medium.subdirectory(directory)?.remove(name),
        },
    }
}

/// Damages by kind of file and of harm, and what came of them.
#[derive(Default)]
struct Tally(BTreeMap<(&'static str, String), BTreeMap<Found, u64>>);

impl Tally {
    fn count(&mut self, path: &str, harm: &Harm, found: Found) {
        let kind = match harm {
            Harm::Flip { .. } => "flipped bytes",
            Harm::ZeroSector(_) => "zeroed sectors",
            Harm::Truncate(_) => "truncations",
            Harm::Misplace { .. } => "misplaced blocks",
            Harm::Append(_) => "appended bytes",
            Harm::Old => "older copies",
            Harm::Swap(_) => "swapped files",
            Harm::Remove => "missing files",
        };
        let file: String = path.chars().filter(|c| !c.is_ascii_digit()).collect();
        let file = file.trim_matches(['.', '-']).to_owned();
        *self.0.entry((kind, file)).or_default().entry(found).or_default() += 1;
    }
}

impl std::fmt::Display for Tally {
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
