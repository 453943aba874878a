//! Telling a torn tail from damage.
//!
//! A power cut may leave any subset of the sectors that were not synced, so bytes that do not hold
//! are expected at a log's end: the log ends before them. But if anything behind them proves that
//! they had been durable, they were destroyed since, and records are missing. The proofs, each
//! written when the fact was known:
//!
//! * a block header whose `synced_to` is beyond the damage;
//! * a first fragment of a record, flagged PREV_SYNCED, behind the damage (its place is the proof;
//!   the later fragments of a record prove nothing, since the damage may be in their own record);
//! * a seal whose `data_end` is beyond the damage.
//!
//! The rest of the damaged block is searched byte by byte, since the length of the damaged fragment
//! is unknown; later blocks are entered at their boundaries. A seal right behind nothing but zeros
//! is the regular end of a sealed log.
//!
//! Limit: the damage of the last synced record, with nothing written behind it, cannot be told from
//! a torn write. Sealing closes that gap.
//!
//! Cost: reads the rest of the log once; the search in one block computes at most one checksum a
//! byte.

use siltstone_engine::Result;

use super::format::{
    BLOCK, FRAGMENT, Fragment, HEADER, HeaderFault, LogSum, Part, fits_fragment, parse_seal,
};
use super::reader::{LogEnd, LogReader};

/// What the whole headers and fragments of one block say.
#[derive(Default)]
struct DurabilityEvidence {
    /// The file was durable up to here.
    durable_to: u64,
    whole_header: bool,
    seal: Option<Seal>,
}

struct Seal {
    data_end: u64,
    records: u64,
    /// Where the seal itself ends in the file.
    ends_at: u64,
}

impl LogReader {
    /// Judges the bytes at `damage`, where the walk stopped for `reason`.
    pub(super) fn assess(
        &mut self,
        damage: u64,
        amid_record: bool,
        reason: &'static str,
    ) -> Result<LogEnd> {
        let (sum, end, len) = (self.sum, self.end, self.len);
        // Behind the last byte that is not zero: what a torn tail drops. The walk has passed over
        // nothing but zeros since the last record, unless over a header or fragments.
        let passed_bytes = amid_record || damage % BLOCK == HEADER;
        let mut dirty_to = if passed_bytes { damage } else { end };
        let mut block_at = damage - damage % BLOCK;
        while block_at < len {
            let block = self.block(block_at)?;
            let from = damage.saturating_sub(block_at) as usize;
            let Some(last) = block.iter().skip(from).rposition(|&b| b != 0) else {
                block_at += BLOCK;
                continue;
            };
            let said = if block_at <= damage {
                search(&sum, block, block_at, from + 1)
            } else {
                match walk(&sum, block, block_at) {
                    Ok(said) => said,
                    Err(version) => return Err(self.newer(version)),
                }
            };
            if let Some(seal) = said.seal {
                let fits = (seal.data_end, seal.records) == (end, self.records)
                    && block_at == end.next_multiple_of(BLOCK)
                    && self.ends_at(seal.ends_at)?;
                if fits && said.whole_header && dirty_to == end && !amid_record {
                    return Ok(LogEnd::Sealed);
                }
                // Sealing syncs first and writes header and seal into one sector, so that a power
                // cut cannot bring this about.
                let why = format!("{reason}, but the log was sealed behind it");
                return Err(self.corruption(damage, &why));
            }
            if said.durable_to > damage {
                let why = format!("{reason}, but this was durable up to byte {}", said.durable_to);
                return Err(self.corruption(damage, &why));
            }
            dirty_to = block_at + (from + last) as u64 + 1;
            block_at += BLOCK;
        }
        if dirty_to > end {
            return Ok(LogEnd::Torn { dropped_bytes: dirty_to - end });
        }
        Ok(LogEnd::Clean)
    }
}

/// Looks for whole fragments at every byte of the damaged block from `from` on.
fn search(sum: &LogSum, block: &[u8], block_at: u64, from: usize) -> DurabilityEvidence {
    let mut said = DurabilityEvidence::default();
    let mut at = from.max(HEADER as usize);
    while at < block.len() && fits_fragment(at as u64) {
        match sum.parse_fragment(block_at + at as u64, &block[at..]) {
            Ok(fragment) => at = said.hear(fragment, block, block_at, at),
            Err(_) => at += 1,
        }
    }
    said
}

/// Reads a block behind the damage from its start for as long as it holds. `Err`: its header is
/// whole and of this newer version.
fn walk(sum: &LogSum, block: &[u8], block_at: u64) -> Result<DurabilityEvidence, u8> {
    let mut said = DurabilityEvidence::default();
    match sum.parse_header(block_at, block) {
        Ok(synced_to) => (said.whole_header, said.durable_to) = (true, synced_to),
        Err(HeaderFault::Newer(version)) => return Err(version),
        // The fragments carry checksums of their own and testify without their header.
        Err(HeaderFault::Damaged(_)) => {}
    }
    let mut at = HEADER as usize;
    while at < block.len()
        && fits_fragment(at as u64)
        && let Ok(fragment) = sum.parse_fragment(block_at + at as u64, &block[at..])
    {
        at = said.hear(fragment, block, block_at, at);
    }
    Ok(said)
}

impl DurabilityEvidence {
    /// Takes in the whole fragment at `at` and returns where it ends in the block.
    fn hear(&mut self, fragment: Fragment, block: &[u8], block_at: u64, at: usize) -> usize {
        let payload = at + FRAGMENT as usize;
        let ends = payload + fragment.len;
        match fragment.part {
            Part::Full | Part::First if fragment.prev_synced => {
                // The block's header went out with the record that follows it, not before.
                let proven = if at as u64 == HEADER { 0 } else { at as u64 };
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
