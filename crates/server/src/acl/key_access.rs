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

use crate::command::definition::{Definition, WRITE};
use crate::resp::Args;
use crate::resp::number::parse_u64;

/// Bits of an access.
pub(super) type KeyAccess = u8;
pub(super) const READS: KeyAccess = 1;
pub(super) const WRITES: KeyAccess = 2;

/// Commands that do not access the value of a key.
const NO_ACCESS: [&str; 16] = [
    "exists",
    "hexists",
    "hlen",
    "hstrlen",
    "llen",
    "memory",
    "object",
    "scard",
    "sismember",
    "strlen",
    "touch",
    "type",
    "watch",
    "xlen",
    "zcard",
    "pfdebug",
];
/// Commands that change keys and return a part of them.
const READ_AND_WRITE: [&str; 32] = [
    "blmpop",
    "blpop",
    "brpop",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    "decr",
    "decrby",
    "eval",
    "evalsha",
    "fcall",
    "getdel",
    "getex",
    "getset",
    "hincrby",
    "hincrbyfloat",
    "incr",
    "incrby",
    "incrbyfloat",
    "lmpop",
    "lpop",
    "migrate",
    "move",
    "rpop",
    "setbit",
    "spop",
    "zincrby",
    "zmpop",
    "zpopmax",
    "zpopmin",
    "swapdb",
    "bitfield",
];
/// Commands that take from their first key and add to the others.
const MOVES: [&str; 7] =
    ["blmove", "brpoplpush", "lmove", "rename", "renamenx", "rpoplpush", "smove"];
/// Commands that read their first key and write the others.
const COPIES: [&str; 4] = ["copy", "georadius", "georadiusbymember", "sort"];
/// Commands that write their first key and read the others.
const STORES: [&str; 9] = [
    "bitop",
    "geosearchstore",
    "sdiffstore",
    "sinterstore",
    "sunionstore",
    "zdiffstore",
    "zinterstore",
    "zrangestore",
    "zunionstore",
];
/// Commands that only read, although they write other keys than those they name, or positions.
const READ_ONLY: [&str; 4] = ["eval_ro", "evalsha_ro", "fcall_ro", "xreadgroup"];

/// The access to the first key of a call, and to its other keys.
fn access(command: &Definition, args: Args<'_>) -> (KeyAccess, KeyAccess) {
    let both = READS | WRITES;
    match command.name {
        "set" if args.iter().skip(3).any(|arg| arg.eq_ignore_ascii_case(b"get")) => (both, both),
        "bitfield" if !bitfield_writes(args) => (READS, READS),
        "pfmerge" => (both, READS),
        name if NO_ACCESS.contains(&name) => (0, 0),
        name if READ_AND_WRITE.contains(&name) => (both, both),
        name if MOVES.contains(&name) => (both, WRITES),
        name if COPIES.contains(&name) => (READS, WRITES),
        name if STORES.contains(&name) => (WRITES, READS),
        name if READ_ONLY.contains(&name) => (READS, READS),
        _ if command.has(WRITE) => (WRITES, WRITES),
        _ => (READS, READS),
    }
}

/// Whether a call of BITFIELD has another operation than GET.
fn bitfield_writes(args: Args<'_>) -> bool {
    let mut at = 2;
    while let Some(word) = args.get(at) {
        if !word.eq_ignore_ascii_case(b"get") {
            return true;
        }
        at += 3;
    }
    false
}

/// The keys of a call, each with its access.
pub(super) fn keys<'a>(command: &Definition, args: Args<'a>) -> Vec<(&'a [u8], KeyAccess)> {
    let count_at = command.keys.count_at;
    let count = args.get(count_at).filter(|_| count_at > 0).and_then(parse_u64);
    // The command rejects a number of keys that it does not have.
    if count.is_some_and(|count| count > args.len().saturating_sub(count_at + 1) as u64) {
        return Vec::new();
    }
    let (first, others) = access(command, args);
    let keys = command.keys_in(args).enumerate();
    keys.map(|(place, key)| (key, if place == 0 { first } else { others })).collect()
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
