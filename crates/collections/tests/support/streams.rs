//! A model of a stream with its groups, random changes on both, and a comparison.

use std::collections::BTreeMap;

use siltstone_collections::{Group, Order, Result, Stream, StreamId, TrimTo, WriteSet, fields};
use siltstone_testkit::TestRng;

use super::{Name, name, value};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamModel {
    pub exists: bool,
    pub entries: BTreeMap<StreamId, Vec<Vec<u8>>>,
    pub last: StreamId,
    pub deleted: StreamId,
    pub added: u64,
    pub groups: BTreeMap<Name, GroupModel>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupModel {
    pub last: StreamId,
    pub read: Option<u64>,
    /// When each was seen and active.
    pub consumers: BTreeMap<Name, (u64, Option<u64>)>,
    /// Consumer, time and deliveries.
    pub pending: BTreeMap<StreamId, (Name, u64, u64)>,
}

impl StreamModel {
    /// Number of rows besides owner and metadata.
    pub fn rows(&self) -> usize {
        let groups = self.groups.values();
        let of_groups = groups.map(|group| 1 + group.consumers.len() + 2 * group.pending.len());
        self.entries.len() + of_groups.sum::<usize>()
    }
}

const ALL: std::ops::RangeInclusive<StreamId> = StreamId::MIN..=StreamId::MAX;

/// Reads a stream in every way there is, which must agree.
pub fn read(writes: &mut WriteSet<'_>, key: &[u8]) -> Result<StreamModel> {
    let stream = Stream::open(writes, key)?;
    let mut entries = BTreeMap::new();
    stream.for_each(ALL, Order::Ascending, &mut |id, encoded| {
        entries.insert(id, fields(encoded).map(<[u8]>::to_vec).collect::<Vec<_>>());
        true
    })?;
    assert_eq!(entries.len() as u64, stream.len());
    let ids: Vec<StreamId> = entries.keys().copied().collect();
    let reversed = stream.range(ALL, Order::Descending, u64::MAX)?;
    assert!(reversed.iter().map(|(id, _)| id).eq(ids.iter().rev()));
    for (at, id) in ids.iter().enumerate() {
        let encoded = stream.get(*id)?.unwrap();
        assert!(fields(&encoded).eq(entries[id].iter().map(Vec::as_slice)));
        let rest = stream.range(*id..=StreamId::MAX, Order::Ascending, 3)?;
        assert!(rest.iter().map(|(id, _)| id).eq(ids[at..].iter().take(3)));
    }
    assert_eq!(stream.edge(Order::Ascending)?.map(|(id, _)| id), ids.first().copied());
    assert_eq!(stream.edge(Order::Descending)?.map(|(id, _)| id), ids.last().copied());
    let state = *stream.state();
    let mut groups = BTreeMap::new();
    for group in stream.groups()? {
        assert_eq!(stream.group(&group.name)?.as_ref(), Some(&group));
        groups.insert(group.name.clone(), read_group(&stream, &group)?);
    }
    Ok(StreamModel {
        exists: stream.exists(),
        entries,
        last: state.last,
        deleted: state.deleted,
        added: state.added,
        groups,
    })
}

fn read_group(stream: &Stream<'_, '_>, group: &Group) -> Result<GroupModel> {
    let mut pending = BTreeMap::new();
    stream.for_each_pending(group, ALL, Order::Ascending, &mut |entry| {
        let (consumer, at) = (entry.consumer.clone(), entry.delivered_at);
        pending.insert(entry.id, (consumer, at, entry.deliveries));
        true
    })?;
    assert_eq!(pending.len() as u64, group.pending);
    let mut consumers = BTreeMap::new();
    for consumer in stream.consumers(group)? {
        assert_eq!(stream.consumer(group, &consumer.name)?.as_ref(), Some(&consumer));
        let ids = stream.pending_of(group, &consumer, ALL, u64::MAX)?;
        assert_eq!(ids.len() as u64, consumer.pending);
        let own = pending.iter().filter(|(_, (name, ..))| *name == consumer.name);
        assert!(own.map(|(id, _)| id).eq(&ids));
        consumers.insert(consumer.name, (consumer.seen_at, consumer.active_at));
    }
    assert!(pending.values().all(|(name, ..)| consumers.contains_key(name)));
    Ok(GroupModel { last: group.last, read: group.read, consumers, pending })
}

/// Changes a stream and its model alike.
pub fn change(
    stream: &mut Stream<'_, '_>,
    model: &mut StreamModel,
    rng: &mut TestRng,
) -> Result<()> {
    let known: Vec<StreamId> = model.entries.keys().copied().collect();
    let some_id = match known.is_empty() || rng.one_in(4) {
        true => StreamId { ms: rng.below(9), seq: rng.below(3) },
        false => *rng.pick(&known),
    };
    match rng.below(8) {
        0..=2 => {
            let id = StreamId { ms: model.last.ms + rng.below(2), seq: rng.below(5) };
            let added = vec![name(rng), value(rng)];
            let is_above = id > model.last;
            assert_eq!(stream.append(id, added.iter().map(Vec::as_slice)), is_above);
            if is_above {
                (model.exists, model.last, model.added) = (true, id, model.added + 1);
                model.entries.insert(id, added);
            }
        }
        3 => {
            let was_there = model.entries.remove(&some_id).is_some();
            assert_eq!(stream.remove(some_id)?, was_there);
            if was_there {
                model.deleted = model.deleted.max(some_id);
            }
        }
        4 => {
            let max = if rng.one_in(2) { u64::MAX } else { rng.below(4) };
            let (len, step) = (rng.below(4), 1 + rng.below(2));
            let (to, wanted) = match rng.one_in(2) {
                true => (TrimTo::MaxLen(len), known.len().saturating_sub(len as usize)),
                false => {
                    let below = known.iter().filter(|id| **id < some_id).count();
                    (TrimTo::MinId(some_id), below)
                }
            };
            let mut trimmed = (wanted as u64).min(max);
            let gone = model.added.saturating_sub(known.len() as u64);
            while trimmed > 0
                && (trimmed as usize) < known.len()
                && !(gone + trimmed).is_multiple_of(step)
            {
                trimmed -= 1;
            }
            assert_eq!(stream.trim(to, max, step)?, trimmed);
            for id in &known[..trimmed as usize] {
                model.entries.remove(id);
            }
        }
        5 if rng.one_in(8) => {
            let last = model.last.next().unwrap();
            stream.set_state(last, None, Some(7));
            (model.exists, model.last, model.added) = (true, last, 7);
        }
        _ => change_group(stream, model, some_id, rng)?,
    }
    Ok(())
}

fn change_group(
    stream: &mut Stream<'_, '_>,
    model: &mut StreamModel,
    id: StreamId,
    rng: &mut TestRng,
) -> Result<()> {
    let group_name = format!("g{}", rng.below(2)).into_bytes();
    let Some(mut group) = stream.group(&group_name)? else {
        assert!(!model.groups.contains_key(&group_name));
        let read = rng.one_in(2).then(|| rng.below(9));
        assert!(stream.create_group(&group_name, id, read)?);
        let group = GroupModel { last: id, read, ..GroupModel::default() };
        model.groups.insert(group_name, group);
        model.exists = true;
        return Ok(());
    };
    assert!(!stream.create_group(&group_name, id, None)?);
    if rng.one_in(12) {
        stream.remove_group(&group)?;
        model.groups.remove(&group_name);
        return Ok(());
    }
    let state = model.groups.get_mut(&group_name).unwrap();
    // The empty name is a prefix of the others.
    let consumer_name = [&b""[..], b"c", b"cc"][rng.index(3)].to_vec();
    let now = rng.below(1000);
    match stream.consumer(&group, &consumer_name)? {
        None => {
            stream.create_consumer(&mut group, &consumer_name, now);
            state.consumers.insert(consumer_name, (now, None));
        }
        Some(consumer) if rng.one_in(10) => {
            stream.remove_consumer(&mut group, &consumer)?;
            state.consumers.remove(&consumer_name);
            state.pending.retain(|_, (name, ..)| *name != consumer_name);
        }
        Some(_) if rng.one_in(3) => {
            let was_pending = state.pending.remove(&id).is_some();
            assert_eq!(stream.acknowledge(&mut group, id)?, was_pending);
            stream.save_group(&group);
        }
        Some(mut consumer) => {
            let deliveries = 1 + rng.below(3);
            (consumer.seen_at, consumer.active_at) = (now, Some(now));
            (group.last, group.read) = (id, Some(now));
            stream.deliver(&mut group, &mut consumer, (id, now, deliveries))?;
            stream.save_group(&group);
            stream.save_consumer(&group, &consumer);
            (state.last, state.read) = (id, Some(now));
            state.consumers.insert(consumer_name.clone(), (now, Some(now)));
            state.pending.insert(id, (consumer_name, now, deliveries));
        }
    }
    Ok(())
}
