//! A page of the device, as this engine fills it.
//!
//! ```text
//!    0  sum       u32, CRC-32C of the page's number (u32) and bytes 4..
//!    4  kind      u8, 1 records, 2 payload, 3 checkpoint
//!    5  version   u8, 3
//!    6  count     u16, records in the page
//!    8  number    u64, the page's place in the log, counted from 1; of a checkpoint: its own number
//!   16  page      u32, the page's number on the device
//!   20  epoch     u32, which opening of the table wrote it
//!   24  durable   u64, pages of the log below this were durable when this one was packed
//!   32  floor     u64, the highest watermark that versions were discarded by
//!   40  sequence  u64, pages programmed in this epoch, this one too, of whatever kind
//!   48  body      records: one behind the other, see `record`
//!                 payload: the hash of its record's key (u64), then bytes of key and value
//!                 checkpoint: see `checkpoint`
//! ```
//!
//! All numbers are little-endian. *Upgrade rule:* a reader refuses a device with pages of a version that it does not
//! know by its number; checksum, kind and version stay where they are. A new form of anything in pages is a new
//! version, and its reader says what it does with older ones:
//!
//! | version | has that the one before has not | is |
//! |---|---|---|
//! | 1 | | refused |
//! | 2 | `sequence` | read: old pages stay until they are collected, new ones are of version 3 |
//! | 3 | versions that are buried (see `record`) | read and written |
//!
//! Source: ours.

use siltstone_engine::{Error, Result};

use crate::record::Record;

pub(crate) const HEADER_BYTES: usize = 48;
/// What a payload page has before its bytes.
const OWNER_BYTES: usize = 8;
const VERSION: u8 = 3;
/// The oldest version that is read.
const OLDEST: u8 = 2;

/// What a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Records = 1,
    Payload = 2,
    Checkpoint = 3,
}

/// What a page says of itself.
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

/// Why a page can't be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It does not hold.
    Damaged(&'static str),
    /// It holds, and is of this version of the format.
    Foreign(u8),
}

impl Unfit {
    /// In words.
    pub(crate) fn told(self) -> String {
        match self {
            Unfit::Damaged(reason) => reason.to_owned(),
            Unfit::Foreign(version) => format!(
                "the page is of version {version} of the format, and this program reads versions {OLDEST} to \
                 {VERSION}: export the table with the program that wrote it"
            ),
        }
    }
}

/// A page that holds.
pub(crate) struct Page {
    pub(crate) page: u32,
    pub(crate) header: Header,
    bytes: Vec<u8>,
    device: std::sync::Arc<str>,
}

impl Page {
    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bytes.capacity() as u64
    }
}

/// Bytes of key and value that a payload page takes.
pub(crate) fn payload_bytes(page_bytes: usize) -> usize {
    page_bytes - HEADER_BYTES - OWNER_BYTES
}

/// Writes the header of a page whose body is in place.
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

/// A payload page's bytes, but for the header.
pub(crate) fn payload(page_bytes: usize, owner: u64, part: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; page_bytes];
    bytes[HEADER_BYTES..HEADER_BYTES + OWNER_BYTES].copy_from_slice(&owner.to_le_bytes());
    bytes[HEADER_BYTES + OWNER_BYTES..][..part.len()].copy_from_slice(part);
    bytes
}

fn sum(bytes: &[u8], page: u32) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&page.to_le_bytes()), &bytes[4..])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Page {
    /// Checks a page that was read; what does not hold is told in words.
    pub(crate) fn parse(
        page: u32,
        bytes: Vec<u8>,
        device: &std::sync::Arc<str>,
    ) -> Result<Self, Unfit> {
        Self::parse_as(page, bytes, device)
    }

    /// The same for a page that says its number itself.
    pub(crate) fn parse_any(bytes: Vec<u8>, device: &std::sync::Arc<str>) -> Result<Self, Unfit> {
        Self::parse_as(u32_at(&bytes, 16), bytes, device)
    }

    fn parse_as(page: u32, bytes: Vec<u8>, device: &std::sync::Arc<str>) -> Result<Self, Unfit> {
        if u32_at(&bytes, 0) != sum(&bytes, page) {
            return Err(Unfit::Damaged("the page's checksum does not hold"));
        }
        if !(OLDEST..=VERSION).contains(&bytes[5]) {
            return Err(Unfit::Foreign(bytes[5]));
        }
        let kind = match bytes[4] {
            1 => Kind::Records,
            2 => Kind::Payload,
            3 => Kind::Checkpoint,
            _ => return Err(Unfit::Damaged("the page is of no known kind")),
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

    /// Of a payload page: the hash of its record's key.
    pub(crate) fn owner(&self) -> u64 {
        u64_at(&self.bytes, HEADER_BYTES)
    }

    /// Of a payload page: its share of key and value, with what pads it.
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

    /// The records of the page, in order, each with the bytes that it lies in.
    pub(crate) fn with_bytes(&self) -> impl Iterator<Item = Result<(Record, &[u8])>> + '_ {
        let count = if self.is_full_of(Kind::Records) { self.header.count } else { 0 };
        let mut rest = self.body();
        (0..count).map_while(move |_| {
            let Some((record, length)) = Record::decode(rest) else {
                // Ends the walk: nothing is known of what follows.
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
