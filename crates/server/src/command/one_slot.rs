//! With several replicated groups, the keys of a command, transaction or script have one slot.

use super::definition::Definition;
use super::failure::{Failure, reply_error};
use crate::replication::slots::slot_of;

/// As in Redis Cluster.
pub(super) const CROSS_SLOT: Failure =
    reply_error("CROSSSLOT Keys in request don't hash to the same slot");

/// The slot that all keys have; `None` if there are no keys.
pub(super) fn one_slot<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Result<Option<u16>, ()> {
    let mut found = None;
    for slot in keys.map(slot_of) {
        if *found.get_or_insert(slot) != slot {
            return Err(());
        }
    }
    Ok(found)
}

/// The refusal of a command that sees the keys of all slots.
pub(super) fn not_in_one_slot(command: &Definition) -> Failure {
    let name = command.name.to_uppercase();
    format!("ERR {name} sees keys of several slots, so it is not there in transactions and scripts")
        .into()
}
