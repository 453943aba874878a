//! `stats cachedump class limit`: keys with the length of their values and their expiry.
//!
//! ```text
//! ITEM <key> [<bytes> b; <seconds since 1970, or 0> s]\r\n … END\r\n
//! ```
//!
//! Tools list a cache by it, memdump among them. There is one class, number 1. A limit of 0 asks for
//! all items; the answer ends at [`MAX_BYTES`], as in memcached. Keys that no line of text can hold,
//! which come from other protocols, are left out.
//!
//! Invariant: the answer, and with it the work, is bounded whatever is asked for.

use super::deed::{BAD_LINE, Complaint, Deed};
use super::line::{key, number};
use crate::store::walk::{Start, Walk};

/// The longest answer.
const MAX_BYTES: usize = 2 << 20;
/// The keys that are looked at for it, at most: an item may have expired.
const MAX_KEYS: usize = 100_000;
/// As many classes as memcached can have.
const MAX_CLASSES: u64 = 64;

/// Answers it; `words` are those behind `cachedump`.
pub(super) fn answer<'a>(
    deed: &mut Deed<'_>,
    mut words: impl Iterator<Item = &'a [u8]>,
) -> Result<(), Complaint> {
    let (Some(class), Some(limit)) = (words.next(), words.next()) else {
        return Err(Complaint::Words("CLIENT_ERROR bad command line"));
    };
    let (Some(class), Some(limit)) = (number(class), number(limit)) else { return Err(BAD_LINE) };
    if class >= MAX_CLASSES {
        return Err(Complaint::Words("CLIENT_ERROR Illegal slab id"));
    }
    if class == 1 {
        list(deed, if limit == 0 { u64::MAX } else { limit })?;
    }
    deed.replies.raw(b"END\r\n");
    Ok(())
}

fn list(deed: &mut Deed<'_>, limit: u64) -> Result<(), Complaint> {
    let database = &deed.shared.databases[deed.table];
    let mut walk = Walk::new(database, None, &Start::Key(Vec::new()), deed.now())?;
    let (begin, mut items) = (deed.replies.len(), 0);
    for _ in 0..MAX_KEYS {
        if items == limit || deed.replies.len() - begin > MAX_BYTES {
            break;
        }
        let Some(found) = walk.next()? else { break };
        let Some(name) = key(found) else { continue };
        let Some(item) = database.item(name)? else { continue };
        items += 1;
        let (bytes, expiry) = (item.value.len(), item.expires_at.unwrap_or(0) / 1000);
        deed.replies.raw(b"ITEM ");
        deed.replies.raw(name);
        deed.replies.raw(format!(" [{bytes} b; {expiry} s]\r\n").as_bytes());
    }
    Ok(())
}
