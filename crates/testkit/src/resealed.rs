//! Bytes that were changed under checksums that hold: told as damage, or taken; never a panic or a hang.
//!
//! A checksum keeps chance damage from the parsers behind it. It does not keep out what an old bug wrote, or
//! a file that someone made. So bytes of a real store are changed and the checksum over them made anew; then the
//! store is opened, read in every way, verified, written to and maintained, and a copy of it repaired.
//!
//! ```text
//!   crc32c:u32  bytes        leading: fragments and headers of logs and manifests, buckets, slots
//!   bytes  crc32c:u32        trailing: frames of tables, footers, filters, indexes
//!
//!   the checksum starts from the file's number and the offset at which all this begins
//! ```
//!
//! That is the house's one rule, so what is sealed is found without knowing any format: a stretch that
//! matches the checksum before or behind it is no chance. Of one format more is known: a log or a manifest may
//! also end with a shorter record of other bytes.
//!
//! Promise checked: no panic and no hang. Answers are not judged: what was changed may be a value.
//!
//! Source: ours.

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, WriteBatch};
use siltstone_faults::Survival;
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

use crate::damage::{Store, watched};
use crate::histories::guarded;
use crate::{Dice, Scale, Subject, Verdict, Wrong, session};

/// No longer stretch is looked for.
const LONGEST: usize = 40 << 10;
/// Bytes before a fragment's payload, and the type of one that is a whole record.
const FRAGMENT: usize = 7;
const FULL: u8 = 1;
/// What a field is changed to, first of all.
const EXTREMES: [u8; 6] = [0, 1, 2, 0x7f, 0x80, 0xff];

/// Changes bytes of closed and open stores, under checksums that hold.
///
/// # Errors
/// The change that did harm.
pub fn resealed(subject: &dyn Subject, scale: &Scale) -> Verdict {
    let (mut tried, mut refused, mut stretches) = (0, 0, 0);
    let variants = scale.variants(subject.variants());
    let stride = (variants.len() / 4).max(1);
    for (at, variant) in variants.step_by(stride).take(4).enumerate() {
        let store = Store::write(subject, variant, scale.seed.unwrap_or(0), at % 2 == 0)
            .map_err(|what| format!("before any change: {what}"))?;
        let changes = changes(&store, scale, &mut stretches)?;
        tried += changes.len();
        let judge = |change: &Change| judge(subject, &store, change);
        watched(subject.name(), &changes, judge, |_, was_refused| {
            refused += usize::from(was_refused);
        })
        .map_err(|what| format!("{} ({}): {what}", subject.name(), subject.describe(variant)))?;
    }
    Ok(format!("{tried} changes of {stretches} sealed stretches, {refused} refused at opening"))
}

/// Bytes of one file that make others of it, checksum and all.
#[derive(Debug)]
struct Change {
    path: String,
    writes: Vec<(usize, Vec<u8>)>,
    /// Where the file ends then.
    end: usize,
}

/// What a checksum covers, and where it stands.
struct Sealed {
    start: usize,
    covered: Range<usize>,
    sum_at: usize,
}

fn changes(store: &Store, scale: &Scale, stretches: &mut usize) -> Result<Vec<Change>, String> {
    let mut dice = Dice::of(scale.seed.unwrap_or(0), 7);
    let mut changes = Vec::new();
    let files = store.medium.files();
    // Of each file as many: manifests are short, and as dangerous.
    let share = scale.flips as usize / files.len().max(1) + 1;
    for file in files {
        let Some(number) = number_of(&file.path) else { continue };
        let bytes = store.medium.read_raw(&file.path).map_err(|error| error.to_string())?;
        let sealed = sealed(number, &bytes);
        *stretches += sealed.len();
        for _ in 0..share.min(16 * sealed.len()) {
            let one = &sealed[dice.below(sealed.len() as u64) as usize];
            let is_log = file.path.ends_with(".log") || file.path.contains("MANIFEST-");
            if is_log && bytes[one.start + 6] & 0x7f == FULL && dice.below(2) == 0 {
                let (record, path) = (last_record(number, &bytes, one, &mut dice), &file.path);
                let end = one.start + record.len();
                changes.push(Change { path: path.clone(), writes: vec![(one.start, record)], end });
                continue;
            }
            let len = one.covered.len();
            if len == 0 {
                continue;
            }
            // Counts, lengths and numbers stand at the beginning, or at the end.
            let within = match dice.below(3) {
                0 => dice.below(len.min(24) as u64) as usize,
                1 => len - 1 - dice.below(len.min(24) as u64) as usize,
                _ => dice.below(len as u64) as usize,
            };
            let at = one.covered.start + within;
            let most = (one.covered.end - at).min(8);
            let width = [1, 1, 1, 2, 4, 8][dice.below(6) as usize].min(most);
            let value = match dice.below(8) {
                6 => bytes[at] ^ 1,
                7 => dice.below(256) as u8,
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

/// A shorter fragment of a log in the place of this one, which holds a whole record.
fn last_record(number: u64, bytes: &[u8], one: &Sealed, dice: &mut Dice) -> Vec<u8> {
    let mut payload = bytes[one.start + FRAGMENT..one.covered.end].to_vec();
    let most = if dice.below(2) == 0 { 6 } else { payload.len() as u64 };
    payload.truncate(dice.below(most + 1) as usize);
    let odds = 1 + dice.below(4);
    for byte in payload.iter_mut().skip(1) {
        if dice.below(odds) == 0 {
            *byte = EXTREMES[dice.below(3) as usize * dice.below(3) as usize];
        }
    }
    let covered = [&(payload.len() as u16).to_le_bytes()[..], &[FULL], &payload].concat();
    let sum = sum(seed(number, one.start), &covered);
    [&sum.to_le_bytes()[..], &covered].concat()
}

/// Whether the change kept the store from opening.
fn judge(subject: &dyn Subject, store: &Store, change: &Change) -> Result<bool, String> {
    let changed = || {
        let medium = store.medium.survivors_as(Survival::KeepAll, 0);
        for (at, bytes) in &change.writes {
            medium.write_raw(&change.path, *at as u64, bytes)?;
        }
        medium.truncate(&change.path, change.end as u64)?;
        Ok::<Arc<dyn Vfs>, Error>(Arc::new(medium))
    };
    let open = |vfs: Arc<dyn Vfs>| {
        subject.open(vfs, Env::replayable(store.clock.clone(), 0), store.variant)
    };
    guarded(|| {
        let mut was_refused = true;
        if let Ok(engine) = open(changed()?) {
            was_refused = false;
            use_up(engine.as_ref())?;
        }
        let vfs = changed()?;
        let _ = subject.repair(&vfs, store.variant);
        if let Ok(engine) = open(vfs) {
            use_up(engine.as_ref())?;
        }
        Ok(was_refused)
    })
}

/// All that one does with a store. Whatever it answers is well, but for a panic of a job.
fn use_up(engine: &dyn Engine) -> Result<(), Wrong> {
    let found = session::contents(engine);
    for key in found.into_iter().flatten().map(|(key, _)| key).step_by(5) {
        let _ = engine.get(&key);
    }
    let _ = engine.get(b"of which nobody heard");
    if engine.capabilities().ordered
        && let Ok(mut cursor) = engine.iter()
    {
        let mut there = cursor.last();
        while let Ok(true) = there {
            there = cursor.prev();
        }
    }
    let _ = engine.verify(&mut |_, _| ());
    let _ = engine.stats();
    let mut batch = WriteBatch::new();
    batch.put(b"one more", b"value").delete(b"of which nobody heard");
    for done in [
        engine.write(&batch, Durability::Synced),
        engine.flush(),
        engine.maintain(),
        engine.write(&batch, Durability::Buffered),
        engine.close(),
    ] {
        match done {
            Err(error) if error.to_string().contains("panick") => {
                return Err(Wrong::Answer(format!("a job: {error}")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The number in a file's name, which its checksums start from.
fn number_of(path: &str) -> Option<u64> {
    let name = path.rsplit('/').next()?;
    let digits: String =
        name.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The stretches of a file that a checksum before or behind them covers, in order.
fn sealed(number: u64, bytes: &[u8]) -> Vec<Sealed> {
    let mut found = Vec::new();
    let mut start = 0;
    while start + 8 < bytes.len() {
        // Space that nothing was written to.
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

/// The stretch that begins at `start`, if one does.
fn find(number: u64, bytes: &[u8], start: usize) -> Option<Sealed> {
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(word))
    };
    let before = word(start)?;
    let (mut leading, mut trailing) = (seed(number, start), seed(number, start));
    for end in start + 1..=bytes.len().min(start + LONGEST) {
        trailing = step(trailing, bytes[end - 1]);
        if end > start + 4 {
            leading = step(leading, bytes[end - 1]);
            if !leading == before {
                return Some(Sealed { start, covered: start + 4..end, sum_at: start });
            }
        }
        if word(end) == Some(!trailing) {
            return Some(Sealed { start, covered: start..end, sum_at: end });
        }
    }
    None
}

/// The state of a checksum over the file's number and an offset in it.
fn seed(number: u64, offset: usize) -> u32 {
    let head = [number.to_le_bytes(), (offset as u64).to_le_bytes()];
    head.as_flattened().iter().fold(!0, |state, &byte| step(state, byte))
}

fn sum(seed: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(seed, |state, &byte| step(state, byte))
}

/// One byte more of a CRC-32C.
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
