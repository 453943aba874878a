//! Nodes of streams: entries in a listpack.
//!
//! ```text
//!   listpack of a node, whose id is that of its first entry
//!     count  deleted  fields  field*  0                       master entry, of the common fields
//!     2  ms  seq  value*                   fields + 3         entry with these fields
//!     0  ms  seq  n  (field  value)*       2n + 4             entry with other fields
//! ```
//!
//! `ms` and `seq` of an entry are differences to the node's id. An entry whose first number has bit
//! 0 set is deleted. The number behind an entry is that of its elements, to read backwards.
//!
//! Invariant: ids of decoded entries ascend, and each entry has fields.

use std::io::Read;

use siltstone_collections::StreamId;

use crate::error::{Error, Result};
use crate::listpack::{Listpack, ListpackWriter};
use crate::packed::{Entry, PackedResult};
use crate::source::Source;
use crate::stream::StreamEntry;

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;
/// As Redis's `stream-node-max-entries` and `stream-node-max-bytes`.
const MAX_NODE_ENTRIES: usize = 100;
const MAX_NODE_BYTES: usize = 4096;

/// Reads the entries of a node with this id.
pub(crate) fn decode_node<R: Read>(
    source: &mut Source<R>,
    master: StreamId,
    entries: &mut Vec<StreamEntry>,
) -> Result<()> {
    let offset = source.offset();
    let bytes = source.string()?;
    let at = |reason: &'static str| Error::Malformed { offset, reason };
    let max_elements = source.max_elements();
    let mut pack = Listpack::new(&bytes).map_err(at)?;
    let head = Head::read(&mut pack, max_elements).map_err(at)?;
    let (mut live, mut deleted) = (0, 0);
    while let Some(flags) = pack.next().map_err(at)? {
        let flags = flags.to_int().map_err(at)?;
        let entry = EntryParts::read(&mut pack, flags, &head, max_elements).map_err(at)?;
        if flags & DELETED != 0 {
            deleted += 1;
            continue;
        }
        live += 1;
        if entry.values.is_empty() {
            return Err(at("an entry of a stream without fields"));
        }
        let id = StreamId {
            ms: master.ms.wrapping_add_signed(entry.ms),
            seq: master.seq.wrapping_add_signed(entry.seq),
        };
        if entries.last().is_some_and(|last| last.id >= id) || id == StreamId::MIN {
            return Err(at("the entries of a stream are not in order"));
        }
        // Fields of the master entry are copied to each entry.
        let len = |parts: &[Entry<'_>]| -> usize {
            parts.iter().map(|p| if let Entry::Bytes(b) = p { b.len() } else { 20 }).sum()
        };
        let bytes = len(entry.fields) + len(&entry.values);
        source.charge_elements(1 + entry.fields.len() + entry.values.len())?;
        source.charge(bytes as u64)?;
        let fields = match flags & SAME_FIELDS != 0 {
            true => {
                let pairs = entry.fields.iter().zip(&entry.values);
                pairs.flat_map(|(field, value)| [field.to_bytes(), value.to_bytes()]).collect()
            }
            false => entry.values.iter().map(|part| part.to_bytes()).collect(),
        };
        entries.push(StreamEntry { id, fields });
    }
    match (live, deleted) == (head.count, head.deleted) {
        true => Ok(()),
        false => Err(at("a node of a stream has another number of entries than stated")),
    }
}

/// The master entry of a node.
struct Head<'a> {
    count: i64,
    deleted: i64,
    fields: Vec<Entry<'a>>,
}

impl<'a> Head<'a> {
    fn read(pack: &mut Listpack<'a>, max_elements: usize) -> PackedResult<Self> {
        let [count, deleted, len] =
            [pack.expect()?.to_int()?, pack.expect()?.to_int()?, pack.expect()?.to_int()?];
        let fields = elements(pack, len, max_elements)?;
        match pack.expect()? {
            Entry::Int(0) => Ok(Head { count, deleted, fields }),
            _ => Err("the master entry of a stream's node has no end"),
        }
    }
}

/// An entry, without copies.
struct EntryParts<'h, 'a> {
    ms: i64,
    seq: i64,
    /// The fields of the master entry, if these are the entry's.
    fields: &'h [Entry<'a>],
    /// The values, or fields and values.
    values: Vec<Entry<'a>>,
}

impl<'h, 'a> EntryParts<'h, 'a> {
    fn read(
        pack: &mut Listpack<'a>,
        flags: i64,
        head: &'h Head<'a>,
        max_elements: usize,
    ) -> PackedResult<Self> {
        let (ms, seq) = (pack.expect()?.to_int()?, pack.expect()?.to_int()?);
        let (fields, values, others) = match flags & SAME_FIELDS != 0 {
            true => {
                let values = elements(pack, head.fields.len() as i64, max_elements)?;
                (&head.fields[..], values, 3)
            }
            false => {
                let len = pack.expect()?.to_int()?;
                let doubled = len.checked_mul(2).ok_or("an entry has too many fields")?;
                (&[][..], elements(pack, doubled, max_elements)?, 4)
            }
        };
        match pack.expect()?.to_int()? == values.len() as i64 + others {
            true => Ok(EntryParts { ms, seq, fields, values }),
            false => Err("an entry of a stream has another number of elements than stated"),
        }
    }
}

fn elements<'a>(
    pack: &mut Listpack<'a>,
    count: i64,
    max_elements: usize,
) -> PackedResult<Vec<Entry<'a>>> {
    if count < 0 {
        return Err("a negative number of fields");
    }
    if usize::try_from(count).is_ok_and(|count| count > max_elements) {
        return Err("an entry of a stream has more elements than the limit of memory allows");
    }
    // The number allocates nothing.
    (0..count).map(|_| pack.expect()).collect()
}

/// Number of entries of the next node, at least one.
pub(crate) fn node_len(entries: &[StreamEntry]) -> usize {
    let mut bytes = 0;
    let fits = entries.iter().take(MAX_NODE_ENTRIES).take_while(|entry| {
        bytes += entry.fields.iter().map(|part| part.len() + 2).sum::<usize>();
        bytes <= MAX_NODE_BYTES
    });
    fits.count().max(1)
}

fn names(entry: &StreamEntry) -> impl Iterator<Item = &Vec<u8>> {
    entry.fields.iter().step_by(2)
}

/// The listpack of a node, whose id is that of `first`.
pub(crate) fn encode_node(first: &StreamEntry, entries: &[StreamEntry]) -> Vec<u8> {
    let mut pack = ListpackWriter::new();
    let fields = (first.fields.len() / 2) as i64;
    for number in [entries.len() as i64, 0, fields] {
        pack.push_int(number);
    }
    names(first).for_each(|name| pack.push(name));
    pack.push_int(0);
    for entry in entries {
        let is_same = names(entry).eq(names(first));
        pack.push_int(if is_same { SAME_FIELDS } else { 0 });
        pack.push_int(entry.id.ms.wrapping_sub(first.id.ms).cast_signed());
        pack.push_int(entry.id.seq.wrapping_sub(first.id.seq).cast_signed());
        if is_same {
            entry.fields.iter().skip(1).step_by(2).for_each(|value| pack.push(value));
            pack.push_int(fields + 3);
        } else {
            let own_fields = (entry.fields.len() / 2) as i64;
            pack.push_int(own_fields);
            entry.fields.iter().for_each(|part| pack.push(part));
            pack.push_int(2 * own_fields + 4);
        }
    }
    pack.finish()
}
