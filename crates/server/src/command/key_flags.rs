//! How a command uses each of its keys, as in the key specifications of Redis 7.2.
//!
//! | flag | the command |
//! | --- | --- |
//! | `RO`, `RW`, `OW`, `RM` | reads the key, reads and writes it, overwrites it, removes it |
//! | `access` | returns or uses the value, or a part of it |
//! | `update`, `insert`, `delete` | changes what is there, only adds to it, only removes of it |
//!
//! Access rules follow from the flags, and COMMAND GETKEYSANDFLAGS returns them.
//!
//! Source: the key specifications in the documentation of Redis's commands.

use super::definition::{Definition, WRITE};
use crate::resp::Args;

/// A set of flags.
pub(crate) type KeyFlags = u8;

const RO: KeyFlags = 1;
const RW: KeyFlags = 1 << 1;
const OW: KeyFlags = 1 << 2;
const RM: KeyFlags = 1 << 3;
/// The value, or a part of it, is returned or used.
pub(crate) const ACCESS: KeyFlags = 1 << 4;
const UPDATE: KeyFlags = 1 << 5;
const INSERT: KeyFlags = 1 << 6;
const DELETE: KeyFlags = 1 << 7;
/// The value is changed.
pub(crate) const CHANGE: KeyFlags = UPDATE | INSERT | DELETE;

/// Names of the flags, by their bits.
const NAMES: [&str; 8] = ["RO", "RW", "OW", "RM", "access", "update", "insert", "delete"];

/// Flags of the first key. Of other commands that write they are [`OTHER_WRITE`], and else
/// [`OTHER_READ`].
pub(super) const FIRST: [(KeyFlags, &[&str]); 12] = [
    // Whether the key exists, its type or its size alone.
    (
        RO,
        &[
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
        ],
    ),
    // Positions of consumers are not values.
    (RO | ACCESS, &["xreadgroup"]),
    (RM | DELETE, &["del", "unlink"]),
    (
        OW | UPDATE,
        &[
            "bitop",
            "geosearchstore",
            "mset",
            "psetex",
            "restore",
            "restore-asking",
            "sdiffstore",
            "set",
            "setex",
            "sunionstore",
            "zdiffstore",
            "zinterstore",
            "zrangestore",
            "zunionstore",
        ],
    ),
    (OW | INSERT, &["msetnx", "setnx"]),
    (
        RW | INSERT,
        &["append", "hsetnx", "linsert", "lpush", "lpushx", "pfadd", "rpush", "rpushx", "sadd"],
    ),
    (RW | ACCESS | INSERT, &["pfmerge"]),
    (
        RW | DELETE,
        &[
            "hdel",
            "lrem",
            "ltrim",
            "srem",
            "xautoclaim",
            "xdel",
            "xtrim",
            "zrem",
            "zremrangebylex",
            "zremrangebyrank",
            "zremrangebyscore",
        ],
    ),
    (
        RW | ACCESS | DELETE,
        &[
            "blmove",
            "blmpop",
            "blpop",
            "brpop",
            "brpoplpush",
            "bzmpop",
            "bzpopmax",
            "bzpopmin",
            "getdel",
            "lmove",
            "lmpop",
            "lpop",
            "migrate",
            "rename",
            "renamenx",
            "rpop",
            "rpoplpush",
            "smove",
            "spop",
            "zmpop",
            "zpopmax",
            "zpopmin",
        ],
    ),
    // It may write a cached cardinality in Redis.
    (RW | ACCESS, &["pfcount"]),
    (
        RW | ACCESS | UPDATE,
        &[
            "bitfield",
            "decr",
            "decrby",
            "eval",
            "evalsha",
            "fcall",
            "getex",
            "getset",
            "hincrby",
            "hincrbyfloat",
            "incr",
            "incrby",
            "incrbyfloat",
            "move",
            "setbit",
            "zincrby",
        ],
    ),
    // They write another key.
    (RO | ACCESS, &["copy", "georadius", "georadiusbymember", "sort"]),
];
const OTHER_WRITE: KeyFlags = RW | UPDATE;
const OTHER_READ: KeyFlags = RO | ACCESS;

/// Flags of all keys but the first, where they differ from its flags.
pub(super) const FURTHER: [(KeyFlags, &[&str]); 4] = [
    (RW | INSERT, &["blmove", "brpoplpush", "lmove", "rpoplpush", "smove"]),
    (OW | UPDATE, &["copy", "georadius", "georadiusbymember", "rename", "sort"]),
    (OW | INSERT, &["renamenx"]),
    (
        RO | ACCESS,
        &[
            "bitop",
            "geosearchstore",
            "pfmerge",
            "sdiffstore",
            "sinterstore",
            "sunionstore",
            "zdiffstore",
            "zinterstore",
            "zrangestore",
            "zunionstore",
        ],
    ),
];

/// The keys of a call, each with its flags.
pub(crate) fn keys_with_flags<'a>(
    command: &Definition,
    args: Args<'a>,
) -> impl Iterator<Item = (&'a [u8], KeyFlags)> + use<'a> {
    let first = of_first(command, args);
    let further = find(&FURTHER, command.name).unwrap_or(first);
    let keys = command.keys_in(args).enumerate();
    keys.map(move |(place, key)| (key, if place == 0 { first } else { further }))
}

/// The names of flags.
pub(super) fn names(flags: KeyFlags) -> impl Iterator<Item = &'static str> {
    NAMES.iter().enumerate().filter(move |(bit, _)| flags >> bit & 1 == 1).map(|(_, name)| *name)
}

fn find(rules: &[(KeyFlags, &[&str])], name: &str) -> Option<KeyFlags> {
    let rule = rules.iter().find(|(_, names)| names.contains(&name));
    rule.map(|(flags, _)| *flags)
}

fn of_first(command: &Definition, args: Args<'_>) -> KeyFlags {
    let word = args.get(1).unwrap_or_default().to_ascii_lowercase();
    match (command.name, word.as_slice()) {
        ("set", _) if args.iter().skip(3).any(|arg| arg.eq_ignore_ascii_case(b"get")) => {
            RW | ACCESS | UPDATE
        }
        ("bitfield", _) if !bitfield_writes(args) => OTHER_READ,
        ("xgroup", b"create" | b"createconsumer") => RW | INSERT,
        ("xgroup", b"delconsumer" | b"destroy") => RW | DELETE,
        (name, _) => find(&FIRST, name).unwrap_or(match command.has(WRITE) {
            true => OTHER_WRITE,
            false => OTHER_READ,
        }),
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
