//! Pops that follow each other in a group, of the same end of the same list or sorted set: one scan
//! finds the elements of all of them, where a lookup or a scan for each would cost several times as
//! much.

use siltstone_collections::{End, List, Order, SortedSet};

use super::context::Context;
use super::elements::ReplyRoom;
use super::failure::Outcome;
use super::table::TABLE;
use super::{lists, sorted_sets};
use crate::resp::lookahead::{Lookahead, Request};

/// A scan costs as much as a few lookups.
const MIN_POPS: usize = 4;

/// Commands that pop one element each.
pub(super) struct RepeatedPops<'a> {
    key: &'a [u8],
    pop: Pop,
    pub(super) count: usize,
}

#[derive(Clone, Copy)]
enum Pop {
    List(End),
    SortedSet(Order),
}

impl Pop {
    fn of(command: &str) -> Option<Self> {
        match command {
            "lpop" => Some(Pop::List(End::Front)),
            "rpop" => Some(Pop::List(End::Back)),
            "zpopmin" => Some(Pop::SortedSet(Order::Ascending)),
            "zpopmax" => Some(Pop::SortedSet(Order::Descending)),
            _ => None,
        }
    }
}

impl<'a> RepeatedPops<'a> {
    /// The pops at the start of `requests`, which are of `group`; `None` if there are few.
    #[inline]
    pub(super) fn at_start(
        group: &'a Lookahead,
        requests: &[Request],
        input: &'a [u8],
    ) -> Option<Self> {
        let [first, second, ..] = requests else { return None };
        if first.command != second.command {
            return None;
        }
        let pop = Pop::of(TABLE.index[first.command].name)?;
        let key_of = |request: &Request| {
            let args = group.args(request, input);
            args.get(1).filter(|_| request.command == first.command && args.len() == 2)
        };
        let key = key_of(first)?;
        let count = requests.iter().take_while(|request| key_of(request) == Some(key)).count();
        (count >= MIN_POPS).then_some(RepeatedPops { key, pop, count })
    }

    /// Runs all pops, with a reply for each. If it fails, nothing has changed, and nothing was
    /// replied.
    pub(super) fn run(&self, context: &mut Context<'_>) -> Outcome {
        let room = ReplyRoom::new(context);
        let RepeatedPops { key, pop, count } = *self;
        match pop {
            Pop::List(end) => {
                let elements = context.change(key, |writes| {
                    lists::pop_many(&mut List::open(writes, key)?, end, count as u64, room)
                })?;
                for at in 0..count {
                    context.replies.bulk_or_null(elements.get(at).map(Vec::as_slice));
                }
            }
            Pop::SortedSet(order) => {
                let members = context.change(key, |writes| {
                    let set = &mut SortedSet::open(writes, key)?;
                    sorted_sets::pop_many(set, order, count as u64, room)
                })?;
                for at in 0..count {
                    let member = members.get(at);
                    context.replies.array(2 * usize::from(member.is_some()));
                    if let Some((member, score)) = member {
                        sorted_sets::reply_pair(context, member, *score, false);
                    }
                }
            }
        }
        Ok(())
    }
}
