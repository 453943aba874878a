//! Reads a [`Value`] from the collections of a table, and writes one to them.
//!
//! Reads are for DUMP and for dump files, writes for RESTORE and their import. A value may come
//! from an attacker: equal elements, which no collection has, are rejected.

use std::fmt;

use siltstone_collections::{
    Encoding, End, Error, Hash, List, Order, ROW_OVERHEAD_BYTES, ScoreRange, Set, SortedSet,
    StoredValue, Stream as StoredStream, StreamId, WriteSet, fields,
};

use crate::stream::{PendingEntry, Stream, StreamConsumer, StreamEntry, StreamGroup};
use crate::value::Value;

/// Why a value cannot be stored.
#[derive(Debug)]
pub enum StoreError {
    /// Two elements of a set, hash or sorted set are equal, or two groups or consumers of a stream.
    Duplicate,
    /// An error of the table.
    Table(Error),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Duplicate => f.write_str("two elements of a collection are equal"),
            StoreError::Table(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        StoreError::Table(error)
    }
}

impl From<siltstone_engine::Error> for StoreError {
    fn from(error: siltstone_engine::Error) -> Self {
        StoreError::Table(error.into())
    }
}

fn distinct(is_new: bool) -> Result<(), StoreError> {
    if is_new { Ok(()) } else { Err(StoreError::Duplicate) }
}

impl Value {
    /// Reads the value at a key, and the representation that Redis would have. `stored` is what is
    /// there. `None`: the elements of a collection take more than `max_bytes`, each with its bytes
    /// and [`ROW_OVERHEAD_BYTES`]. Cost: a step per element, and all of them in memory.
    ///
    /// # Errors
    /// Those of reads.
    pub fn read(
        writes: &mut WriteSet<'_>,
        key: &[u8],
        stored: StoredValue,
        max_bytes: usize,
    ) -> Result<Option<(Self, Encoding)>, Error> {
        let Some(metadata) = stored.metadata else {
            return Ok(Some((Value::String(stored.entry.value), Encoding::Compact)));
        };
        let mut room = Room(Some(max_bytes));
        use siltstone_collections::Kind;
        let value = match metadata.kind {
            Kind::List => {
                let mut elements = Vec::new();
                let list = List::open(writes, key)?;
                list.for_each(0..metadata.count, Order::Ascending, &mut |_, element| {
                    elements.push(element.to_vec());
                    room.take(element.len())
                })?;
                Value::List(elements)
            }
            Kind::Set => {
                let mut members = Vec::new();
                Set::open(writes, key)?.for_each(&mut |member| {
                    members.push(member.to_vec());
                    room.take(member.len())
                })?;
                Value::Set(members)
            }
            Kind::SortedSet => {
                let mut members = Vec::new();
                let set = SortedSet::open(writes, key)?;
                set.for_each(ScoreRange::ALL, Order::Ascending, &mut |member, score| {
                    members.push((member.to_vec(), score));
                    room.take(member.len())
                })?;
                Value::SortedSet(members)
            }
            Kind::Hash => {
                let hash = Hash::open(writes, key)?;
                if hash.metadata().field_expiry.is_none_or(|expiry| expiry.fields == 0) {
                    let mut fields = Vec::new();
                    hash.for_each(&mut |field, value| {
                        fields.push((field.to_vec(), value.to_vec()));
                        room.take(field.len() + value.len())
                    })?;
                    Value::Hash(fields)
                } else {
                    let mut fields = Vec::new();
                    hash.for_each_with_expiry(&mut |field, value, expires_at| {
                        fields.push((field.to_vec(), value.to_vec(), expires_at));
                        room.take(field.len() + value.len())
                    })?;
                    Value::ExpiringHash(fields)
                }
            }
            Kind::Stream => {
                Value::Stream(read_stream(&StoredStream::open(writes, key)?, &mut room)?)
            }
        };
        Ok(room.is_left().then_some((value, metadata.encoding)))
    }

    /// Adds the elements to the value at a key, which has this type or is missing. A string
    /// replaces the value at the key. Fields of a hash that have expired are left out.
    ///
    /// # Errors
    /// If two elements are equal; then the caller must not apply the writes. Those of reads.
    pub fn store(&self, writes: &mut WriteSet<'_>, key: &[u8]) -> Result<(), StoreError> {
        match self {
            Value::String(bytes) => writes.put_string(key, bytes, None)?,
            Value::List(elements) => {
                let mut list = List::open(writes, key)?;
                elements.iter().for_each(|element| list.push(End::Back, element));
            }
            Value::Set(members) => {
                let mut set = Set::open(writes, key)?;
                for member in members {
                    distinct(set.insert(member)?)?;
                }
            }
            Value::Hash(fields) => {
                let mut hash = Hash::open(writes, key)?;
                for (field, value) in fields {
                    distinct(hash.insert(field, value)?)?;
                }
            }
            Value::ExpiringHash(fields) => {
                let mut hash = Hash::open(writes, key)?;
                for (field, value, _) in fields {
                    distinct(hash.insert(field, value)?)?;
                }
                // A field that has expired is removed.
                for (field, _, expires_at) in fields {
                    if expires_at.is_some() {
                        hash.set_expiry(field, *expires_at, |_| true)?;
                    }
                }
            }
            Value::SortedSet(members) => {
                let mut set = SortedSet::open(writes, key)?;
                for (member, score) in members {
                    distinct(set.insert(member, *score)?.is_none())?;
                }
            }
            Value::Stream(stream) => store_stream(stream, writes, key)?,
        }
        Ok(())
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Value::String(_) => 1,
            Value::List(elements) | Value::Set(elements) => elements.len(),
            Value::Hash(fields) => fields.len(),
            Value::ExpiringHash(fields) => fields.len(),
            Value::SortedSet(members) => members.len(),
            Value::Stream(stream) => stream.entries.len(),
        }
    }

    /// Whether it has no elements, as a stream may have.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cuts off the elements from a position on, so that both parts can be stored one after the
    /// other. Strings are not cut. Groups and ids of a stream are in the second part.
    pub fn split_off(&mut self, at: usize) -> Self {
        match self {
            Value::String(bytes) => Value::String(std::mem::take(bytes)),
            Value::List(elements) => Value::List(elements.split_off(at)),
            Value::Set(members) => Value::Set(members.split_off(at)),
            Value::Hash(fields) => Value::Hash(fields.split_off(at)),
            Value::ExpiringHash(fields) => Value::ExpiringHash(fields.split_off(at)),
            Value::SortedSet(members) => Value::SortedSet(members.split_off(at)),
            Value::Stream(stream) => {
                let rest = stream.entries.split_off(at);
                let first = std::mem::replace(&mut stream.entries, rest);
                let last = first.last().map_or(StreamId::MIN, |entry| entry.id);
                let added = first.len() as u64;
                let first = Stream { entries: first, last, added, ..Stream::default() };
                Value::Stream(std::mem::replace(stream, first))
            }
        }
    }
}

/// The memory that is left for the elements of a value; `None` once they have taken more.
struct Room(Option<usize>);

impl Room {
    /// Takes the memory of an element, and returns whether to go on.
    fn take(&mut self, bytes: usize) -> bool {
        self.0 = self.0.and_then(|left| left.checked_sub(bytes + ROW_OVERHEAD_BYTES));
        self.is_left()
    }

    fn is_left(&self) -> bool {
        self.0.is_some()
    }
}

/// Reads a stream; beyond the room not all of it.
fn read_stream(stored: &StoredStream<'_, '_>, room: &mut Room) -> Result<Stream, Error> {
    let state = *stored.state();
    let mut stream = Stream {
        last: state.last,
        deleted: state.deleted,
        added: state.added,
        ..Stream::default()
    };
    stored.for_each(StreamId::MIN..=StreamId::MAX, Order::Ascending, &mut |id, encoded| {
        let fields = fields(encoded).map(<[u8]>::to_vec).collect();
        stream.entries.push(StreamEntry { id, fields });
        room.take(encoded.len())
    })?;
    for group in stored.groups()? {
        if !room.take(group.name.len()) {
            break;
        }
        let consumers = stored.consumers(&group)?;
        let mut pending = Vec::new();
        let ids = StreamId::MIN..=StreamId::MAX;
        stored.for_each_pending(&group, ids, Order::Ascending, &mut |entry| {
            // Consumers are in the order of their names.
            let consumer = consumers.binary_search_by(|c| c.name.cmp(&entry.consumer));
            pending.extend(consumer.ok().map(|consumer| PendingEntry {
                id: entry.id,
                consumer,
                delivered_at: entry.delivered_at,
                deliveries: entry.deliveries,
            }));
            room.take(0)
        })?;
        let consumers = consumers.into_iter().map(|consumer| StreamConsumer {
            name: consumer.name,
            seen_at: consumer.seen_at,
            active_at: consumer.active_at,
        });
        stream.groups.push(StreamGroup {
            name: group.name,
            last: group.last,
            read: group.read,
            consumers: consumers.collect(),
            pending,
        });
    }
    Ok(stream)
}

fn store_stream(stream: &Stream, writes: &mut WriteSet<'_>, key: &[u8]) -> Result<(), StoreError> {
    let mut stored = StoredStream::open(writes, key)?;
    for entry in &stream.entries {
        distinct(stored.append(entry.id, entry.fields.iter().map(Vec::as_slice)))?;
    }
    stored.set_state(stream.last, Some(stream.deleted), Some(stream.added));
    for StreamGroup { name, last, read, consumers, pending } in &stream.groups {
        distinct(stored.create_group(name, *last, *read)?)?;
        let Some(mut group) = stored.group(name)? else { continue };
        let mut created = Vec::new();
        for StreamConsumer { name, seen_at, active_at } in consumers {
            distinct(stored.consumer(&group, name)?.is_none())?;
            let mut consumer = stored.create_consumer(&mut group, name, *seen_at);
            consumer.active_at = *active_at;
            created.push(consumer);
        }
        for PendingEntry { id, consumer, delivered_at, deliveries } in pending {
            let Some(consumer) = created.get_mut(*consumer) else { continue };
            stored.deliver(&mut group, consumer, (*id, *delivered_at, *deliveries))?;
        }
        created.iter().for_each(|consumer| stored.save_consumer(&group, consumer));
        stored.save_group(&group);
    }
    Ok(())
}
