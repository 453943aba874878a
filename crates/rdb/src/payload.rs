//! Payloads of DUMP and RESTORE: one value with a footer.
//!
//! ```text
//!   type and body of a value     version:u16  crc:u64          little-endian
//! ```
//!
//! The checksum is that of all bytes before it. Redis refuses payloads of versions above its own,
//! so they are written with the version of Redis 7.0 ([`WRITTEN_VERSION`]), and those of hashes
//! whose fields expire with that of Redis 7.4.

use siltstone_collections::Encoding;

use crate::crc64::crc64;
use crate::error::Result;
use crate::source::Source;
use crate::value::{self, MAX_VERSION, Value};

/// The version that is written: that of Redis 7.0.
pub const WRITTEN_VERSION: u16 = 10;
/// The version of hashes whose fields expire: that of Redis 7.4.
const FIELD_EXPIRY_VERSION: u16 = 12;

const CRC_BYTES: usize = 8;

/// The payload of a value. `encoding` is the representation that Redis would have, which decides
/// how it is written; another one has a larger payload of the same value.
pub fn dump(value: &Value, encoding: Encoding) -> Vec<u8> {
    let mut payload = Vec::new();
    value::encode(&mut payload, value, encoding);
    let version = match value {
        Value::ExpiringHash(_) => FIELD_EXPIRY_VERSION,
        _ => WRITTEN_VERSION,
    };
    seal_as(&mut payload, version);
    payload
}

/// Appends the footer.
pub fn seal(payload: &mut Vec<u8>) {
    seal_as(payload, WRITTEN_VERSION);
}

fn seal_as(payload: &mut Vec<u8>, version: u16) {
    payload.extend_from_slice(&version.to_le_bytes());
    let crc = crc64(0, payload);
    payload.extend_from_slice(&crc.to_le_bytes());
}

/// Checks version and checksum of a payload, and returns the bytes before its footer.
pub fn verify(payload: &[u8]) -> Option<&[u8]> {
    let (covered, crc) = payload.split_last_chunk::<CRC_BYTES>()?;
    let (body, version) = covered.split_last_chunk()?;
    let is_known = u16::from_le_bytes(*version) <= MAX_VERSION;
    (is_known && crc64(0, covered) == u64::from_le_bytes(*crc)).then_some(body)
}

/// Reads the value of a payload without its footer. It may take up to `limit` bytes of memory.
///
/// # Errors
/// If the bytes are not exactly one value, or one that cannot be read.
pub fn restore(body: &[u8], limit: u64) -> Result<Value> {
    let mut source = Source::new(body, limit, false);
    let kind = source.byte()?;
    let value = value::decode(&mut source, kind)?;
    match source.is_at_end()? {
        true => Ok(value),
        false => Err(source.malformed("bytes follow the value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_that_of_redis() {
        // DUMP of a key with the value 5 by Redis 7.0.15.
        let payload = dump(&Value::String(b"5".to_vec()), Encoding::Compact);
        assert_eq!(payload[..4], *b"\0\xc0\x05\x0a");
        assert_eq!(
            restore(verify(&payload).unwrap(), 1 << 20).unwrap(),
            Value::String(b"5".into())
        );
        for at in 0..payload.len() {
            let mut damaged = payload.clone();
            damaged[at] ^= 1;
            assert_eq!(verify(&damaged), None, "{at}");
            assert_eq!(verify(&payload[..at]), None, "{at}");
        }
    }

    #[test]
    fn version_is_that_of_the_first_redis_that_knows_the_type() {
        let fields = vec![(b"f".to_vec(), b"v".to_vec(), Some(5))];
        for (value, version) in [
            (Value::Hash(vec![(b"f".to_vec(), b"v".to_vec())]), 10),
            (Value::ExpiringHash(fields), 12),
        ] {
            let payload = dump(&value, Encoding::Compact);
            assert_eq!(payload[payload.len() - 10], version);
            assert_eq!(restore(verify(&payload).unwrap(), 1 << 20).unwrap(), value);
        }
    }

    #[test]
    fn later_version_and_trailing_bytes_are_refused() {
        let mut payload = b"\0\xc0\x05".to_vec();
        payload.extend_from_slice(&(MAX_VERSION + 1).to_le_bytes());
        let crc = crc64(0, &payload);
        payload.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(verify(&payload), None);
        assert!(restore(b"\0\xc0\x05\0", 1 << 20).is_err());
        assert!(restore(b"", 1 << 20).is_err());
    }
}
