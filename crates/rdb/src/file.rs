//! Whole dump files: `dump.rdb`, as SAVE and BGSAVE of Redis write them.
//!
//! ```text
//!   "REDIS" and 4 digits of version
//!   fa  string string           a fact about the file, as redis-ver
//!   f5  string                  a library of functions
//!   f7  id:length  2  when:length  fields       what a module has put into the file (modules)
//!   fe  length                  the entries that follow are of this database
//!   fb  length length           its number of entries, and of those that expire
//!   f4  length length length    likewise of a slot of a cluster
//!   fc  ms:u64   fd  s:u32      the next entry expires then, since 1970
//!   f8  length   f9  u8         idle time and frequency of use of the next entry
//!   type  string  body          an entry: key and value
//!   ff  crc:u64                 the end; the checksum is that of all bytes before it, or 0
//! ```
//!
//! Integers are little-endian. Files before version 5 have no checksum.

use std::io::Read;

use siltstone_engine::Timestamp;

use crate::error::{Error, Result};
use crate::libraries::LIBRARY;
use crate::modules;
use crate::source::Source;
use crate::value::{self, MAX_VERSION, Value};

const SLOT_INFO: u8 = 0xf4;
const MODULE_DATA: u8 = 0xf7;
const IDLE_TIME: u8 = 0xf8;
const FREQUENCY: u8 = 0xf9;
const FACT: u8 = 0xfa;
const SIZES: u8 = 0xfb;
const EXPIRY_MS: u8 = 0xfc;
const EXPIRY_S: u8 = 0xfd;
const DATABASE: u8 = 0xfe;
const END: u8 = 0xff;

const FIRST_CHECKSUMMED_VERSION: u16 = 5;
const SHOWN_KEY_BYTES: usize = 64;

/// Reads a dump file from front to back.
#[derive(Debug)]
pub struct DumpFile<R> {
    source: Source<R>,
    version: u16,
    database: u64,
    is_checksummed: bool,
    is_ended: bool,
}

/// Part of a dump file.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A key and its value.
    Entry(Entry),
    /// A fact about the file: name and value.
    Fact(Vec<u8>, Vec<u8>),
    /// The code of a library of functions.
    Functions(Vec<u8>),
    /// What a module has put into the file besides entries: the name of its type.
    ModuleData(String),
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Number of the database.
    pub database: u64,
    /// Key.
    pub key: Vec<u8>,
    /// Value.
    pub value: Value,
    /// Expiry, in milliseconds since 1970; it may be over.
    pub expires_at: Option<Timestamp>,
    /// Offset in the file.
    pub offset: u64,
}

impl<R: Read> DumpFile<R> {
    /// Reads the header. Values may take up to `limit` bytes of memory each.
    ///
    /// # Errors
    /// If the file is no dump file, or of a later version.
    pub fn open(input: R, limit: u64) -> Result<Self> {
        let mut source = Source::new(input, limit, true);
        let header: [u8; 9] = source.array()?;
        let version = header.strip_prefix(b"REDIS").and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            digits.iter().all(u8::is_ascii_digit).then(|| text.parse().ok())?
        });
        let offset = 0;
        let reason = "not a dump file of Redis: it does not begin with REDIS and a version";
        let version: u16 = version.ok_or(Error::Malformed { offset, reason })?;
        if version == 0 || version > MAX_VERSION {
            let what = format!("a dump file of version {version}; the last one is {MAX_VERSION}");
            return Err(Error::Unsupported { offset, what });
        }
        Ok(DumpFile { source, version, database: 0, is_checksummed: false, is_ended: false })
    }

    /// Version of the format.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Whether the end had a checksum, which was correct.
    pub fn is_checksummed(&self) -> bool {
        self.is_checksummed
    }

    /// The next part; `None` after the end, which has been checked.
    ///
    /// # Errors
    /// If the file is damaged or incomplete, or has a value that cannot be read.
    pub fn next_item(&mut self) -> Result<Option<Item>> {
        let mut expires_at = None;
        while !self.is_ended {
            let source = &mut self.source;
            source.begin_value();
            let offset = source.offset();
            match source.byte()? {
                FACT => return Ok(Some(Item::Fact(source.string()?, source.string()?))),
                LIBRARY => return Ok(Some(Item::Functions(source.string()?))),
                MODULE_DATA => {
                    let name = modules::name(source.length()?);
                    // When it is to be loaded: a field of one kind.
                    source.length()?;
                    source.length()?;
                    modules::skip_fields(source)?;
                    return Ok(Some(Item::ModuleData(name)));
                }
                DATABASE => self.database = source.length()?,
                SIZES => {
                    source.length()?;
                    source.length()?;
                }
                SLOT_INFO => {
                    for _ in 0..3 {
                        source.length()?;
                    }
                }
                EXPIRY_MS => expires_at = Some(source.u64_le()?),
                EXPIRY_S => {
                    expires_at = Some(u64::from(u32::from_le_bytes(source.array()?)) * 1000);
                }
                IDLE_TIME => _ = source.length()?,
                FREQUENCY => _ = source.byte()?,
                END => self.end()?,
                kind if value::is_type(kind) => {
                    let key = source.string()?;
                    let value = value::decode(source, kind).map_err(|error| name(error, &key))?;
                    let database = self.database;
                    return Ok(Some(Item::Entry(Entry {
                        database,
                        key,
                        value,
                        expires_at,
                        offset,
                    })));
                }
                _ => {
                    let reason = "an unknown part of a dump file";
                    return Err(Error::Malformed { offset, reason });
                }
            }
        }
        Ok(None)
    }

    /// Checks what follows the last entry.
    fn end(&mut self) -> Result<()> {
        let source = &mut self.source;
        let (crc, offset) = (source.crc(), source.offset());
        if self.version >= FIRST_CHECKSUMMED_VERSION {
            let stated = source.u64_le()?;
            // 0 if checksums were switched off.
            self.is_checksummed = stated != 0;
            if self.is_checksummed && stated != crc {
                let reason = "the checksum of the file is wrong: it is damaged";
                return Err(Error::Malformed { offset, reason });
            }
        }
        self.is_ended = true;
        match source.is_at_end()? {
            true => Ok(()),
            false => Err(source.malformed(
                "bytes follow the end of the dump; an append-only file must be rewritten first",
            )),
        }
    }
}

/// Adds the key to an error that names a value.
fn name(error: Error, key: &[u8]) -> Error {
    match error {
        Error::Unsupported { offset, what } => {
            let key = key[..key.len().min(SHOWN_KEY_BYTES)].escape_ascii();
            Error::Unsupported { offset, what: format!("key '{key}' is {what}") }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc64::crc64;

    fn sealed(body: &[u8]) -> Vec<u8> {
        let mut file = [b"REDIS0011", body, &[END]].concat();
        let crc = crc64(0, &file);
        file.extend_from_slice(&crc.to_le_bytes());
        file
    }

    fn items(file: &[u8]) -> Result<Vec<Item>> {
        let mut dump = DumpFile::open(file, 1 << 20)?;
        let mut items = Vec::new();
        while let Some(item) = dump.next_item()? {
            items.push(item);
        }
        Ok(items)
    }

    const BODY: &[u8] = b"\xfa\x09redis-ver\x057.2.0\xf5\x04code\xfe\x03\xfb\x02\x01\
        \xfc\xff\0\0\0\0\0\0\0\x00\x01a\xc0\x05\xf8\x05\xf9\x07\xfd\x02\0\0\0\x00\x01b\x01x\
        \xfe\x04\x00\x01c\x01y";

    #[test]
    fn all_parts_are_read() {
        let entry = |database, key: &[u8], value: &[u8], expires_at, offset| {
            let (key, value) = (key.to_vec(), Value::String(value.to_vec()));
            Item::Entry(Entry { database, key, value, expires_at, offset })
        };
        assert_eq!(
            items(&sealed(BODY)).unwrap(),
            [
                Item::Fact(b"redis-ver".to_vec(), b"7.2.0".to_vec()),
                Item::Functions(b"code".to_vec()),
                entry(3, b"a", b"5", Some(255), 46),
                entry(3, b"b", b"x", Some(2000), 60),
                entry(4, b"c", b"y", None, 67),
            ]
        );
    }

    #[test]
    fn damaged_file_is_refused() {
        let file = sealed(BODY);
        for at in 0..file.len() {
            assert!(items(&file[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut damaged = file.clone();
                damaged[at] ^= 1 << bit;
                assert!(items(&damaged).is_err(), "byte {at}");
            }
        }
        let text = items(&[&file[..], b"*1"].concat()).unwrap_err().to_string();
        assert!(text.contains("append-only"), "{text}");
        let text = items(b"REDIS0099\xff").unwrap_err().to_string();
        assert!(text.contains("version 99"), "{text}");
    }

    #[test]
    fn file_without_checksum_is_read_and_says_so() {
        let mut file = sealed(BODY);
        let len = file.len();
        file[len - 8..].fill(0);
        let mut dump = DumpFile::open(&file[..], 1 << 20).unwrap();
        while dump.next_item().unwrap().is_some() {}
        assert!(!dump.is_checksummed());
        // Version 4 ends without one.
        file[..9].copy_from_slice(b"REDIS0004");
        assert!(items(&file[..len - 8]).is_ok());
    }
}
