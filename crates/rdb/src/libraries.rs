//! Payloads of FUNCTION DUMP and RESTORE: libraries of functions with the footer of DUMP.
//!
//! ```text
//!   (0xf5  code:string)*      version:u16  crc:u64          little-endian
//! ```
//!
//! The code of a library begins with its engine and name. The same records are in a dump file.

use crate::error::Result;
use crate::payload;
use crate::sink::put_bytes;
use crate::source::Source;

/// Type of a library's record.
pub(crate) const LIBRARY: u8 = 0xf5;

/// The payload of libraries, by their code.
pub fn dump<'c>(codes: impl Iterator<Item = &'c [u8]>) -> Vec<u8> {
    let mut payload = Vec::new();
    for code in codes {
        payload.push(LIBRARY);
        put_bytes(&mut payload, code);
    }
    payload::seal(&mut payload);
    payload
}

/// The code of each library of a payload without its footer ([`payload::verify`]). It may take up
/// to `limit` bytes of memory.
///
/// # Errors
/// If the bytes are not exactly libraries.
pub fn restore(body: &[u8], limit: u64) -> Result<Vec<Vec<u8>>> {
    let (mut rest, mut left, mut codes) = (body, limit, Vec::<Vec<u8>>::new());
    while !rest.is_empty() {
        let mut source = Source::new(&mut rest, left, false);
        if source.byte()? != LIBRARY {
            return Err(source.malformed("given type is not a function"));
        }
        let code = source.string()?;
        left = left.saturating_sub(code.len() as u64);
        codes.push(code);
    }
    Ok(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_round_trip() {
        let codes = [&b"#!lua name=a\nx"[..], b"12", &[7; 100_000]];
        let dumped = dump(codes.into_iter());
        let restored = restore(payload::verify(&dumped).unwrap(), 1 << 20).unwrap();
        assert_eq!(restored, codes);
        assert!(restore(&[], 100).unwrap().is_empty());
    }

    #[test]
    fn damaged_libraries_are_refused() {
        let mut dumped = dump([&b"#!lua name=a\nx"[..]].into_iter());
        let body = payload::verify(&dumped).unwrap().to_vec();
        for end in 1..body.len() {
            assert!(restore(&body[..end], 1 << 20).is_err(), "{end}");
        }
        assert!(restore(&body, 4).is_err());
        assert!(restore(b"\x00\x01a", 100).is_err());
        dumped[3] ^= 1;
        assert!(payload::verify(&dumped).is_none());
    }
}
