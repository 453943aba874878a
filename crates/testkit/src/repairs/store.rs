//! A store to be damaged, and the damages.
//!
//! ```text
//!   writes, maintenance, writes, …   ──▶ copy of the files at two points
//!   writes without maintenance           so that several logs are not yet in tables
//!   close, or a process crash
//! ```
//!
//! Keys are overwritten and deleted; a batch has up to eight operations; a store is synced at
//! times, never, or with each batch. Everything is drawn from the seed.
//!
//! Invariant: a store and its damages are a function of the case.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use siltstone_engine::{
    Durability, Engine, IngestMode, IngestOptions, ManualClock, Op, Purpose, WriteBatch,
};
use siltstone_runtime::Env;
use siltstone_vfs::{Mode, Ram, Vfs, is_zero};

use super::account::{History, Locations};
use crate::histories::catch_panics;
use crate::history::EPOCH;
use crate::scale::Case;
use crate::{EngineUnderTest, TestRng};

/// One in this many batches, on average, is ingested as a sorted file.
const INGESTION_INTERVAL: u64 = 12;

const BATCHES: u64 = 110;
const KEYS: usize = 70;

/// A store on a disk in memory.
pub(super) struct Store {
    pub(super) image: Image,
    /// The files as the engine reads them.
    view: Image,
    /// Earlier states of the files.
    older: Vec<Image>,
    pub(super) history: History,
    locations: OnceLock<Locations>,
    pub(super) option_set: u32,
    pub(super) is_closed: bool,
    pub(super) clock: Arc<ManualClock>,
    seed: u64,
}

impl Store {
    /// Writes a store.
    pub(super) fn write(tested: &dyn EngineUnderTest, case: Case) -> Result<Self, String> {
        let mut rng = TestRng::of(case.seed, 11);
        let clock = Arc::new(ManualClock::at(EPOCH));
        let disk = Arc::new(Ram::new());
        let is_closed = rng.one_in(2);
        let keys: Vec<Vec<u8>> = (0..KEYS).map(|_| rng.bytes(14)).collect();
        let synced = *rng.pick(&[1, 4, 12, u64::MAX]);
        let maintained = BATCHES * (1 + rng.below(3)) / 4;
        let (mut history, mut older) = (History::new(), Vec::new());
        catch_panics(|| {
            let env = Env::replayable(clock.clone(), case.seed);
            let engine = tested.open(disk.clone(), env, case.option_set)?;
            for number in 0..BATCHES {
                if number == BATCHES / 2 || number == BATCHES * 4 / 5 {
                    older.push(Image::of(disk.as_ref()).map_err(crate::CheckError::Mismatch)?);
                }
                if number == maintained {
                    engine.maintain()?;
                }
                clock.set(EPOCH + number);
                let mut batch = WriteBatch::new();
                for _ in 0..1 + rng.below(8) * rng.below(2) {
                    let key = rng.pick(&keys).clone();
                    if rng.one_in(6) {
                        batch.delete(&key);
                    } else {
                        let long = if rng.one_in(40) { 3000 } else { 200 };
                        let len = 16 + rng.below(long) as usize;
                        batch.put(&key, &rng.bytes(len));
                    }
                }
                let is_synced = rng.one_in(synced);
                let durability = if is_synced { Durability::Synced } else { Durability::Buffered };
                if tested.ingests(case.option_set) && rng.one_in(INGESTION_INTERVAL) {
                    batch = in_key_order(&batch);
                    ingest(tested, engine.as_ref(), &disk, &batch, case.option_set)?;
                } else {
                    engine.write(&batch, durability)?;
                }
                history.apply(&batch);
            }
            if is_closed { Ok(engine.close()?) } else { Ok(()) }
        })?;
        let (image, option_set, seed) = (Image::of(disk.as_ref())?, case.option_set, case.seed);
        let locations = OnceLock::new();
        let view = Image::of(tested.view(disk).as_ref())?;
        Ok(Store { image, view, older, history, locations, option_set, is_closed, clock, seed })
    }

    /// The locations of the newest versions of all keys, searched for once.
    pub(super) fn locations(&self) -> &Locations {
        self.locations.get_or_init(|| Locations::of(&self.history, &self.view))
    }

    /// A description of the store, for messages.
    pub(super) fn describe(&self) -> String {
        let how = if self.is_closed { "closed" } else { "not closed" };
        let files = self.image.files().map(|(path, bytes)| format!("{path} {}", bytes.len()));
        format!("a store that was {how}: {}", files.collect::<Vec<_>>().join(", "))
    }

    /// `count` damages, of every kind and of every file in turn.
    pub(super) fn damages(&self, count: usize) -> Vec<Damage> {
        let mut rng = TestRng::of(self.seed, 12);
        let mut all: Vec<Damage> = Vec::new();
        for (path, bytes) in self.image.files() {
            let len = bytes.len() as u64;
            let mut add = |corruption| all.push(Damage { path: path.to_owned(), corruption });
            add(Corruption::Delete);
            add(Corruption::Extend(vec![0x5a]));
            add(Corruption::Extend(rng.bytes(700)));
            add(Corruption::Extend(vec![0; 600]));
            self.older.iter().filter(|image| image.has(path)).enumerate().for_each(|(at, _)| {
                add(Corruption::Old(at));
            });
            let kind = kind_of(path);
            let others = self.image.files().map(|(other, _)| other);
            let others = others.filter(|other| *other != path && kind_of(other) == kind);
            others.for_each(|other| add(Corruption::Swap(other.to_owned())));
            if len == 0 {
                continue;
            }
            // The used part; most of a flash device is empty.
            let used = bytes.iter().rposition(|&byte| byte != 0).map_or(1, |at| at as u64 + 1);
            for near in [used, used, used.min(48), used.min(48)] {
                add(Corruption::Flip { at: rng.below(near), bit: rng.below(8) as u8 });
                let at = used - 1 - rng.below(near);
                add(Corruption::Flip { at, bit: rng.below(8) as u8 });
            }
            add(Corruption::Zero { from: 0, to: len });
            for _ in 0..3 {
                let from = rng.below(used);
                add(Corruption::Zero { from, to: len.min(from + 1 + rng.below(2000)) });
                let from = rng.below(used) / 512 * 512;
                add(Corruption::Zero { from, to: len.min(from + 512) });
                add(Corruption::Truncate(rng.below(used)));
            }
            add(Corruption::Truncate(0));
            add(Corruption::Truncate(len - 1));
        }
        // A partial shuffle.
        let count = count.min(all.len());
        for at in 0..count {
            let other = at + rng.index(all.len() - at);
            all.swap(at, other);
        }
        all.truncate(count);
        all
    }

    /// The store with this damage.
    pub(super) fn damaged(&self, damage: &Damage) -> Result<Image, String> {
        let Damage { path, corruption } = damage;
        let mut image = self.image.clone();
        let mut bytes = image.0.get(path).ok_or("there is no such file")?.to_vec();
        match corruption {
            Corruption::Flip { at, bit } => bytes[*at as usize] ^= 1 << bit,
            Corruption::Zero { from, to } => bytes[*from as usize..*to as usize].fill(0),
            Corruption::Truncate(len) => bytes.truncate(*len as usize),
            Corruption::Extend(more) => bytes.extend_from_slice(more),
            Corruption::Old(at) => {
                let mut older = self.older.iter().filter_map(|image| image.0.get(path));
                bytes = older.nth(*at).ok_or("there is no older copy")?.to_vec();
            }
            Corruption::Swap(other) => {
                let others = image.0.get(other).ok_or("there is no other file")?.to_vec();
                let own = std::mem::replace(&mut bytes, others);
                image.0.insert(other.clone(), own.into());
            }
            Corruption::Delete => {
                image.0.remove(path);
                return Ok(image);
            }
        }
        image.0.insert(path.clone(), bytes.into());
        Ok(image)
    }
}

/// The last operation on each key, in the order of the keys.
fn in_key_order(batch: &WriteBatch) -> WriteBatch {
    let last: BTreeMap<&[u8], Op<'_>> = batch.iter().map(|op| (op.key(), op)).collect();
    let mut ordered = WriteBatch::new();
    last.into_values().for_each(|op| _ = ordered.push(op));
    ordered
}

/// Ingests a batch as a sorted file.
fn ingest(
    tested: &dyn EngineUnderTest,
    engine: &dyn Engine,
    disk: &Arc<Ram>,
    batch: &WriteBatch,
    option_set: u32,
) -> siltstone_engine::Result<()> {
    const NAME: &str = "batch.sorted";
    tested.write_sorted_file(disk.clone(), NAME, batch, option_set)?;
    let options = IngestOptions { mode: IngestMode::Move, ..IngestOptions::default() };
    engine.prepare_ingestion(&[Path::new(NAME)], options)?.commit().map(drop)
}

/// A file, and its corruption.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Damage {
    path: String,
    corruption: Corruption,
}

#[derive(Clone, PartialEq, Eq)]
enum Corruption {
    Flip {
        at: u64,
        bit: u8,
    },
    Zero {
        from: u64,
        to: u64,
    },
    Truncate(u64),
    Extend(Vec<u8>),
    Delete,
    /// The file exchanged with another one of its kind.
    Swap(String),
    /// The older copy of this number.
    Old(usize),
}

impl Damage {
    pub(super) fn kind(&self) -> &'static str {
        match self.corruption {
            Corruption::Flip { .. } => "one bit flipped",
            Corruption::Zero { .. } => "bytes zeroed",
            Corruption::Truncate(_) => "truncated",
            Corruption::Extend(_) => "extended",
            Corruption::Delete => "deleted",
            Corruption::Swap(_) => "exchanged with another",
            Corruption::Old(_) => "an older copy",
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn is_older_copy(&self) -> bool {
        matches!(self.corruption, Corruption::Old(_))
    }

    pub(super) fn kind_of_file(&self) -> String {
        kind_of(&self.path)
    }
}

impl fmt::Debug for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.kind())?;
        match &self.corruption {
            Corruption::Flip { at, bit } => write!(f, ", bit {bit} of byte {at}"),
            Corruption::Zero { from, to } => write!(f, ", from {from} to {to}"),
            Corruption::Truncate(len) => write!(f, " at {len}"),
            Corruption::Extend(more) => write!(f, " by {} bytes", more.len()),
            Corruption::Swap(other) => write!(f, ", {other}"),
            Corruption::Delete | Corruption::Old(_) => Ok(()),
        }
    }
}

/// A path without its numbers.
fn kind_of(path: &str) -> String {
    let kind: String = path.chars().filter(|c| !c.is_ascii_digit()).collect();
    kind.trim_matches(['.', '-']).to_owned()
}

/// The files of a directory and its subdirectories, by path.
#[derive(Clone, Default)]
pub(super) struct Image(BTreeMap<String, Arc<[u8]>>);

impl Image {
    #[cfg(test)]
    pub(super) fn from_files<const N: usize>(files: [(&str, &[u8]); N]) -> Image {
        Image(files.iter().map(|(path, bytes)| ((*path).to_owned(), (*bytes).into())).collect())
    }

    pub(super) fn of(disk: &dyn Vfs) -> Result<Self, String> {
        let mut image = Image::default();
        image.read(disk, "").map_err(|error| error.to_string())?;
        Ok(image)
    }

    fn read(&mut self, vfs: &dyn Vfs, prefix: &str) -> siltstone_engine::Result<()> {
        for name in vfs.list()? {
            let file = vfs.open(&name, Mode::Read)?;
            let mut bytes = vec![0; file.len()? as usize];
            file.read_lossy_at(0, &mut bytes, Purpose::Maintenance)?;
            self.0.insert(format!("{prefix}{name}"), bytes.into());
        }
        for name in vfs.subdirectories()? {
            let directory = vfs.subdirectory(&name)?;
            self.read(directory.as_ref(), &format!("{prefix}{name}/"))?;
        }
        Ok(())
    }

    /// A disk with these files.
    pub(super) fn disk(&self) -> Arc<Ram> {
        let disk = Arc::new(Ram::new());
        for (path, bytes) in &self.0 {
            // Writes to memory succeed.
            write(disk.clone(), path, bytes).expect("a write to memory succeeds");
        }
        disk
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(path, bytes)| (path.as_str(), &bytes[..]))
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// The files that `other` does not have, or not with these bytes.
    pub(super) fn changed_from<'a>(
        &'a self,
        other: &'a Image,
    ) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.files().filter(|(path, bytes)| other.0.get(*path).is_none_or(|was| was[..] != **bytes))
    }
}

fn write(vfs: Arc<dyn Vfs>, path: &str, bytes: &[u8]) -> siltstone_engine::Result<()> {
    const PIECE: usize = 16 << 10;
    if let Some((directory, rest)) = path.split_once('/') {
        return write(vfs.subdirectory(directory)?, rest, bytes);
    }
    let file = vfs.create(path)?;
    file.set_len(bytes.len() as u64)?;
    for (at, piece) in (0..).step_by(PIECE).zip(bytes.chunks(PIECE)) {
        if !is_zero(piece) {
            file.write_at(at, piece, Purpose::Maintenance)?;
        }
    }
    Ok(())
}
