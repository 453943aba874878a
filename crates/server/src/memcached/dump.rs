//! `stats cachedump class limit`: keys with their value size and expiry.
//!
//! ```text
//! ITEM <key> [<bytes> b; <seconds since 1970, or 0> s]\r\n … END\r\n
//! ```
//!
//! Used by tools such as memdump to list a cache. There is one class, number 1. Limit 0 means all
//! items; the response ends at [`MAX_BYTES`], as in memcached. Keys that do not fit in a line of
//! text, written over other protocols, are omitted.
//!
//! Invariant: the response and the work are bounded.

use super::commands::{BAD_LINE, CommandContext, CommandError};
use super::line::{key, number};
use crate::store::key_iter::{KeyIter, Start};

/// Maximum size of the response, in bytes.
const MAX_BYTES: usize = 2 << 20;
/// Maximum keys visited: items may have expired.
const MAX_KEYS: usize = 100_000;
/// Maximum number of classes in memcached.
const MAX_CLASSES: u64 = 64;

/// Writes the response; `words` are those after `cachedump`.
pub(super) fn answer<'a>(
    context: &mut CommandContext<'_>,
    mut words: impl Iterator<Item = &'a [u8]>,
) -> Result<(), CommandError> {
    let (Some(class), Some(limit)) = (words.next(), words.next()) else {
        return Err(CommandError::Text("CLIENT_ERROR bad command line"));
    };
    let (Some(class), Some(limit)) = (number(class), number(limit)) else { return Err(BAD_LINE) };
    if class >= MAX_CLASSES {
        return Err(CommandError::Text("CLIENT_ERROR Illegal slab id"));
    }
    if class == 1 {
        list(context, if limit == 0 { u64::MAX } else { limit })?;
    }
    context.replies.raw(b"END\r\n");
    Ok(())
}

fn list(context: &mut CommandContext<'_>, limit: u64) -> Result<(), CommandError> {
    let database = &context.shared.databases[context.table];
    let mut iter = KeyIter::new(database, None, &Start::Key(Vec::new()), context.now())?;
    let (begin, mut items) = (context.replies.len(), 0);
    for _ in 0..MAX_KEYS {
        if items == limit || context.replies.len() - begin > MAX_BYTES {
            break;
        }
        let Some(found) = iter.next()? else { break };
        let Some(name) = key(found) else { continue };
        let Some(item) = database.item(name)? else { continue };
        items += 1;
        let (bytes, expiry) = (item.value.len(), item.expires_at.unwrap_or(0) / 1000);
        context.replies.raw(b"ITEM ");
        context.replies.raw(name);
        context.replies.raw(format!(" [{bytes} b; {expiry} s]\r\n").as_bytes());
    }
    Ok(())
}
