//! CLUSTER COUNTKEYSINSLOT and GETKEYSINSLOT: the keys of a slot.
//!
//! Keys are not ordered by slot, so these commands look at all keys of the group's table, up to
//! a limit.

use super::context::Context;
use super::failure::{Failure, NOT_AN_INTEGER, Outcome, reply_error, reply_too_large};
use crate::replication::groups::Groups;
use crate::replication::slots::{SLOTS, slot_of};
use crate::resp::{Args, number};
use crate::store::key_iter::{KeyIter, Start};

/// Maximum number of keys that COUNTKEYSINSLOT and GETKEYSINSLOT visit.
const MAX_VISITED_KEYS: u64 = 100_000;

pub(super) fn count_keys(context: &mut Context<'_>, groups: &Groups, slot: &[u8]) -> Outcome {
    let mut count = 0;
    visit_slot(context, groups, slot, &mut |_| {
        count += 1;
        Ok(true)
    })?;
    context.replies.count(count);
    Ok(())
}

pub(super) fn get_keys(context: &mut Context<'_>, groups: &Groups, args: Args<'_>) -> Outcome {
    let limit = number::parse_i64(&args[3]).ok_or(NOT_AN_INTEGER)?;
    let limit = usize::try_from(limit).map_err(|_| reply_error("ERR Invalid number of keys"))?;
    let max_bytes = context.shared.options.max_output_bytes;
    let (mut keys, mut bytes_left) = (Vec::new(), max_bytes);
    visit_slot(context, groups, &args[2], &mut |key| {
        if keys.len() == limit {
            return Ok(false);
        }
        let left = bytes_left.checked_sub(key.len());
        bytes_left = left.ok_or_else(|| reply_too_large(max_bytes))?;
        keys.push(key.to_vec());
        Ok(true)
    })?;
    context.replies.array(keys.len());
    keys.iter().for_each(|key| context.replies.bulk(key));
    Ok(())
}

/// Calls `visit` with each key of a slot until it returns false. Looks at all keys of the table, as
/// they are not ordered by slot.
fn visit_slot(
    context: &mut Context<'_>,
    groups: &Groups,
    slot: &[u8],
    visit: &mut dyn FnMut(&[u8]) -> Result<bool, Failure>,
) -> Outcome {
    let slot = number::parse_i64(slot).ok_or(NOT_AN_INTEGER)?;
    let slot = u16::try_from(slot).ok().filter(|slot| *slot < SLOTS);
    let slot = slot.ok_or(reply_error("ERR Invalid slot"))?;
    context.session.table = groups.of_slot(slot);
    let mut keys = KeyIter::new(context.database(), None, &Start::Key(Vec::new()), context.now())?;
    let mut visited = 0;
    while let Some(key) = keys.next()? {
        if slot_of(key) == slot && !visit(key)? {
            break;
        }
        visited += 1;
        if visited > MAX_VISITED_KEYS {
            return Err(reply_error(
                "ERR the table has too many keys to find those of a slot: keys are not ordered by \
                 slot",
            ));
        }
    }
    Ok(())
}
