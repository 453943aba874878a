//! Redis commands by family, and the command table.
//!
//! | module | contents |
//! | --- | --- |
//! | [`context`] | state of a running command: client, table, replies |
//! | [`mod@execute`] | from arguments to a reply: checks, queueing, handler, errors |
//! | [`failure`] | error replies |
//! | [`help`] | HELP of commands with subcommands |
//! | [`session`] | state of a client between commands |
//! | [`strings`], [`numbers`], [`ranges`] | commands on values: complete, as numbers, in part |
//! | [`history`] | historical values |
//! | [`keys`], [`expiry`], [`scan`] | commands on keys: existence, expiry, enumeration |
//! | [`keyspace`] | number of keys, and of keys that expire |
//! | [`sliced`] | commands that visit every key, in time slices |
//! | [`transactions`] | MULTI, EXEC, WATCH |
//! | [`connection`], [`client`] | the connection and the client |
//! | [`admin`], [`config`], [`info`], [`introspect`] | the server |

mod admin;
mod client;
mod config;
mod connection;
mod context;
mod decimal;
mod execute;
mod expiry;
mod failure;
mod help;
mod history;
mod info;
mod introspect;
mod keys;
mod keyspace;
mod numbers;
mod ranges;
mod scan;
mod session;
mod sliced;
mod strings;
mod transactions;

use std::sync::LazyLock;

use crate::resp::Args;

pub(crate) use connection::constant_time_eq;
pub(crate) use context::Context;
pub(crate) use execute::{answer_batched_sets, execute, resume};
pub(crate) use failure::{Failure, store_text};
pub(crate) use session::Session;

/// Outcome of a command: a complete reply was written, or an error replaces it.
pub(crate) type Outcome = Result<(), Failure>;

type Handler = fn(&mut Context<'_>, Args<'_>) -> Outcome;

/// A command: its name, arity, flags and handler.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// Number of arguments including the name; if negative, the minimum.
    pub(crate) arity: i32,
    pub(crate) flags: u16,
    pub(crate) keys: KeyPositions,
    handler: Handler,
    pub(crate) group: &'static str,
    pub(crate) summary: &'static str,
}

/// Positions of keys in the arguments: from `first` to `last` (negative: from the end), every
/// `step`-th. `first` 0: none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyPositions {
    pub(crate) first: usize,
    pub(crate) last: i32,
    pub(crate) step: usize,
}

const NO_KEYS: (usize, i32, usize) = (0, 0, 0);
const ONE_KEY: (usize, i32, usize) = (1, 1, 1);
const TWO_KEYS: (usize, i32, usize) = (1, 2, 1);
const ALL_KEYS: (usize, i32, usize) = (1, -1, 1);

/// May write.
pub(crate) const WRITE: u16 = 1;
/// Reads keys.
pub(crate) const READ: u16 = 1 << 1;
/// Takes time independent of the table's size.
pub(crate) const FAST: u16 = 1 << 2;
/// Allowed before AUTH.
pub(crate) const NO_AUTH: u16 = 1 << 3;
/// Runs immediately between MULTI and EXEC, instead of being queued.
pub(crate) const IMMEDIATE: u16 = 1 << 4;
/// Not allowed between MULTI and EXEC.
pub(crate) const NO_MULTI: u16 = 1 << 5;
/// Administrative.
pub(crate) const ADMIN: u16 = 1 << 6;

const fn command(
    group: &'static str,
    name: &'static str,
    arity: i32,
    flags: u16,
    keys: (usize, i32, usize),
    handler: Handler,
    summary: &'static str,
) -> Command {
    let keys = KeyPositions { first: keys.0, last: keys.1, step: keys.2 };
    Command { name, arity, flags, keys, handler, group, summary }
}

impl Command {
    /// Whether the command accepts this number of arguments, including its name.
    pub(crate) fn takes(&self, arguments: usize) -> bool {
        let arguments = arguments as i32;
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// The keys among the arguments.
    pub(crate) fn keys_in<'a>(&self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let KeyPositions { first, last, step } = self.keys;
        let end = match last {
            _ if first == 0 => 0,
            last if last < 0 => args.len().saturating_sub((-last - 1) as usize),
            last => (last as usize + 1).min(args.len()),
        };
        args.iter().take(end).skip(first.max(1)).step_by(step.max(1))
    }
}

/// All commands, sorted by packed name.
pub(crate) fn table() -> &'static [Command] {
    &TABLE.commands
}

/// Index of a command in the [`table`], case-insensitive. Does not allocate.
#[inline]
pub(crate) fn find(name: &[u8]) -> Option<usize> {
    let name = pack(name)?;
    TABLE.names.binary_search(&name).ok()
}

/// Index of SET, which has a fast path.
#[inline]
pub(crate) fn set_index() -> usize {
    TABLE.set
}

struct Table {
    /// Packed names in the order of `commands`, contiguous for the binary search.
    names: Vec<u128>,
    commands: Vec<Command>,
    set: usize,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let families = [
        admin::commands(),
        client::commands(),
        config::commands(),
        connection::commands(),
        expiry::commands(),
        info::commands(),
        introspect::commands(),
        keys::commands(),
        numbers::commands(),
        ranges::commands(),
        scan::commands(),
        strings::commands(),
        history::commands(),
        transactions::commands(),
    ];
    let mut commands: Vec<Command> = families.into_iter().flatten().collect();
    let packed = |command: &Command| pack(command.name.as_bytes());
    commands.sort_by_key(packed);
    let names = commands.iter().filter_map(packed).collect();
    let set = commands.iter().position(|command| command.name == "set").unwrap_or_default();
    Table { names, commands, set }
});

/// Packs a name of up to 16 bytes into a number of the same order, in lower case.
#[inline]
fn pack(name: &[u8]) -> Option<u128> {
    // Trailing zeros would be confused with padding.
    if name.last() == Some(&0) {
        return None;
    }
    let mut bytes = [0; 16];
    let slot = bytes.get_mut(..name.len())?;
    slot.copy_from_slice(name);
    bytes.make_ascii_lowercase();
    Some(u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_in_any_case() {
        assert_eq!(TABLE.names.len(), TABLE.commands.len(), "a name is too long");
        assert!(TABLE.names.is_sorted_by(|a, b| a < b), "a name is duplicated");
        for (index, command) in table().iter().enumerate() {
            assert_eq!(command.name, command.name.to_lowercase());
            assert_eq!(find(command.name.as_bytes()), Some(index));
            assert_eq!(find(command.name.to_uppercase().as_bytes()), Some(index));
        }
        for unknown in ["", "ge", "gett", "get\0", "a name that is much too long"] {
            assert_eq!(find(unknown.as_bytes()), None, "{unknown}");
        }
    }
}
