//! The state after a power cut.
//!
//! Builds a new file system from the durable tree and a choice of the pending changes; everything
//! in it is durable. The original is unchanged, so one power cut has many possible survivors.
//!
//! Invariant: everything covered by a successful sync is in every survivor; a sector has a value,
//! and a name a state, that it had since the last sync; the same seed gives the same survivor.
//!
//! Source: after Pillai et al., OSDI 2014. Drawing the shape first gives the extremes, which find
//! most bugs, as often as the mixtures, which find the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_structures::SplitMix64;
use siltstone_vfs::backend::{Node, SECTOR_BYTES, SparseBytes};

use super::FaultyVfs;
use super::directory::{Bindings, Directory, SharedDirectory};
use super::file::{FileState, Preallocation, SharedFile};
use super::plan::FaultPlan;

/// In one of this many files the length was durable before the bytes, as in ext4 with
/// `data=writeback`.
const GARBAGE_ONE_IN: u64 = 4;

/// The limit of the zeros past the end of an append file.
pub(super) const MAX_PREALLOCATION_BYTES: u64 = 100_000;

/// The pending changes that a power cut leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// None of the pending changes.
    LoseAll,
    /// The pending changes before a random sequence number, in all files and directories; the
    /// change with that number is torn.
    KeepPrefix,
    /// A random subset by sector, line and name.
    Random,
    /// All.
    KeepAll,
}

impl Survival {
    /// Every shape.
    pub const ALL: [Survival; 4] =
        [Survival::LoseAll, Survival::KeepPrefix, Survival::Random, Survival::KeepAll];
}

impl FaultyVfs {
    /// The whole file system after a power cut now (or when power was cut): power is on, no faults
    /// are planned, counters are 0, the capacity is the same. The seed draws the [`Survival`] (half
    /// of the seeds `Random`, a quarter `KeepPrefix`) and everything else.
    ///
    /// Costs a pointer per 16 KiB of data, and a pass over the pending changes.
    pub fn survivors(&self, seed: u64) -> FaultyVfs {
        let survival = match SplitMix64::new(seed).below(8) {
            0 => Survival::LoseAll,
            1 => Survival::KeepAll,
            2 | 3 => Survival::KeepPrefix,
            _ => Survival::Random,
        };
        self.survivors_as(survival, seed)
    }

    /// As [`survivors`](FaultyVfs::survivors), with a given shape.
    pub fn survivors_as(&self, survival: Survival, seed: u64) -> FaultyVfs {
        let fs = self.fs.lock();
        let mut builder =
            SurvivorBuilder { survival, seed, cut_sequence: 0, files: BTreeMap::new() };
        if survival == Survival::KeepPrefix {
            let mut pending_sequences = PendingSequences::default();
            pending_sequences.visit_directory(&fs.root.lock());
            let chosen = SplitMix64::stream(seed, u64::MAX)
                .below(pending_sequences.pending.len() as u64 + 1);
            builder.cut_sequence =
                pending_sequences.pending.into_iter().nth(chosen as usize).unwrap_or(u64::MAX);
        }
        let root = builder.directory(&fs.root.lock());
        let mut plan = FaultPlan::new(SplitMix64::stream(seed, u64::MAX - 1).next_u64());
        plan.capacity_bytes = fs.plan.capacity_bytes;
        plan.torn_on_full = fs.plan.torn_on_full;
        FaultyVfs::from_parts(plan, root, fs.next_id)
    }
}

/// The sequence numbers of all pending changes.
#[derive(Default)]
struct PendingSequences {
    pending: BTreeSet<u64>,
    seen: BTreeSet<u64>,
}

impl PendingSequences {
    fn visit_directory(&mut self, directory: &Directory) {
        self.pending.extend(directory.journal.iter().map(|change| change.sequence));
        let bound = directory.journal.iter().flat_map(|change| &change.bindings);
        let bound = bound.filter_map(|(_, node)| node.as_ref());
        // Every current name is durable or in the journal.
        for node in directory.durable.iter().map(|(_, node)| node).chain(bound) {
            match node {
                Node::File(file) => {
                    let file = file.lock();
                    if self.seen.insert(file.id) {
                        self.pending.extend(file.pending.iter().map(|change| change.sequence));
                        self.pending.extend(file.stores.iter().map(|store| store.sequence));
                    }
                }
                Node::Directory(directory) => {
                    let directory = directory.lock();
                    if self.seen.insert(directory.id) {
                        self.visit_directory(&directory);
                    }
                }
            }
        }
    }
}

/// Builds one survivor.
struct SurvivorBuilder {
    survival: Survival,
    seed: u64,
    /// For `KeepPrefix`: changes before this sequence number are kept, the one with it is torn.
    cut_sequence: u64,
    /// Survivors by file id, so that a file with two names stays one file.
    files: BTreeMap<u64, SharedFile>,
}

impl SurvivorBuilder {
    fn directory(&mut self, directory: &Directory) -> SharedDirectory {
        let mut names = Bindings::default();
        for (name, node) in self.names(directory).iter() {
            let node = match node {
                Node::File(file) => Node::File(self.file(&file.lock())),
                Node::Directory(directory) => Node::Directory(self.directory(&directory.lock())),
            };
            names.set(name, Some(node));
        }
        Arc::new(Mutex::new(Directory::new_durable(directory.id, names)))
    }

    /// The surviving names, bound to the files and directories of the original.
    fn names(&self, directory: &Directory) -> Bindings {
        let mut random = SplitMix64::stream(self.seed, directory.id);
        let bias = Bias::draw(&mut random);
        let mut names = directory.durable.clone();
        let mut lost = BTreeSet::new();
        for change in &directory.journal {
            let kept = match self.survival {
                Survival::LoseAll => false,
                Survival::KeepAll => true,
                Survival::KeepPrefix => change.sequence < self.cut_sequence,
                // If a name misses one state, it cannot have a later one.
                Survival::Random => {
                    bias.keeps(&mut random) && !change.names().any(|name| lost.contains(name))
                }
            };
            match kept {
                true => change.apply(&mut names),
                false => lost.extend(change.names()),
            }
        }
        names
    }

    fn file(&mut self, file: &FileState) -> SharedFile {
        if let Some(known) = self.files.get(&file.id) {
            return known.clone();
        }
        let mut random = SplitMix64::stream(self.seed, file.id);
        let bytes = match self.survival {
            Survival::LoseAll => file.durable.clone(),
            Survival::KeepAll => {
                let mut bytes = prefix_of(file, u64::MAX, &mut random);
                file.apply_stores(&mut bytes);
                bytes
            }
            Survival::KeepPrefix => {
                let mut bytes = prefix_of(file, self.cut_sequence, &mut random);
                file.apply_stores_before(self.cut_sequence, &mut random, &mut bytes);
                bytes
            }
            Survival::Random => {
                let mut bytes = any_of(file, &mut random);
                let bias = Bias::draw(&mut random);
                let keeps = |count, random: &mut SplitMix64| bias.keeps_of(count, random);
                file.apply_any_stores(&mut random, keeps, &mut bytes);
                bytes
            }
        };
        let mut bytes = bytes;
        if file.preallocation != Preallocation::None && random.coin() {
            bytes.set_len(bytes.len() + random.below(MAX_PREALLOCATION_BYTES));
        }
        let survivor = Arc::new(Mutex::new(FileState::new_durable(file.id, bytes)));
        self.files.insert(file.id, survivor.clone());
        survivor
    }
}

/// All changes before a sequence number, and some sectors of the change with it.
fn prefix_of(file: &FileState, cut_sequence: u64, random: &mut SplitMix64) -> SparseBytes {
    let mut bytes = file.durable.clone();
    // A failed write is several changes with the same number.
    for change in file.pending.iter().take_while(|change| change.sequence <= cut_sequence) {
        if change.sequence < cut_sequence {
            change.apply(&mut bytes);
            continue;
        }
        let length = if random.coin() { change.length_after } else { bytes.len() };
        for part in change.parts().filter(|_| random.coin()) {
            change.apply_part(&part, &mut bytes);
        }
        bytes.set_len(length);
    }
    bytes
}

/// For each sector, the value after any prefix of the changes to it, and any length. A new sector
/// without any of its changes has zeros or garbage.
fn any_of(file: &FileState, random: &mut SplitMix64) -> SparseBytes {
    let mut touches: BTreeMap<u64, u64> = BTreeMap::new();
    for part in file.pending.iter().flat_map(|change| change.parts()) {
        *touches.entry(part.sector).or_default() += 1;
    }
    let bias = Bias::draw(random);
    let mut kept: BTreeMap<u64, u64> = touches;
    for count in kept.values_mut() {
        *count = bias.keeps_of(*count, random);
    }
    let unwritten: Vec<u64> = kept.iter().filter(|(_, n)| **n == 0).map(|(&s, _)| s).collect();
    let mut bytes = file.durable.clone();
    for change in &file.pending {
        for part in change.parts() {
            // Every sector was counted above.
            let left = kept.entry(part.sector).or_default();
            if *left > 0 {
                *left -= 1;
                change.apply_part(&part, &mut bytes);
            }
        }
    }
    bytes.set_len(any_length(file, random));
    if random.below(GARBAGE_ONE_IN) == 0 {
        leave_garbage(unwritten, file.durable.len(), random, &mut bytes);
    }
    bytes
}

/// Garbage where the file grew and its bytes were lost.
fn leave_garbage(
    sectors: Vec<u64>,
    durable: u64,
    random: &mut SplitMix64,
    bytes: &mut SparseBytes,
) {
    for start in sectors.into_iter().map(|sector| sector * SECTOR_BYTES) {
        let end = (start + SECTOR_BYTES).min(bytes.len());
        if (durable..end).contains(&start) {
            let garbage: Vec<u8> = (start..end).map(|_| random.next_u64() as u8).collect();
            bytes.write(start, &garbage);
        }
    }
}

/// A length of the file since its last sync, or the end of a sector between two of them.
fn any_length(file: &FileState, random: &mut SplitMix64) -> u64 {
    let mut lengths = vec![file.durable.len()];
    lengths.extend(file.pending.iter().map(|change| change.length_after));
    let had = lengths[random.below(lengths.len() as u64) as usize];
    let (low, high) = lengths.iter().fold((had, had), |(l, h), &n| (l.min(n), h.max(n)));
    match random.below(4) {
        0 => lengths[0],
        1 => lengths[lengths.len() - 1],
        2 => had,
        _ => (low + random.below(high - low + 1)).next_multiple_of(SECTOR_BYTES).min(high),
    }
}

/// Whether a file or directory loses all changes, keeps all, or gets a mixture. Independent draws
/// would almost never give a large file that is lost next to one that is kept.
enum Bias {
    Lose,
    Mix,
    Keep,
}

impl Bias {
    fn draw(random: &mut SplitMix64) -> Self {
        match random.below(4) {
            0 => Bias::Lose,
            1 => Bias::Keep,
            _ => Bias::Mix,
        }
    }

    fn keeps(&self, random: &mut SplitMix64) -> bool {
        match self {
            Bias::Lose => false,
            Bias::Mix => random.coin(),
            Bias::Keep => true,
        }
    }

    /// How many of `count` consecutive changes are kept.
    fn keeps_of(&self, count: u64, random: &mut SplitMix64) -> u64 {
        match self {
            Bias::Lose => 0,
            Bias::Mix => random.below(count + 1),
            Bias::Keep => count,
        }
    }
}
