//! The index of all commands: their definitions by name and by number.
//!
//! The number of a command is its place in the order of names. It stands for the command in the
//! client registry and in queued transactions. The metrics have *counters*: one per command, with
//! the same number, and one per subcommand behind them.

use super::definition::{Definition, WRITE};
use super::subcommands::{Subcommand, subcommands_of};
use crate::resp::Args;

/// Definitions of all commands.
pub(crate) struct CommandIndex {
    /// Packed names in the order of `definitions`.
    names: Vec<PackedName>,
    /// Numbers of commands by the hash of the name, each at the first free slot from there on.
    slots: Box<[Option<u16>; SLOTS]>,
    /// Sorted by packed name.
    definitions: Vec<Definition>,
    /// Number of the first counter of a command's subcommands, if it has some.
    first_counters: Vec<Option<usize>>,
    /// Whether the command uses one key, at a cost that does not depend on the table's size.
    joins_groups: Vec<bool>,
    /// Whether scripts may call the command.
    in_scripts: Vec<bool>,
    /// Whether the command uses one key, which is its first argument.
    has_one_key: Vec<bool>,
    /// Names of the counters, such as `get` and `config|get`.
    counters: Vec<String>,
}

impl CommandIndex {
    /// Indexes definitions that are sorted by [`pack`]ed name.
    pub(super) fn new(definitions: Vec<Definition>) -> Self {
        let names: Vec<_> = definitions.iter().filter_map(|d| pack(d.name.as_bytes())).collect();
        assert!(names.len() <= SLOTS / 2, "there are too many commands for {SLOTS} slots");
        let mut slots = Box::new([None; SLOTS]);
        for (number, name) in names.iter().enumerate() {
            let mut at = slot_of(name);
            while slots[at].is_some() {
                at = (at + 1) % SLOTS;
            }
            slots[at] = Some(number as u16);
        }
        let mut counters: Vec<_> = definitions.iter().map(|d| d.name.to_owned()).collect();
        let first_counters = definitions.iter().map(|definition| {
            let (first, name) = (counters.len(), definition.name);
            let subcommands = subcommands_of(name);
            counters.extend(subcommands.iter().map(|(sub, ..)| format!("{name}|{sub}")));
            (!subcommands.is_empty()).then_some(first)
        });
        let first_counters = first_counters.collect();
        let joins_groups = definitions.iter().map(Definition::may_join_group).collect();
        let in_scripts = definitions.iter().map(Definition::is_allowed_in_scripts).collect();
        let has_one_key = definitions.iter().map(Definition::has_one_key).collect();
        CommandIndex {
            names,
            slots,
            definitions,
            first_counters,
            joins_groups,
            in_scripts,
            has_one_key,
            counters,
        }
    }

    /// Names of the counters.
    pub(crate) fn counters(&self) -> &[String] {
        &self.counters
    }

    /// Whether a call may run in a group with others: see [`super::pipeline`].
    #[inline]
    pub(super) fn may_join_group(&self, command: usize, args: Args<'_>) -> bool {
        self.joins_groups[command] && self.definitions[command].takes(args.len())
    }

    /// Whether a group may begin with a call: one on a collection, or one that writes. SETs without
    /// options share a batch of their own, and reads of strings nothing but the time for which they
    /// wait for a device, if they do.
    #[inline]
    pub(super) fn may_begin_group(&self, command: usize, args: Args<'_>, waits: bool) -> bool {
        let definition = &self.definitions[command];
        self.may_join_group(command, args)
            && match definition.group {
                "string" if definition.has(WRITE) => definition.name != "set" || args.len() != 3,
                "string" => waits,
                _ => true,
            }
    }

    /// Whether scripts may call a command with these arguments.
    #[inline]
    pub(super) fn may_be_scripted(&self, command: usize, args: Args<'_>) -> bool {
        self.in_scripts[command] && !self.definitions[command].resets_cluster(args)
    }

    /// The key of a command that uses one, which is its first argument.
    #[inline]
    pub(super) fn only_key<'a>(&self, command: usize, args: Args<'a>) -> Option<&'a [u8]> {
        args.get(1).filter(|_| self.has_one_key[command])
    }

    /// The counter of a call: that of its subcommand, if the command has that one.
    #[inline]
    pub(crate) fn counter(&self, command: usize, args: Args<'_>) -> usize {
        match self.first_counters[command] {
            None => command,
            Some(first) => self.subcommand_counter(command, first, args),
        }
    }

    fn subcommand_counter(&self, command: usize, first: usize, args: Args<'_>) -> usize {
        let subcommands = subcommands_of(self.definitions[command].name);
        let given = args.get(1).unwrap_or_default();
        let place = |(name, ..): &Subcommand| given.eq_ignore_ascii_case(name.as_bytes());
        subcommands.iter().position(place).map_or(command, |place| first + place)
    }

    /// All definitions, sorted by packed name.
    pub(crate) fn all(&self) -> &[Definition] {
        &self.definitions
    }

    /// Number of a command, case-insensitive. Does not allocate.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        let name = pack(name)?;
        let mut at = slot_of(&name);
        // Half of the slots are free.
        while let Some(number) = self.slots[at] {
            if self.names[usize::from(number)] == name {
                return Some(usize::from(number));
            }
            at = (at + 1) % SLOTS;
        }
        None
    }
}

impl std::ops::Index<usize> for CommandIndex {
    type Output = Definition;

    fn index(&self, number: usize) -> &Definition {
        &self.definitions[number]
    }
}

/// Slots of the index by name: at least twice as many as there are commands.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 10;

/// The slot from which on the number of a command is found (Fibonacci hashing).
#[inline]
fn slot_of((first, rest): &PackedName) -> usize {
    let folded = (first >> 64) as u64 ^ (*first as u64).rotate_left(29) ^ u64::from(*rest);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOT_BITS)) as usize
}

/// A packed name: its first 16 bytes, and the others.
pub(super) type PackedName = (u128, u32);

/// Packs a name of up to 20 bytes into numbers of the same order, in lower case.
#[inline]
pub(super) fn pack(name: &[u8]) -> Option<PackedName> {
    // Trailing zeros would be confused with padding.
    if name.last() == Some(&0) {
        return None;
    }
    let mut bytes = [0; 20];
    let slot = bytes.get_mut(..name.len())?;
    slot.copy_from_slice(name);
    bytes.make_ascii_lowercase();
    let (first, rest) = bytes.split_first_chunk()?;
    Some((u128::from_be_bytes(*first), u32::from_be_bytes(*rest.first_chunk()?)))
}
