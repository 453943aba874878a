//! The format of a page on the device.
//!
//! ```text
//!    0  sum       u32, CRC-32C of the page's number (u32) and bytes 4..
//!    4  kind      u8, 1 records, 2 payload, 3 checkpoint
//!    5  version   u8, 3
//!    6  count     u16, records in the page
//!    8  number    u64, position in the log, from 1; of a checkpoint page: the checkpoint's number
//!   16  page      u32, the page's number on the device
//!   20  epoch     u32, the opening of the table that wrote it
//!   24  durable   u64, pages of the log below this were durable when this one was packed
//!   32  floor     u64, the highest watermark by which versions were discarded
//!   40  sequence  u64, pages programmed in this epoch, this one included, of all kinds
//!   48  body      records: consecutive, see `record`
//!                 payload: the hash of its record's key (u64), then bytes of key and value
//!                 checkpoint: see `checkpoint`
//! ```
//!
//! All numbers are little-endian. *Upgrade rule:* a reader refuses a device with pages of an
//! unknown version, naming the version; checksum, kind and version stay at their offsets. Any
//! change of the contents of pages is a new version, and its reader defines what it does with older
//! ones:
//!
//! | version | new in it | support |
//! |---|---|---|
//! | 1 | | refused |
//! | 2 | `sequence` | read: old pages stay until they are collected; new ones are of version 3 |
//! | 3 | hash tombstones (see `record`) | read and written |

use siltstone_engine::{Error, Result};

use crate::bytes::{u32_at, u64_at};
use crate::record::Record;

pub(crate) const HEADER_BYTES: usize = 48;
/// Bytes before the payload in the body of a payload page.
const OWNER_BYTES: usize = 8;
const VERSION: u8 = 3;
/// The oldest version that can be read.
const OLDEST_VERSION: u8 = 2;

/// The kind of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Records = 1,
    Payload = 2,
    Checkpoint = 3,
}

/// The header of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) count: usize,
    pub(crate) number: u64,
    pub(crate) epoch: u32,
    pub(crate) durable: u64,
    pub(crate) floor: u64,
    pub(crate) sequence: u64,
}

/// Why a page cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageError {
    /// The page is torn or damaged.
    Damaged(&'static str),
    /// The page is intact and of this other version of the format.
    OtherVersion(u8),
}

impl PageError {
    pub(crate) fn message(self) -> String {
        match self {
            PageError::Damaged(reason) => reason.to_owned(),
            PageError::OtherVersion(version) => format!(
                "the page is of version {version} of the format, and this program reads versions {OLDEST_VERSION} to \
                 {VERSION}: export the table with the program that wrote it"
            ),
        }
    }
}

/// A page with a valid checksum.
pub(crate) struct Page {
    pub(crate) page: u32,
    pub(crate) header: Header,
    bytes: Vec<u8>,
    device: std::sync::Arc<str>,
}

impl Page {
    /// Bytes of memory of the page.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bytes.capacity() as u64
    }
}

/// Bytes of key and value that fit a payload page.
pub(crate) fn payload_bytes(page_bytes: usize) -> usize {
    page_bytes - HEADER_BYTES - OWNER_BYTES
}

/// Writes the header of a page whose body is complete.
pub(crate) fn seal(bytes: &mut [u8], page: u32, header: &Header) {
    bytes[4] = header.kind as u8;
    bytes[5] = VERSION;
    bytes[6..8].copy_from_slice(&(header.count as u16).to_le_bytes());
    bytes[8..16].copy_from_slice(&header.number.to_le_bytes());
    bytes[16..20].copy_from_slice(&page.to_le_bytes());
    bytes[20..24].copy_from_slice(&header.epoch.to_le_bytes());
    bytes[24..32].copy_from_slice(&header.durable.to_le_bytes());
    bytes[32..40].copy_from_slice(&header.floor.to_le_bytes());
    bytes[40..48].copy_from_slice(&header.sequence.to_le_bytes());
    let sum = sum(bytes, page);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
}

/// The bytes of a payload page without its header.
pub(crate) fn payload(page_bytes: usize, owner: u64, part: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; page_bytes];
    bytes[HEADER_BYTES..HEADER_BYTES + OWNER_BYTES].copy_from_slice(&owner.to_le_bytes());
    bytes[HEADER_BYTES + OWNER_BYTES..][..part.len()].copy_from_slice(part);
    bytes
}

fn sum(bytes: &[u8], page: u32) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&page.to_le_bytes()), &bytes[4..])
}

impl Page {
    /// Validates a page that was read.
    pub(crate) fn parse(
        page: u32,
        bytes: Vec<u8>,
        device: &std::sync::Arc<str>,
    ) -> Result<Self, PageError> {
        Self::parse_as(page, bytes, device)
    }

    /// As [`parse`](Self::parse), with the page number that the page itself states.
    pub(crate) fn parse_any(
        bytes: Vec<u8>,
        device: &std::sync::Arc<str>,
    ) -> Result<Self, PageError> {
        Self::parse_as(u32_at(&bytes, 16), bytes, device)
    }

    fn parse_as(
        page: u32,
        bytes: Vec<u8>,
        device: &std::sync::Arc<str>,
    ) -> Result<Self, PageError> {
        if u32_at(&bytes, 0) != sum(&bytes, page) {
            return Err(PageError::Damaged("the page's checksum does not match"));
        }
        if !(OLDEST_VERSION..=VERSION).contains(&bytes[5]) {
            return Err(PageError::OtherVersion(bytes[5]));
        }
        let kind = match bytes[4] {
            1 => Kind::Records,
            2 => Kind::Payload,
            3 => Kind::Checkpoint,
            _ => return Err(PageError::Damaged("the page is of no known kind")),
        };
        let header = Header {
            kind,
            count: usize::from(u16::from_le_bytes([bytes[6], bytes[7]])),
            number: u64_at(&bytes, 8),
            epoch: u32_at(&bytes, 20),
            durable: u64_at(&bytes, 24),
            floor: u64_at(&bytes, 32),
            sequence: u64_at(&bytes, 40),
        };
        Ok(Page { page, header, bytes, device: device.clone() })
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// The hash of the record's key; payload pages only.
    pub(crate) fn owner(&self) -> u64 {
        u64_at(&self.bytes, HEADER_BYTES)
    }

    /// The page's part of key and value, with padding; payload pages only.
    pub(crate) fn part(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES + OWNER_BYTES..]
    }

    pub(crate) fn is_full_of(&self, kind: Kind) -> bool {
        self.header.kind == kind
    }

    pub(crate) fn corrupt(&self, reason: impl Into<String>) -> Error {
        let offset = u64::from(self.page) * self.bytes.len() as u64;
        Error::corruption(&*self.device, offset, reason)
    }

    /// The records of the page, in order.
    pub(crate) fn records(&self) -> impl Iterator<Item = Result<Record>> + '_ {
        self.with_bytes().map(|record| record.map(|(record, _)| record))
    }

    /// The records of the page, in order, each with its encoded bytes.
    pub(crate) fn with_bytes(&self) -> impl Iterator<Item = Result<(Record, &[u8])>> + '_ {
        let count = if self.is_full_of(Kind::Records) { self.header.count } else { 0 };
        let mut rest = self.body();
        (0..count).map_while(move |_| {
            let Some((record, length)) = Record::decode(rest) else {
                // Ends the iteration: the length of a malformed record is unknown.
                if rest.is_empty() {
                    return None;
                }
                rest = &[];
                return Some(Err(self.corrupt("a record of the page is malformed")));
            };
            let (bytes, others) = rest.split_at(length);
            rest = others;
            Some(Ok((record, bytes)))
        })
    }

    /// The record in a slot.
    pub(crate) fn record(&self, slot: usize) -> Result<Record> {
        let missing = || Err(self.corrupt(format!("the page has no record {slot}")));
        self.records().nth(slot).unwrap_or_else(missing)
    }
}
