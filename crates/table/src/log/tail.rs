//! Classification of a log's tail: torn, or corrupt.
//!
//! A power cut may lose any subset of the unsynced sectors, so invalid bytes at a log's end are
//! expected: the log ends before them. But if later bytes prove that they had been durable, records
//! were lost afterwards: corruption. The possible proofs:
//!
//! * a block header whose `synced_to` is beyond the damage;
//! * a record's first fragment with PREV_SYNCED, after the damage (its position is the proof; the
//!   record's later fragments prove nothing, since the damage may be in the same record);
//! * a seal whose `data_end` is beyond the damage.
//!
//! In the damaged block, whose fragment boundaries are lost, every byte offset is tried; later
//! blocks are parsed from their start. A seal after nothing but zeros is the regular end of a
//! sealed log.
//!
//! Limit: damage within the bytes of the last sync, with nothing written after it, looks like a
//! torn write. Only a seal reveals it.
//!
//! Cost: reads the rest of the log once; at most one checksum per byte of the damaged block.

use siltstone_engine::Result;

use super::format::{
    BLOCK_BYTES, FRAGMENT_HEADER_BYTES, Fragment, HEADER_BYTES, HeaderFault, LogSum, Part,
    fits_fragment, parse_seal,
};
use super::reader::{LogEnd, LogReader};

/// Evidence from the valid header and fragments of one block.
#[derive(Default)]
struct DurabilityEvidence {
    /// The file was durable up to this offset.
    durable_to: u64,
    has_valid_header: bool,
    seal: Option<Seal>,
}

struct Seal {
    data_end: u64,
    records: u64,
    /// The end of the seal itself in the file.
    ends_at: u64,
}

impl LogReader {
    /// Classifies the bytes at `damage`, where reading stopped for `reason`.
    pub(super) fn classify_tail(
        &mut self,
        damage: u64,
        amid_record: bool,
        reason: &'static str,
    ) -> Result<LogEnd> {
        let (sum, end, len) = (self.sum, self.end, self.len);
        // The end of the last nonzero byte: what a torn tail drops. The reader has passed only
        // zeros since the last record, except for a header or fragments.
        let has_partial_data = amid_record || damage % BLOCK_BYTES == HEADER_BYTES;
        let mut dirty_to = if has_partial_data { damage } else { end };
        let mut block_at = damage - damage % BLOCK_BYTES;
        while block_at < len {
            let block = self.block(block_at)?;
            let from = damage.saturating_sub(block_at) as usize;
            let Some(last) = block.iter().skip(from).rposition(|&b| b != 0) else {
                block_at += BLOCK_BYTES;
                continue;
            };
            let evidence = if block_at <= damage {
                scan_damaged_block(&sum, block, block_at, from + 1)
            } else {
                match parse_block(&sum, block, block_at) {
                    Ok(evidence) => evidence,
                    Err(version) => return Err(self.newer(version)),
                }
            };
            if let Some(seal) = evidence.seal {
                let fits = (seal.data_end, seal.records) == (end, self.records)
                    && block_at == end.next_multiple_of(BLOCK_BYTES)
                    && self.ends_at(seal.ends_at)?;
                if fits && evidence.has_valid_header && dirty_to == end && !amid_record {
                    return Ok(LogEnd::Sealed);
                }
                // Sealing syncs first, and header and seal share a sector, so a power cut cannot
                // cause this.
                let why = format!("{reason}, but the log was sealed after it");
                return Err(self.corruption(damage, &why));
            }
            if evidence.durable_to > damage {
                let why =
                    format!("{reason}, but this was durable up to byte {}", evidence.durable_to);
                return Err(self.corruption(damage, &why));
            }
            dirty_to = block_at + (from + last) as u64 + 1;
            block_at += BLOCK_BYTES;
        }
        if dirty_to > end {
            return Ok(LogEnd::Torn { dropped_bytes: dirty_to - end });
        }
        Ok(LogEnd::Clean)
    }
}

/// Tries every byte offset of the damaged block from `from` on as a fragment start.
fn scan_damaged_block(
    sum: &LogSum,
    block: &[u8],
    block_at: u64,
    from: usize,
) -> DurabilityEvidence {
    let mut evidence = DurabilityEvidence::default();
    let mut at = from.max(HEADER_BYTES as usize);
    while at < block.len() && fits_fragment(at as u64) {
        match sum.parse_fragment(block_at + at as u64, &block[at..]) {
            Ok(fragment) => at = evidence.add(fragment, block, block_at, at),
            Err(_) => at += 1,
        }
    }
    evidence
}

/// Parses a block after the damage from its start, up to the first invalid fragment. `Err`: its
/// header is valid and of this newer version.
fn parse_block(sum: &LogSum, block: &[u8], block_at: u64) -> Result<DurabilityEvidence, u8> {
    let mut evidence = DurabilityEvidence::default();
    match sum.parse_header(block_at, block) {
        Ok(synced_to) => (evidence.has_valid_header, evidence.durable_to) = (true, synced_to),
        Err(HeaderFault::Newer(version)) => return Err(version),
        // Fragments have their own checksums, so they are evidence without the header.
        Err(HeaderFault::Damaged(_)) => {}
    }
    let mut at = HEADER_BYTES as usize;
    while at < block.len()
        && fits_fragment(at as u64)
        && let Ok(fragment) = sum.parse_fragment(block_at + at as u64, &block[at..])
    {
        at = evidence.add(fragment, block, block_at, at);
    }
    Ok(evidence)
}

impl DurabilityEvidence {
    /// Adds the evidence of the fragment at `at` and returns the fragment's end in the block.
    fn add(&mut self, fragment: Fragment, block: &[u8], block_at: u64, at: usize) -> usize {
        let payload = at + FRAGMENT_HEADER_BYTES as usize;
        let ends = payload + fragment.len;
        match fragment.part {
            Part::Full | Part::First if fragment.prev_synced => {
                // The block's header was written with the record that follows it, not earlier.
                let proven = if at as u64 == HEADER_BYTES { 0 } else { at as u64 };
                self.durable_to = self.durable_to.max(block_at + proven);
            }
            Part::Seal => {
                self.seal = parse_seal(&block[payload..ends]).map(|(data_end, records)| Seal {
                    data_end,
                    records,
                    ends_at: block_at + ends as u64,
                });
            }
            _ => {}
        }
        ends
    }
}
