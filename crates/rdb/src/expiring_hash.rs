//! Hashes of which fields expire, as Redis 7.4 writes them.
//!
//! ```text
//!   type  body                                                                        written
//!   18    earliest:u64  length  (ttl:length  field:string  value:string)*             large ones
//!   19    earliest:u64  string: listpack of fields, values and expiries               small ones
//!   16    length  (expiry:length  field:string  value:string)*                        no
//!   17    string: listpack of fields, values and expiries                             no
//!
//!   earliest: the first expiry, 0 if there is none       expiry: in ms since 1970, 0: none
//!   ttl: 0 for none, or the expiry less earliest, plus 1
//! ```
//!
//! Redis refuses a listpack whose fields are not in the order of their expiries, those without one
//! last.

use std::io::Read;

use siltstone_collections::Encoding;

use crate::error::Result;
use crate::listpack::ListpackWriter;
use crate::sink::{put_bytes, put_length, put_string};
use crate::source::Source;

pub(crate) const FIRST_TYPE: u8 = OLD_HASH;
pub(crate) const LAST_TYPE: u8 = LISTPACK;
const OLD_HASH: u8 = 0x16;
const OLD_LISTPACK: u8 = 0x17;
const HASH: u8 = 0x18;
const LISTPACK: u8 = 0x19;

/// The last time that Redis represents, in milliseconds since 1970.
const MAX_TIME_MS: u64 = (1 << 48) - 1;

/// A field, its value and its expiry in milliseconds since 1970.
pub type ExpiringField = (Vec<u8>, Vec<u8>, Option<u64>);

/// Reads the body of a type; `listpack` reads the elements of a listpack.
pub(crate) fn decode<R: Read>(
    source: &mut Source<R>,
    kind: u8,
    listpack: impl FnOnce(&mut Source<R>) -> Result<Vec<Vec<u8>>>,
) -> Result<Vec<ExpiringField>> {
    let earliest = if matches!(kind, HASH | LISTPACK) { source.u64_le()? } else { 0 };
    let mut fields = Vec::new();
    if !matches!(kind, LISTPACK | OLD_LISTPACK) {
        for _ in 0..source.count()? {
            let time = match (kind, source.length()?) {
                (HASH, ttl @ 1..) => earliest.checked_add(ttl - 1),
                (_, time) => Some(time),
            };
            let expires_at = expiry(source, time)?;
            fields.push((source.element()?, source.element()?, expires_at));
        }
        return Ok(fields);
    }
    let elements = listpack(source)?;
    if !elements.len().is_multiple_of(3) {
        return Err(source.malformed("a field without its value or expiry"));
    }
    let mut elements = elements.into_iter();
    while let (Some(field), Some(value), Some(time)) =
        (elements.next(), elements.next(), elements.next())
    {
        let time = std::str::from_utf8(&time).ok().and_then(|time| time.parse().ok());
        fields.push((field, value, expiry(source, time)?));
    }
    Ok(fields)
}

fn expiry<R: Read>(source: &Source<R>, time: Option<u64>) -> Result<Option<u64>> {
    match time {
        Some(0) => Ok(None),
        Some(time) if time <= MAX_TIME_MS => Ok(Some(time)),
        _ => Err(source.malformed("the expiry of a field is not a time")),
    }
}

/// Writes type and body.
pub(crate) fn encode(out: &mut Vec<u8>, fields: &[ExpiringField], encoding: Encoding) {
    let earliest = fields.iter().filter_map(|(.., at)| *at).min().unwrap_or(0);
    if encoding < Encoding::Large {
        let mut sorted: Vec<_> = fields.iter().collect();
        sorted.sort_by_key(|(.., at)| at.unwrap_or(u64::MAX));
        let mut pack = ListpackWriter::new();
        for (field, value, at) in sorted {
            pack.push(field);
            pack.push(value);
            pack.push(at.unwrap_or(0).to_string().as_bytes());
        }
        out.push(LISTPACK);
        out.extend_from_slice(&earliest.to_le_bytes());
        put_bytes(out, &pack.finish());
        return;
    }
    out.push(HASH);
    out.extend_from_slice(&earliest.to_le_bytes());
    put_length(out, fields.len() as u64);
    for (field, value, at) in fields {
        put_length(out, at.map_or(0, |at| at - earliest + 1));
        put_string(out, field);
        put_string(out, value);
    }
}

#[cfg(test)]
mod tests {
    use crate::value::{self, Value};

    use super::*;

    fn decoded(bytes: &[u8]) -> Result<Value> {
        let mut source = Source::new(bytes, 1 << 20, false);
        let kind = source.byte()?;
        value::decode(&mut source, kind)
    }

    fn field(name: &str, value: &str, expires_at: Option<u64>) -> ExpiringField {
        (name.as_bytes().to_vec(), value.as_bytes().to_vec(), expires_at)
    }

    #[test]
    fn encodings_of_redis_7_4_and_of_its_candidates_are_read() {
        let expected =
            Value::ExpiringHash(vec![field("a", "1", Some(1000)), field("b", "2", None)]);
        let pack = b"\x16\0\0\0\x06\0\x81a\x02\x01\x01\xc3\xe8\x02\x81b\x02\x02\x01\x00\x01\xff";
        let pack = [&[pack.len() as u8][..], pack].concat();
        let earliest = 1000_u64.to_le_bytes();
        for input in [
            [&b"\x18"[..], &earliest, b"\x02\x01\x01a\xc0\x01\x00\x01b\xc0\x02"].concat(),
            [&b"\x19"[..], &earliest, &pack].concat(),
            b"\x16\x02\x43\xe8\x01a\xc0\x01\x00\x01b\xc0\x02".to_vec(),
            [&b"\x17"[..], &pack].concat(),
        ] {
            assert_eq!(decoded(&input).unwrap(), expected, "{}", input.escape_ascii());
        }
    }

    #[test]
    fn written_bytes_are_those_of_redis() {
        let fields = [field("b", "2", None), field("a", "1", Some(1000))];
        let mut out = Vec::new();
        encode(&mut out, &fields, Encoding::Compact);
        let pack = b"\x16\0\0\0\x06\0\x81a\x02\x01\x01\xc3\xe8\x02\x81b\x02\x02\x01\x00\x01\xff";
        let earliest = 1000_u64.to_le_bytes();
        assert_eq!(out, [&b"\x19"[..], &earliest, &[pack.len() as u8], pack].concat());
        let mut out = Vec::new();
        encode(&mut out, &fields, Encoding::Large);
        let expected =
            [&b"\x18"[..], &earliest, b"\x02\x00\x01b\xc0\x02\x01\x01a\xc0\x01"].concat();
        assert_eq!(out, expected);
    }

    #[test]
    fn wrong_expiry_and_missing_parts_are_refused() {
        let mut pack = ListpackWriter::new();
        for element in ["a", "1", "soon"] {
            pack.push(element.as_bytes());
        }
        let mut text = vec![OLD_LISTPACK];
        put_bytes(&mut text, &pack.finish());
        let mut pack = ListpackWriter::new();
        for element in ["a", "1", "5", "b"] {
            pack.push(element.as_bytes());
        }
        let mut odd = vec![OLD_LISTPACK];
        put_bytes(&mut odd, &pack.finish());
        let late = [&b"\x18"[..], &[0xff; 8], b"\x01\x02\x01a\xc0\x01"].concat();
        for refused in [&text[..], &odd, &late, b"\x18\0\0\0\0\0\0\0\0\0", b"\x16\0"] {
            assert!(decoded(refused).is_err(), "{}", refused.escape_ascii());
        }
    }
}
