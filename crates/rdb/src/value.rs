//! Values and their encodings.
//!
//! A value is a type and a body. `string` and `length` are those of `source.rs`.
//!
//! ```text
//!   type                      body                                              written
//!   00  string                string                                            yes
//!   01  list                  length  string*
//!   02  set                   length  string*                                   large ones
//!   03  sorted set            length  (string  score)*
//!   04  hash                  length  (string  string)*                         large ones
//!   05  sorted set            length  (string  score:f64)*                      large ones
//!   09  hash                  string: zipmap
//!   0a  list                  string: ziplist
//!   0b  set                   string: intset                                    of integers
//!   0c  sorted set            string: ziplist of members and scores
//!   0d  hash                  string: ziplist of fields and values
//!   0e  list                  length  (string: ziplist)*
//!   10  hash                  string: listpack of fields and values             small ones
//!   11  sorted set            string: listpack of members and scores            small ones
//!   12  list                  length  (node)*                                   yes
//!   14  set                   string: listpack
//!   0f, 13, 15  stream        drawn in [`crate::stream`]                        13
//!   16 to 19    hash whose fields expire: drawn in `expiring_hash.rs`           18, 19
//!   06, 07      value of a module                                               refused
//!
//!   score of type 03: n:u8 and as many bytes of decimal, or fe for inf, ff for -inf
//!   node of type 12:  length 1, string: an element;  or length 2, string: listpack
//! ```
//!
//! The types written are those that Redis 7.0 knows (version 10), and all later versions read; of
//! hashes whose fields expire those that Redis 7.4 knows (version 12).

use std::io::Read;

use siltstone_collections::Encoding;

use crate::error::{Error, Result};
use crate::listpack::ListpackWriter;
use crate::packed::{Entry, PackedResult, parse_score};
use crate::sink::{canonical_integer, put_bytes, put_length, put_string};
use crate::source::Source;
use crate::stream::{self, Stream};
use crate::{expiring_hash, intset, listpack, modules, ziplist, zipmap};

pub use crate::expiring_hash::ExpiringField;

/// The highest version whose encodings are known: that of Redis 7.4.
pub const MAX_VERSION: u16 = 12;

pub(crate) const STRING: u8 = 0x00;
const LIST: u8 = 0x01;
const SET: u8 = 0x02;
const OLD_SORTED_SET: u8 = 0x03;
const HASH: u8 = 0x04;
const SORTED_SET: u8 = 0x05;
const OLD_MODULE: u8 = 0x06;
pub(crate) const MODULE: u8 = 0x07;
const HASH_ZIPMAP: u8 = 0x09;
const LIST_ZIPLIST: u8 = 0x0a;
const SET_INTSET: u8 = 0x0b;
const SORTED_SET_ZIPLIST: u8 = 0x0c;
const HASH_ZIPLIST: u8 = 0x0d;
const QUICKLIST: u8 = 0x0e;
const OLD_STREAM: u8 = 0x0f;
const HASH_LISTPACK: u8 = 0x10;
const SORTED_SET_LISTPACK: u8 = 0x11;
const QUICKLIST_2: u8 = 0x12;
const STREAM: u8 = 0x13;
const SET_LISTPACK: u8 = 0x14;
const STREAM_3: u8 = 0x15;

const NODE_PLAIN: u64 = 1;
const NODE_PACKED: u64 = 2;
/// Size of the listpacks of a list, as Redis's `list-max-listpack-size -2`.
const MAX_NODE_BYTES: usize = 8 << 10;

/// A value with all its elements.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A string.
    String(Vec<u8>),
    /// Elements from front to back.
    List(Vec<Vec<u8>>),
    /// Members; distinct unless the input is damaged.
    Set(Vec<Vec<u8>>),
    /// Fields and values; the fields are distinct unless the input is damaged.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    /// Fields and values of a hash of which fields expire; the fields as in a hash.
    ExpiringHash(Vec<ExpiringField>),
    /// Members and scores, none of them NaN; distinct unless the input is damaged.
    SortedSet(Vec<(Vec<u8>, f64)>),
    /// A stream.
    Stream(Stream),
}

impl Value {
    /// The name that Redis's TYPE returns.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::String(_) => "string",
            Value::List(_) => "list",
            Value::Set(_) => "set",
            Value::Hash(_) | Value::ExpiringHash(_) => "hash",
            Value::SortedSet(_) => "zset",
            Value::Stream(_) => "stream",
        }
    }
}

/// Reads the body of a value of a type.
pub(crate) fn decode<R: Read>(source: &mut Source<R>, kind: u8) -> Result<Value> {
    Ok(match kind {
        STRING => Value::String(source.string()?),
        LIST => Value::List(strings(source)?),
        LIST_ZIPLIST => Value::List(elements(source, ziplist::all)?),
        QUICKLIST => {
            let mut elements = Vec::new();
            for _ in 0..source.count()? {
                elements.append(&mut packed(source, ziplist::all)?);
            }
            Value::List(not_empty(source, elements)?)
        }
        QUICKLIST_2 => {
            let mut elements = Vec::new();
            for _ in 0..source.count()? {
                match source.length()? {
                    NODE_PLAIN => elements.push(source.element()?),
                    NODE_PACKED => elements.append(&mut packed(source, listpack::all)?),
                    _ => return Err(source.malformed("an unknown kind of a list's node")),
                }
            }
            Value::List(not_empty(source, elements)?)
        }
        SET => Value::Set(strings(source)?),
        SET_INTSET => Value::Set(elements(source, |bytes, max| {
            Ok(intset::all(bytes, max)?.into_iter().map(Entry::Int).collect())
        })?),
        SET_LISTPACK => Value::Set(elements(source, listpack::all)?),
        HASH => {
            let mut fields = Vec::new();
            for _ in 0..source.count()? {
                fields.push((source.element()?, source.element()?));
            }
            Value::Hash(fields)
        }
        HASH_ZIPMAP => Value::Hash(pairs(source, zipmap::all)?),
        HASH_ZIPLIST => Value::Hash(pairs(source, ziplist::all)?),
        HASH_LISTPACK => Value::Hash(pairs(source, listpack::all)?),
        OLD_SORTED_SET | SORTED_SET => {
            let mut members = Vec::new();
            for _ in 0..source.count()? {
                let member = source.element()?;
                let score = match kind {
                    SORTED_SET => f64::from_bits(source.u64_le()?),
                    _ => old_score(source)?,
                };
                if score.is_nan() {
                    return Err(source.malformed("a score is not a number"));
                }
                members.push((member, score));
            }
            Value::SortedSet(members)
        }
        SORTED_SET_ZIPLIST => scored(source, ziplist::all)?,
        SORTED_SET_LISTPACK => scored(source, listpack::all)?,
        OLD_STREAM => Value::Stream(stream::decode(source, stream::Version::One)?),
        STREAM => Value::Stream(stream::decode(source, stream::Version::Two)?),
        STREAM_3 => Value::Stream(stream::decode(source, stream::Version::Three)?),
        OLD_MODULE | MODULE => {
            let offset = source.offset();
            let what = format!("a value of the module type {}", modules::name(source.length()?));
            return Err(Error::Unsupported { offset, what });
        }
        expiring_hash::FIRST_TYPE..=expiring_hash::LAST_TYPE => {
            let listpack = |source: &mut Source<R>| elements(source, listpack::all);
            Value::ExpiringHash(expiring_hash::decode(source, kind, listpack)?)
        }
        _ => return Err(source.malformed("an unknown type of a value")),
    })
}

/// Whether a byte is the type of a value, also of one that cannot be read.
pub(crate) fn is_type(kind: u8) -> bool {
    kind <= expiring_hash::LAST_TYPE && kind != 0x08
}

fn strings<R: Read>(source: &mut Source<R>) -> Result<Vec<Vec<u8>>> {
    let mut elements = Vec::new();
    for _ in 0..source.count()? {
        elements.push(source.element()?);
    }
    Ok(elements)
}

fn not_empty<R: Read, T>(source: &Source<R>, elements: Vec<T>) -> Result<Vec<T>> {
    match elements.is_empty() {
        true => Err(source.malformed("a collection without elements")),
        false => Ok(elements),
    }
}

/// Reads a string with entries; `read` returns all, or more than a number of them.
fn packed<R: Read>(
    source: &mut Source<R>,
    read: impl FnOnce(&[u8], usize) -> PackedResult<Vec<Entry<'_>>>,
) -> Result<Vec<Vec<u8>>> {
    let offset = source.offset();
    let bytes = source.string()?;
    let entries = read(&bytes, source.max_elements());
    let entries = entries.map_err(|reason| Error::Malformed { offset, reason })?;
    source.charge_elements(entries.len())?;
    Ok(entries.into_iter().map(Entry::to_bytes).collect())
}

/// As [`packed`], for a whole collection.
fn elements<R: Read>(
    source: &mut Source<R>,
    read: impl FnOnce(&[u8], usize) -> PackedResult<Vec<Entry<'_>>>,
) -> Result<Vec<Vec<u8>>> {
    let elements = packed(source, read)?;
    not_empty(source, elements)
}

fn pairs<R: Read>(
    source: &mut Source<R>,
    read: impl FnOnce(&[u8], usize) -> PackedResult<Vec<Entry<'_>>>,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let elements = elements(source, read)?;
    if !elements.len().is_multiple_of(2) {
        return Err(source.malformed("an element without its value or score"));
    }
    let mut elements = elements.into_iter();
    Ok(std::iter::from_fn(|| Some((elements.next()?, elements.next()?))).collect())
}

fn scored<R: Read>(
    source: &mut Source<R>,
    read: impl FnOnce(&[u8], usize) -> PackedResult<Vec<Entry<'_>>>,
) -> Result<Value> {
    let pairs = pairs(source, read)?.into_iter();
    let members = pairs.map(|(member, score)| Ok((member, parse_score(&score)?)));
    let members: PackedResult<Vec<_>> = members.collect();
    Ok(Value::SortedSet(members.map_err(|reason| source.malformed(reason))?))
}

/// A score as decimal text.
fn old_score<R: Read>(source: &mut Source<R>) -> Result<f64> {
    match source.byte()? {
        0xff => Ok(f64::NEG_INFINITY),
        0xfe => Ok(f64::INFINITY),
        0xfd => Ok(f64::NAN),
        len => {
            let text = source.bytes(u64::from(len))?;
            parse_score(&text).map_err(|reason| source.malformed(reason))
        }
    }
}

/// A score as decimal text, from which the same score is read.
fn score_text(score: f64) -> String {
    if score.is_infinite() {
        return if score > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    // Integers of up to 53 bits are written as such. -0 is not one.
    let is_integer = score.trunc() == score && score.abs() < 9e15 && score.to_bits() != 1 << 63;
    if is_integer { format!("{score}") } else { format!("{score:e}") }
}

/// Writes type and body. `encoding` is the representation that Redis would have.
pub(crate) fn encode(out: &mut Vec<u8>, value: &Value, encoding: Encoding) {
    let is_small = encoding < Encoding::Large;
    match value {
        Value::String(bytes) => {
            out.push(STRING);
            put_string(out, bytes);
        }
        Value::List(elements) => encode_list(out, elements),
        Value::Set(members) => {
            let integers: Option<Vec<i64>> = match encoding {
                Encoding::Integers => members.iter().map(|m| canonical_integer(m)).collect(),
                _ => None,
            };
            if let Some(mut integers) = integers {
                integers.sort_unstable();
                out.push(SET_INTSET);
                put_bytes(out, &intset::encode(&integers));
                return;
            }
            out.push(SET);
            put_length(out, members.len() as u64);
            members.iter().for_each(|member| put_string(out, member));
        }
        Value::Hash(fields) if is_small => {
            let mut pack = ListpackWriter::new();
            for (field, value) in fields {
                pack.push(field);
                pack.push(value);
            }
            out.push(HASH_LISTPACK);
            put_bytes(out, &pack.finish());
        }
        Value::Hash(fields) => {
            out.push(HASH);
            put_length(out, fields.len() as u64);
            for (field, value) in fields {
                put_string(out, field);
                put_string(out, value);
            }
        }
        Value::ExpiringHash(fields) => expiring_hash::encode(out, fields, encoding),
        Value::SortedSet(members) if is_small => {
            let mut pack = ListpackWriter::new();
            for (member, score) in members {
                pack.push(member);
                pack.push(score_text(*score).as_bytes());
            }
            out.push(SORTED_SET_LISTPACK);
            put_bytes(out, &pack.finish());
        }
        Value::SortedSet(members) => {
            out.push(SORTED_SET);
            put_length(out, members.len() as u64);
            for (member, score) in members {
                put_string(out, member);
                out.extend_from_slice(&score.to_le_bytes());
            }
        }
        Value::Stream(stream) => {
            out.push(STREAM);
            stream::encode(out, stream);
        }
    }
}

fn encode_list(out: &mut Vec<u8>, elements: &[Vec<u8>]) {
    let (mut nodes, mut count) = (Vec::new(), 0);
    let mut end_node = |pack: ListpackWriter| {
        count += 1;
        put_length(&mut nodes, NODE_PACKED);
        put_bytes(&mut nodes, &pack.finish());
    };
    let mut pack = ListpackWriter::new();
    for element in elements {
        if !pack.is_empty() && pack.len() + element.len() > MAX_NODE_BYTES {
            end_node(std::mem::replace(&mut pack, ListpackWriter::new()));
        }
        pack.push(element);
    }
    end_node(pack);
    out.push(QUICKLIST_2);
    put_length(out, count);
    out.append(&mut nodes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Result<Value> {
        let mut source = Source::new(bytes, 1 << 20, false);
        let kind = source.byte()?;
        decode(&mut source, kind)
    }

    fn bytes(texts: &[&str]) -> Vec<Vec<u8>> {
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    #[test]
    fn values_of_old_versions_are_read() {
        assert_eq!(decoded(b"\x01\x02\x01a\xc0\x05").unwrap(), Value::List(bytes(&["a", "5"])));
        let ziplist = b"\x11\0\0\0\x0d\0\0\0\x02\0\x00\x01a\x03\xf6\xff";
        let ziplist = [&[ziplist.len() as u8][..], ziplist].concat();
        for (prefix, expected) in [
            (&b"\x0a"[..], Value::List(bytes(&["a", "5"]))),
            (b"\x0d", Value::Hash(vec![(b"a".to_vec(), b"5".to_vec())])),
            (b"\x0c", Value::SortedSet(vec![(b"a".to_vec(), 5.0)])),
            (b"\x0e\x01", Value::List(bytes(&["a", "5"]))),
        ] {
            let mut all = [prefix, &ziplist].concat();
            // The header states the length.
            let at = prefix.len() + 1;
            all[at] = ziplist.len() as u8 - 1;
            assert_eq!(decoded(&all).unwrap(), expected);
        }
        assert_eq!(
            decoded(b"\x03\x03\x01a\x031.5\x01b\xfe\x01c\xff").unwrap(),
            Value::SortedSet(vec![
                (b"a".to_vec(), 1.5),
                (b"b".to_vec(), f64::INFINITY),
                (b"c".to_vec(), f64::NEG_INFINITY)
            ])
        );
        assert_eq!(
            decoded(b"\x14\x0d\x0d\0\0\0\x02\0\x81b\x02\xc0\x85\x02\xff").unwrap(),
            Value::Set(bytes(&["b", "133"]))
        );
        assert_eq!(
            decoded(b"\x09\x07\x01\x01a\x01\x00b\xff").unwrap(),
            Value::Hash(vec![(b"a".to_vec(), b"b".to_vec())])
        );
    }

    #[test]
    fn empty_collection_and_nan_are_refused() {
        for refused in [
            &b"\x01\0"[..],
            b"\x02\0",
            b"\x04\0",
            b"\x05\0",
            b"\x12\0",
            b"\x12\x01\x02\x07\x07\0\0\0\0\0\xff",
            b"\x10\x07\x07\0\0\0\0\0\xff",
            b"\x0b\x08\x02\0\0\0\0\0\0\0",
            b"\x03\x01\x01a\xfd",
            b"\x05\x01\x01a\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x08\0",
            b"\x7f\0",
        ] {
            assert!(decoded(refused).is_err(), "{}", refused.escape_ascii());
        }
    }

    #[test]
    fn module_is_refused_by_name() {
        // The module type "ReJSON-RL".
        let text = decoded(b"\x07\x81\x45\xe2\x52\x0d\x1e\x22\x0c\x03\0").unwrap_err().to_string();
        assert!(text.contains("module type"), "{text}");
    }

    #[test]
    fn small_input_with_large_contents_is_refused() {
        use crate::sink::{put_bytes, put_length};
        let text = |input: &[u8]| decoded(input).unwrap_err().to_string();
        // A listpack of small integers.
        let mut pack = ListpackWriter::new();
        (0..60_000).for_each(|_| pack.push_int(1));
        let mut input = vec![SET_LISTPACK];
        put_bytes(&mut input, &pack.finish());
        assert!(text(&input).contains("more than 1048576 bytes"), "{}", text(&input));
        // A stream whose entries share a long field.
        let mut pack = ListpackWriter::new();
        [1000, 0, 1].iter().for_each(|number| pack.push_int(*number));
        pack.push(&[b'f'; 10_000]);
        pack.push_int(0);
        for seq in 0..1000 {
            [2, 0, seq, 7, 4].iter().for_each(|number| pack.push_int(*number));
        }
        let mut input = vec![STREAM, 1, 16];
        input.extend_from_slice(&[1; 16]);
        put_bytes(&mut input, &pack.finish());
        assert!(text(&input).contains("more than 1048576 bytes"), "{}", text(&input));
        // One whose only entry is deleted, and has more fields than memory.
        let mut pack = ListpackWriter::new();
        [0, 1, 0, 0, 1, 0, 0, 60_000].iter().for_each(|number| pack.push_int(*number));
        (0..2 * 60_000).for_each(|_| pack.push_int(1));
        pack.push_int(2 * 60_000 + 4);
        let mut input = vec![STREAM, 1, 16];
        input.extend_from_slice(&[1; 16]);
        put_bytes(&mut input, &pack.finish());
        assert!(text(&input).contains("more elements than the limit"), "{}", text(&input));
        // A string that is compressed to a hundredth.
        let mut input = vec![STRING, 0xc3];
        let copies = [&[0, b'a'][..], &[0xe0, 0xff, 0].repeat(10_000)].concat();
        put_length(&mut input, copies.len() as u64);
        put_length(&mut input, 1 + 264 * 10_000);
        input.extend_from_slice(&copies);
        assert!(text(&input).contains("more than 1048576 bytes"), "{}", text(&input));
    }

    #[test]
    fn scores_are_written_so_that_the_same_is_read() {
        for score in [0.0, -0.0, 1.0, -17.0, 0.1, 1e300, -5e-324, 9e15, f64::MAX, f64::INFINITY] {
            let text = score_text(score);
            assert_eq!(parse_score(text.as_bytes()).unwrap().to_bits(), score.to_bits(), "{text}");
        }
        assert_eq!(score_text(17.0), "17");
    }
}
