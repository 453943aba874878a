//! The keys and channels of a call, and whether it reads or writes the keys.
//!
//! | access | commands |
//! | --- | --- |
//! | read | those that return what a key holds |
//! | write | those that change it, and return nothing of it but counts |
//! | read and write | those that change it and return a part of it |
//! | none | those that return only whether a key exists, its type, or its size |
//!
//! A key that is not accessed still has to match a pattern of the user.
//!
//! Source: the key specifications in the documentation of Redis's commands.

use crate::command::definition::Definition;
use crate::command::key_flags::{self, ACCESS, CHANGE, KeyFlags};
use crate::resp::Args;
use crate::resp::number::parse_u64;

/// Bits of an access.
pub(super) type KeyAccess = u8;
pub(super) const READS: KeyAccess = 1;
pub(super) const WRITES: KeyAccess = 2;

/// The keys of a call, each with its access.
pub(super) fn keys<'a>(command: &Definition, args: Args<'a>) -> Vec<(&'a [u8], KeyAccess)> {
    let count_at = command.keys.count_at;
    let count = args.get(count_at).filter(|_| count_at > 0).and_then(parse_u64);
    // The command rejects a number of keys that it does not have.
    if count.is_some_and(|count| count > args.len().saturating_sub(count_at + 1) as u64) {
        return Vec::new();
    }
    let keys = key_flags::keys_with_flags(command, args);
    keys.map(|(key, flags)| (key, access(flags))).collect()
}

fn access(flags: KeyFlags) -> KeyAccess {
    let reads = if flags & ACCESS == 0 { 0 } else { READS };
    let writes = if flags & CHANGE == 0 { 0 } else { WRITES };
    reads | writes
}

/// The channels of a call.
pub(super) fn channels<'a>(command: &Definition, args: Args<'a>) -> (Vec<&'a [u8]>, IsPattern) {
    match command.name {
        "publish" | "spublish" => (args.get(1).into_iter().collect(), false),
        "subscribe" | "ssubscribe" => (args.from(1).iter().collect(), false),
        "psubscribe" => (args.from(1).iter().collect(), true),
        _ => (Vec::new(), false),
    }
}

/// Whether channels are patterns.
pub(super) type IsPattern = bool;
