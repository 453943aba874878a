//! Changed bytes under valid checksums: reported as damage, or accepted; never a panic or a hang.
//!
//! A checksum keeps random damage from the parsers behind it, but not the output of an old bug,
//! nor a crafted file. So bytes of a real store are changed and the checksum over them is
//! recomputed; then the store is opened, read in every way, verified, written to and maintained,
//! and a copy of it repaired.
//!
//! ```text
//!   crc32c:u32  bytes        leading: fragments and headers of logs and manifests, buckets, slots
//!   bytes  crc32c:u32        trailing: frames of tables, footers, filters, indexes
//!
//!   the checksum starts from the file's number and the offset at which this begins
//! ```
//!
//! All formats of the engines use this one rule, so checksummed ranges are found without knowledge
//! of the format: a range that matches the checksum before or after it is not a coincidence. One
//! format is known: a log or a manifest may also end with a shorter record of other bytes.
//!
//! Checked: no panic and no hang. Results are not checked, since the changed bytes may be a
//! value.

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, WriteBatch};
use siltstone_faults::Survival;
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

use crate::damage::{Store, with_timeout};
use crate::histories::catch_panics;
use crate::{CheckError, CheckResult, EngineUnderTest, Scale, TestRng, session};

/// The maximum length of a range that is searched for.
const MAX_RANGE_BYTES: usize = 40 << 10;
/// Bytes before a fragment's payload, and the type of a fragment that is a whole record.
const FRAGMENT: usize = 7;
const FULL: u8 = 1;
/// Preferred values for changed fields.
const EXTREMES: [u8; 6] = [0, 1, 2, 0x7f, 0x80, 0xff];

/// Changes bytes of closed and unclosed stores, under valid checksums.
///
/// # Errors
/// The change that caused a panic or a hang.
pub fn valid_checksum_corruption(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    let (mut tried, mut refused, mut ranges) = (0, 0, 0);
    let option_sets = scale.option_sets(tested.option_set_count());
    let stride = (option_sets.len() / 4).max(1);
    for (at, option_set) in option_sets.step_by(stride).take(4).enumerate() {
        let store = Store::write(tested, option_set, scale.seed.unwrap_or(0), at % 2 == 0)
            .map_err(|what| format!("before any change: {what}"))?;
        let changes = changes(&store, scale, &mut ranges)?;
        tried += changes.len();
        let judge = |change: &Change| judge(tested, &store, change);
        with_timeout(tested.name(), &changes, judge, |_, was_refused| {
            refused += usize::from(was_refused);
        })
        .map_err(|what| format!("{} ({}): {what}", tested.name(), tested.describe(option_set)))?;
    }
    Ok(format!("{tried} changes in {ranges} checksummed ranges, {refused} refused at open"))
}

/// Changed bytes of one file, with the checksum.
#[derive(Debug)]
struct Change {
    path: String,
    writes: Vec<(usize, Vec<u8>)>,
    /// The end of the changed file.
    end: usize,
}

/// The range that a checksum covers, and the checksum's offset.
struct ChecksummedRange {
    start: usize,
    covered: Range<usize>,
    sum_at: usize,
}

fn changes(store: &Store, scale: &Scale, ranges: &mut usize) -> Result<Vec<Change>, String> {
    let mut rng = TestRng::of(scale.seed.unwrap_or(0), 7);
    let mut changes = Vec::new();
    let files = store.disk.files();
    // As many per file: manifests are short, and as dangerous.
    let share = scale.flips as usize / files.len().max(1) + 1;
    for file in files {
        let Some(number) = number_of(&file.path) else { continue };
        let bytes = store.disk.read_raw(&file.path).map_err(|error| error.to_string())?;
        let found = checksummed_ranges(number, &bytes);
        *ranges += found.len();
        for _ in 0..share.min(16 * found.len()) {
            let one = &found[rng.below(found.len() as u64) as usize];
            let has_records = [".log", ".blob"].iter().any(|end| file.path.ends_with(end));
            let is_log = has_records || file.path.contains("MANIFEST-");
            if is_log && bytes[one.start + 6] & 0x7f == FULL && rng.below(2) == 0 {
                let (record, path) = (last_record(number, &bytes, one, &mut rng), &file.path);
                let end = one.start + record.len();
                changes.push(Change { path: path.clone(), writes: vec![(one.start, record)], end });
                continue;
            }
            let len = one.covered.len();
            if len == 0 {
                continue;
            }
            // Counts, lengths and numbers are near the beginning or the end.
            let within = match rng.below(3) {
                0 => rng.below(len.min(24) as u64) as usize,
                1 => len - 1 - rng.below(len.min(24) as u64) as usize,
                _ => rng.below(len as u64) as usize,
            };
            let at = one.covered.start + within;
            let max = (one.covered.end - at).min(8);
            let width = [1, 1, 1, 2, 4, 8][rng.below(6) as usize].min(max);
            let value = match rng.below(8) {
                6 => bytes[at] ^ 1,
                7 => rng.below(256) as u8,
                extreme => EXTREMES[extreme as usize],
            };
            let mut changed = bytes[one.covered.clone()].to_vec();
            changed[within..within + width].fill(value);
            let sum = sum(seed(number, one.start), &changed).to_le_bytes();
            changes.push(Change {
                path: file.path.clone(),
                writes: vec![(at, vec![value; width]), (one.sum_at, sum.to_vec())],
                end: bytes.len(),
            });
        }
    }
    Ok(changes)
}

/// A shorter fragment in place of this one, which holds a whole record.
fn last_record(number: u64, bytes: &[u8], one: &ChecksummedRange, rng: &mut TestRng) -> Vec<u8> {
    let mut payload = bytes[one.start + FRAGMENT..one.covered.end].to_vec();
    let max = if rng.below(2) == 0 { 6 } else { payload.len() as u64 };
    payload.truncate(rng.below(max + 1) as usize);
    let odds = 1 + rng.below(4);
    for byte in payload.iter_mut().skip(1) {
        if rng.below(odds) == 0 {
            *byte = EXTREMES[rng.below(3) as usize * rng.below(3) as usize];
        }
    }
    let covered = [&(payload.len() as u16).to_le_bytes()[..], &[FULL], &payload].concat();
    let sum = sum(seed(number, one.start), &covered);
    [&sum.to_le_bytes()[..], &covered].concat()
}

/// Whether the changed store is refused at open.
fn judge(tested: &dyn EngineUnderTest, store: &Store, change: &Change) -> Result<bool, String> {
    let changed = || {
        let disk = store.disk.survivors_as(Survival::KeepAll, 0);
        for (at, bytes) in &change.writes {
            disk.write_raw(&change.path, *at as u64, bytes)?;
        }
        disk.truncate(&change.path, change.end as u64)?;
        Ok::<Arc<dyn Vfs>, Error>(Arc::new(disk))
    };
    let open = |vfs: Arc<dyn Vfs>| {
        tested.open(vfs, Env::replayable(store.clock.clone(), 0), store.option_set)
    };
    catch_panics(|| {
        let mut was_refused = true;
        if let Ok(engine) = open(changed()?) {
            was_refused = false;
            exercise(engine.as_ref())?;
        }
        let vfs = changed()?;
        let _ = tested.repair(&vfs, store.option_set);
        if let Ok(engine) = open(vfs) {
            exercise(engine.as_ref())?;
        }
        Ok(was_refused)
    })
}

/// Runs every operation on a store. Any result is valid except the panic of a job.
fn exercise(engine: &dyn Engine) -> Result<(), CheckError> {
    let found = session::contents(engine);
    for key in found.into_iter().flatten().map(|(key, _)| key).step_by(5) {
        let _ = engine.get(&key);
    }
    let _ = engine.get(b"never written");
    if engine.capabilities().ordered
        && let Ok(mut cursor) = engine.iter()
    {
        let mut moved = cursor.last();
        while let Ok(true) = moved {
            moved = cursor.prev();
        }
    }
    let _ = engine.verify(&mut |_, _| ());
    let _ = engine.stats();
    let mut batch = WriteBatch::new();
    batch.put(b"one more", b"value").delete(b"never written");
    for result in [
        engine.write(&batch, Durability::Synced),
        engine.flush(),
        engine.maintain(),
        engine.write(&batch, Durability::Buffered),
        engine.close(),
    ] {
        match result {
            Err(error) if error.to_string().contains("panick") => {
                return Err(CheckError::Mismatch(format!("a job: {error}")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The number in a file's name, with which its checksums start.
fn number_of(path: &str) -> Option<u64> {
    let name = path.rsplit('/').next()?;
    let digits: String =
        name.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The ranges of a file that a checksum before or after them covers, in order.
fn checksummed_ranges(number: u64, bytes: &[u8]) -> Vec<ChecksummedRange> {
    let mut found = Vec::new();
    let mut start = 0;
    while start + 8 < bytes.len() {
        // Unwritten space.
        let end = if bytes[start..start + 8] == [0; 8] { None } else { find(number, bytes, start) };
        match end {
            Some(one) => {
                start = one.covered.end.max(one.sum_at + 4);
                found.push(one);
            }
            None => start += 1,
        }
    }
    found
}

/// The range that begins at `start`, if one does.
fn find(number: u64, bytes: &[u8], start: usize) -> Option<ChecksummedRange> {
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(word))
    };
    let before = word(start)?;
    let (mut leading, mut trailing) = (seed(number, start), seed(number, start));
    for end in start + 1..=bytes.len().min(start + MAX_RANGE_BYTES) {
        trailing = step(trailing, bytes[end - 1]);
        if end > start + 4 {
            leading = step(leading, bytes[end - 1]);
            if !leading == before {
                return Some(ChecksummedRange { start, covered: start + 4..end, sum_at: start });
            }
        }
        if word(end) == Some(!trailing) {
            return Some(ChecksummedRange { start, covered: start..end, sum_at: end });
        }
    }
    None
}

/// The state of a checksum over the file's number and an offset in the file.
fn seed(number: u64, offset: usize) -> u32 {
    let head = [number.to_le_bytes(), (offset as u64).to_le_bytes()];
    head.as_flattened().iter().fold(!0, |state, &byte| step(state, byte))
}

fn sum(seed: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(seed, |state, &byte| step(state, byte))
}

/// Adds one byte to a CRC-32C.
fn step(state: u32, byte: u8) -> u32 {
    TABLE[(state as u8 ^ byte) as usize] ^ state >> 8
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut state = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            state = if state & 1 == 1 { 0x82f6_3b78 ^ state >> 1 } else { state >> 1 };
            bit += 1;
        }
        table[byte] = state;
        byte += 1;
    }
    table
};
