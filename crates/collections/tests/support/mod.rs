//! A model of collections in standard types, random operations on both, and a comparison.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test uses a part")]

mod hashes;
mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

pub use hashes::HashModel;
use siltstone::{Clock, Durability, Engine, Env, ManualClock, Table, engines};
use siltstone_collections::{
    Collections, End, Error, Hash, Kind, List, MemberSelection, Order, Result, ScoreRange, Set,
    SortedSet, Stream, WriteSet,
};
use siltstone_faults::FaultyVfs;
use siltstone_testkit::TestRng;
use siltstone_vfs::Vfs;
pub use streams::StreamModel;

/// Keys of random operations, among them some that need an escape.
pub const KEYS: [&[u8]; 6] = [b"a", b"b", b"", b"\xff\xc0\x01", b"\xff\xc0", b"\xff\xff"];

pub type Name = Vec<u8>;

/// A collection in standard types.
#[derive(Debug, Clone, PartialEq)]
pub enum Model {
    Hash(HashModel),
    List(Vec<Vec<u8>>),
    Set(BTreeSet<Name>),
    SortedSet(BTreeMap<Name, f64>),
    Stream(StreamModel),
}

impl Model {
    pub fn is_empty(&self) -> bool {
        match self {
            Model::Hash(hash) => hash.is_empty(),
            Model::List(list) => list.is_empty(),
            Model::Set(set) => set.is_empty(),
            Model::SortedSet(set) => set.is_empty(),
            Model::Stream(stream) => !stream.exists,
        }
    }

    /// Number of rows besides owner and metadata.
    pub fn rows(&self) -> usize {
        match self {
            Model::Hash(hash) => hashes::rows(hash),
            Model::List(list) => list.len(),
            Model::Set(set) => set.len(),
            Model::SortedSet(set) => 2 * set.len(),
            Model::Stream(stream) => stream.rows(),
        }
    }
}

/// A collection and its expiry, by key.
pub type Models = BTreeMap<Name, (Model, Option<u64>)>;

/// Removes keys and fields that have expired.
pub fn expire(models: &mut Models, now: u64) {
    models.retain(|_, (model, expires_at)| {
        if let Model::Hash(hash) = model {
            hash.retain(|_, (_, expires_at)| expires_at.is_none_or(|at| at > now));
        }
        !model.is_empty() && expires_at.is_none_or(|at| at > now)
    });
}

pub fn engine(
    disk: &FaultyVfs,
    clock: &Arc<ManualClock>,
    seed: u64,
) -> siltstone::Result<Arc<dyn Engine>> {
    let env = Env::replayable(clock.clone(), seed);
    let options = [("memtable", "64KiB"), ("l0_capacity", "0")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    engines::open("lsm", vfs, &env, &options.into())
}

pub fn open(disk: &FaultyVfs, clock: &Arc<ManualClock>, seed: u64) -> Result<Collections> {
    let engine = engine(disk, clock, seed)?;
    let collections = Collections::open(Table::new("t", engine), clock.clone())?;
    // Both ways of removing adjacent rows, and both in one run.
    Ok(collections.with_min_range_rows([4096, 1, 2, 3][seed as usize % 4]))
}

/// Reads a collection in full, in every way there is, which must agree.
pub fn read(writes: &mut WriteSet<'_>, key: &[u8]) -> Result<Option<(Model, Option<u64>)>> {
    let Some(stored) = writes.stored(key)? else { return Ok(None) };
    let metadata = stored.metadata.unwrap();
    let model = match metadata.kind {
        Kind::Hash => Model::Hash(hashes::read(writes, key)?),
        Kind::List => {
            let list = List::open(writes, key)?;
            let elements = list.range(0..u64::MAX)?;
            for (position, element) in elements.iter().enumerate() {
                assert_eq!(list.get(position as u64)?.as_ref(), Some(element));
                assert!(list.find(element)?.unwrap() <= position as u64);
            }
            let mut reversed = Vec::new();
            list.for_each(0..list.len(), Order::Descending, &mut |position, element| {
                assert_eq!(position as usize, elements.len() - 1 - reversed.len());
                reversed.push(element.to_vec());
                true
            })?;
            reversed.reverse();
            assert_eq!(reversed, elements);
            Model::List(elements)
        }
        Kind::Set => {
            let set = Set::open(writes, key)?;
            let members: BTreeSet<_> = set.members()?.into_iter().collect();
            for member in &members {
                assert!(set.contains(member)?);
            }
            assert!(members.contains(&set.draw(&mut |bound| bound / 2)?.unwrap()));
            Model::Set(members)
        }
        Kind::SortedSet => {
            let set = SortedSet::open(writes, key)?;
            let members = set.members()?;
            assert!(members.is_sorted_by(|a, b| (a.1, &a.0) < (b.1, &b.0)), "{members:?}");
            for (rank, (member, score)) in members.iter().enumerate() {
                assert_eq!(set.score(member)?, Some(*score));
                assert_eq!(set.rank(member, Order::Ascending)?, Some((rank as u64, *score)));
                let reversed = (members.len() - 1 - rank) as u64;
                assert_eq!(set.rank(member, Order::Descending)?, Some((reversed, *score)));
            }
            for start in 0..members.len() {
                for end in start..=members.len() {
                    let expected = &members[start..end];
                    let ranks = start as u64..end as u64;
                    assert_eq!(set.range(ranks, Order::Ascending)?, expected);
                    let ranks = (members.len() - end) as u64..(members.len() - start) as u64;
                    let mut reversed = set.range(ranks, Order::Descending)?;
                    reversed.reverse();
                    assert_eq!(reversed, expected);
                }
            }
            Model::SortedSet(members.into_iter().collect())
        }
        Kind::Stream => Model::Stream(streams::read(writes, key)?),
    };
    let count = match &model {
        Model::Hash(hash) => hash.len(),
        Model::List(list) => list.len(),
        Model::Set(set) => set.len(),
        Model::SortedSet(set) => set.len(),
        Model::Stream(stream) => stream.entries.len(),
    };
    // Without the fields that had expired.
    let metadata = writes.stored(key)?.unwrap().metadata.unwrap();
    assert_eq!(metadata.count, count as u64);
    assert!(count > 0 || metadata.kind == Kind::Stream, "an empty collection is stored");
    Ok(Some((model, stored.entry.expires_at)))
}

/// Everything that is stored at the keys.
pub fn read_all(collections: &Collections) -> Models {
    let read_all = |writes: &mut WriteSet<'_>| {
        let mut models = Models::new();
        for key in KEYS {
            if let Some(found) = read(writes, key)? {
                models.insert(key.to_vec(), found);
            }
        }
        Ok(models)
    };
    collections.with(&KEYS, Durability::Buffered, read_all).unwrap()
}

/// Compares element rows with the metadata: no row of a live collection may be extra or missing.
pub fn live_rows(collections: &Collections) -> (usize, usize) {
    let engine = collections.table().engine();
    let rows = siltstone_collections::EngineRows::newest(engine.as_ref());
    let (mut live, mut dead) = (0, 0);
    for key in collections.table().keys().unwrap() {
        let key = key.unwrap();
        match siltstone_collections::Keyspace::is_live(&rows, &key).unwrap() {
            true => live += usize::from(siltstone_collections::user_key(&key).is_none()),
            false => dead += 1,
        }
    }
    (live, dead)
}

fn name(rng: &mut TestRng) -> Name {
    // Few names, so that operations meet.
    format!("m{}", rng.below(12)).into_bytes()
}

fn value(rng: &mut TestRng) -> Vec<u8> {
    let len = if rng.one_in(8) { 3000 } else { rng.below(6) } as usize;
    vec![b'a' + rng.below(3) as u8; len]
}

/// Applies a random operation to the collections and, if it succeeds, to the model.
pub fn step(
    collections: &Collections,
    models: &mut Models,
    clock: &ManualClock,
    rng: &mut TestRng,
    durability: Durability,
) -> Result<()> {
    let now = clock.now();
    expire(models, now);
    let key = *rng.pick(&KEYS);
    let other = *rng.pick(&KEYS);
    let mut next = models.clone();
    match rng.below(12) {
        0 => {
            let removed = collections.with(&[key], durability, |writes| Ok(writes.remove(key)?))?;
            assert_eq!(removed, next.remove(key).is_some());
        }
        1 => {
            let at = (!rng.one_in(3)).then(|| now + rng.below(40));
            let found =
                collections.with(&[key], durability, |writes| Ok(writes.set_expiry(key, at)?))?;
            assert_eq!(found, next.contains_key(key));
            match at {
                Some(at) if at <= now => drop(next.remove(key)),
                _ => {
                    next.entry(key.to_vec())
                        .and_modify(|found| found.1 = at)
                        .or_insert_with(|| (Model::List(Vec::new()), None))
                        .1 = at
                }
            }
        }
        2 => {
            let renamed = collections
                .with(&[key, other], durability, |writes| Ok(writes.rename(key, other)?))?;
            assert_eq!(renamed, next.contains_key(key));
            if let Some(found) = next.remove(key) {
                next.insert(other.to_vec(), found);
            }
        }
        3 if key != other => {
            let engine = collections.table().engine().clone();
            let rows = siltstone_collections::EngineRows::newest(engine.as_ref());
            let copied = collections.with(&[key, other], durability, |writes| {
                Ok(writes.copy_from(&rows, key, other)?)
            })?;
            assert_eq!(copied, next.contains_key(key));
            if let Some(found) = next.get(key).cloned() {
                next.insert(other.to_vec(), found);
            }
        }
        _ => change(collections, &mut next, key, now, rng, durability)?,
    }
    next.retain(|_, (model, _)| !model.is_empty());
    *models = next;
    Ok(())
}

/// Changes the collection at a key by several operations in one batch.
fn change(
    collections: &Collections,
    models: &mut Models,
    key: &[u8],
    now: u64,
    rng: &mut TestRng,
    durability: Durability,
) -> Result<()> {
    let empty = match rng.below(5) {
        0 => Model::Hash(BTreeMap::new()),
        1 => Model::List(Vec::new()),
        2 => Model::Set(BTreeSet::new()),
        3 => Model::Stream(StreamModel::default()),
        _ => Model::SortedSet(BTreeMap::new()),
    };
    let (model, expires_at) = models.entry(key.to_vec()).or_insert((empty.clone(), None));
    let is_other_type = std::mem::discriminant(model) != std::mem::discriminant(&empty);
    let steps = 1 + rng.below(6);
    // An emptied collection is removed, with its expiry, even if it is filled again at once.
    let mut is_emptied = false;
    let outcome = collections.with(&[key], durability, |writes| {
        match &empty {
            Model::Hash(_) => _ = Hash::open(writes, key)?,
            Model::List(_) => _ = List::open(writes, key)?,
            Model::Set(_) => _ = Set::open(writes, key)?,
            Model::SortedSet(_) => _ = SortedSet::open(writes, key)?,
            Model::Stream(_) => _ = Stream::open(writes, key)?,
        }
        match model {
            Model::Stream(model) => {
                let mut stream = Stream::open(writes, key)?;
                for _ in 0..2 * steps {
                    streams::change(&mut stream, model, rng)?;
                }
                assert_eq!(streams::read(writes, key)?, *model);
            }
            Model::Hash(model) => {
                let mut hash = Hash::open(writes, key)?;
                for _ in 0..steps {
                    hashes::change(&mut hash, model, now, rng)?;
                    assert_eq!(hash.len(), model.len() as u64);
                    is_emptied |= model.is_empty();
                }
            }
            Model::List(model) => {
                let mut list = List::open(writes, key)?;
                for _ in 0..steps {
                    change_list(&mut list, model, rng)?;
                    assert_eq!(list.range(0..100)?, *model);
                    is_emptied |= model.is_empty();
                }
            }
            Model::Set(model) => {
                let mut set = Set::open(writes, key)?;
                for _ in 0..steps {
                    let member = name(rng);
                    if rng.one_in(3) {
                        assert_eq!(set.remove(&member)?, model.remove(&member));
                    } else if rng.one_in(20) {
                        set.clear();
                        model.clear();
                    } else {
                        assert_eq!(set.insert(&member)?, model.insert(member));
                    }
                    is_emptied |= model.is_empty();
                }
            }
            Model::SortedSet(model) => {
                let mut set = SortedSet::open(writes, key)?;
                for _ in 0..steps {
                    let (member, score) = (name(rng), rng.below(9) as f64 / 2.0 - 2.0);
                    if rng.one_in(3) {
                        assert_eq!(set.remove(&member)?, model.remove(&member));
                    } else if rng.one_in(6) {
                        remove_members(&mut set, model, rng)?;
                    } else {
                        assert_eq!(set.insert(&member, score)?, model.insert(member, score));
                    }
                    is_emptied |= model.is_empty();
                    let (min, max) = (rng.below(5) as f64 - 2.0, rng.below(5) as f64 - 2.0);
                    let range = ScoreRange {
                        min: std::ops::Bound::Excluded(min),
                        max: std::ops::Bound::Included(max),
                    };
                    let mut found = 0;
                    set.for_each(range, Order::Ascending, &mut |_, score| {
                        assert!(score > min && score <= max);
                        found += 1;
                        true
                    })?;
                    let expected = model.values().filter(|score| **score > min && **score <= max);
                    assert_eq!(found, expected.count());
                }
            }
        }
        Ok(())
    });
    if is_emptied {
        *expires_at = None;
    }
    match outcome {
        Err(Error::WrongType { .. }) if is_other_type => Ok(()),
        outcome => {
            assert!(!is_other_type || outcome.is_err());
            outcome
        }
    }
}

/// Removes adjacent members.
fn remove_members(
    set: &mut SortedSet<'_, '_>,
    model: &mut BTreeMap<Name, f64>,
    rng: &mut TestRng,
) -> Result<()> {
    let mut ordered: Vec<_> = model.iter().map(|(name, score)| (*score, name.clone())).collect();
    ordered.sort_by(|a, b| a.partial_cmp(b).unwrap());
    let (start, end) = (rng.index(ordered.len() + 1), rng.index(ordered.len() + 1));
    let (min, max) = (rng.below(9) as f64 / 2.0 - 2.0, rng.below(9) as f64 / 2.0 - 2.0);
    let (selection, removed): (_, Vec<Name>) = match rng.one_in(2) {
        true => {
            let removed = ordered.get(start..end).unwrap_or_default();
            let ranks = start as u64..end as u64;
            (MemberSelection::Ranks(ranks), removed.iter().map(|(_, name)| name.clone()).collect())
        }
        false => {
            let scores = ScoreRange { min: Bound::Included(min), max: Bound::Included(max) };
            let inside = ordered.iter().filter(|(score, _)| (min..=max).contains(score));
            (MemberSelection::Scores(scores), inside.map(|(_, name)| name.clone()).collect())
        }
    };
    assert_eq!(set.remove_selected(&selection)?, removed.len() as u64);
    removed.iter().for_each(|name| _ = model.remove(name));
    Ok(())
}

fn change_list(list: &mut List<'_, '_>, model: &mut Vec<Vec<u8>>, rng: &mut TestRng) -> Result<()> {
    let element = value(rng);
    let position = rng.index(model.len() + 1);
    match rng.below(9) {
        0 | 1 => {
            list.push(End::Front, &element);
            model.insert(0, element);
        }
        2 | 3 => {
            list.push(End::Back, &element);
            model.push(element);
        }
        4 => {
            let expected = if model.is_empty() { None } else { Some(model.remove(0)) };
            assert_eq!(list.pop(End::Front)?, expected);
            assert_eq!(list.pop(End::Back)?, model.pop());
        }
        5 => {
            list.insert(position as u64, &element)?;
            model.insert(position, element);
        }
        6 => {
            let (max, order) =
                (1 + rng.below(3), *rng.pick(&[Order::Ascending, Order::Descending]));
            let mut left = max;
            let mut keep = |found: &Vec<u8>| {
                let goes = *found == element && left > 0;
                left -= u64::from(goes);
                !goes
            };
            match order {
                Order::Ascending => model.retain(&mut keep),
                Order::Descending => {
                    model.reverse();
                    model.retain(&mut keep);
                    model.reverse();
                }
            }
            assert_eq!(list.remove(&element, max, order)?, max - left);
        }
        7 => {
            let is_there = position < model.len();
            assert_eq!(list.set(position as u64, &element), is_there);
            if is_there {
                model[position] = element;
            }
        }
        _ => {
            let end = position + rng.index(9);
            list.trim(position as u64..end as u64);
            model.truncate(end);
            model.drain(..position.min(model.len()));
        }
    }
    Ok(())
}
