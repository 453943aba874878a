//! Categories of commands, which rules name as `@read`.
//!
//! They follow from the flags and the group of a command. A command with subcommands is in the
//! category `slow` only: its subcommands are in the others.
//!
//! Source: the documentation of Redis's ACL CAT.

use crate::command::definition::{ADMIN, BLOCKING, Definition, FAST, PUBSUB, READ, WRITE};
use crate::command::subcommands::is_container;

/// A set of categories, one bit per place in [`NAMES`].
pub(crate) type Categories = u32;

/// Names of all categories.
pub(crate) const NAMES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Commands that can disclose or remove many keys, or stop others, and are not administrative.
const DANGEROUS: [&str; 13] = [
    "flushall",
    "flushdb",
    "info",
    "keys",
    "lastsave",
    "migrate",
    "restore",
    "restore-asking",
    "role",
    "sort",
    "sort_ro",
    "swapdb",
    "debug",
];

/// The category with this name, as a set.
pub(crate) fn by_name(name: &[u8]) -> Option<Categories> {
    let found = NAMES.iter().position(|known| name.eq_ignore_ascii_case(known.as_bytes()));
    found.map(|place| 1 << place)
}

/// The names of a set's categories.
pub(crate) fn names(categories: Categories) -> impl Iterator<Item = &'static str> {
    NAMES.iter().enumerate().filter(move |(place, _)| categories >> place & 1 == 1).map(|(_, n)| *n)
}

/// A set of categories that exist.
fn set(names: &[&str]) -> Categories {
    let bits = names.iter().filter_map(|name| by_name(name.as_bytes()));
    bits.fold(0, |categories, bit| categories | bit)
}

/// Categories of a command.
pub(crate) fn of_command(command: &Definition) -> Categories {
    let group = of_group(command);
    // COMMAND is also called without a subcommand.
    if is_container(command.name) && !["command", "debug"].contains(&command.name) {
        return set(&["slow"]);
    }
    let mut categories = group | of_flags(command.flags);
    if group & set(&["scripting"]) != 0 {
        categories &= !set(&["read", "write"]);
    }
    if DANGEROUS.contains(&command.name) {
        categories |= set(&["dangerous"]);
    }
    match command.name {
        "lastsave" | "role" => categories | set(&["admin"]),
        "lolwut" => categories | set(&["read"]),
        _ => categories,
    }
}

/// Categories of a subcommand with these flags.
pub(crate) fn of_subcommand(command: &Definition, name: &str, flags: u16) -> Categories {
    let mut categories = of_flags(flags);
    if !["memory", "pubsub"].contains(&command.name) {
        categories |= of_group(command);
    }
    if name == "help" { categories & !set(&["pubsub"]) } else { categories }
}

fn of_flags(flags: u16) -> Categories {
    let implied: [(u16, &[&str]); 6] = [
        (WRITE, &["write"]),
        (READ, &["read"]),
        (ADMIN, &["admin", "dangerous"]),
        (PUBSUB, &["pubsub"]),
        (FAST, &["fast"]),
        (BLOCKING, &["blocking"]),
    ];
    let implied = implied.iter().filter(|(flag, _)| flags & flag != 0);
    let categories = implied.fold(0, |categories, (_, names)| categories | set(names));
    if flags & FAST == 0 { categories | set(&["slow"]) } else { categories }
}

/// The categories of a command's group. Groups without one have none.
fn of_group(command: &Definition) -> Categories {
    if ["sort", "sort_ro"].contains(&command.name) {
        return set(&["set", "sortedset", "list"]);
    }
    let name = match (command.name, command.group) {
        // They are elsewhere in Redis's groups.
        ("asking" | "command" | "readonly" | "readwrite" | "wait" | "waitaof", _) => "connection",
        ("dbsize" | "flushall" | "flushdb" | "swapdb", _) => "keyspace",
        ("memory", _) => "",
        (_, "generic") => "keyspace",
        (_, "sorted-set") => "sortedset",
        (_, "transactions") => "transaction",
        (_, "server") => "",
        (_, group) => group,
    };
    set(&[name])
}
