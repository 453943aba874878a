//! Sets of the groups of a node, a bit per group.

use super::options::MAX_GROUPS;

/// A set of groups, a bit each.
pub(crate) type GroupSet = u64;

const _: () = assert!(MAX_GROUPS as u32 <= GroupSet::BITS);

/// The set of one group.
#[inline]
pub(crate) fn only(group: usize) -> GroupSet {
    1 << group
}

/// The groups of a set, in order.
pub(crate) fn members(set: GroupSet) -> impl Iterator<Item = usize> {
    (0..GroupSet::BITS as usize).filter(move |group| set & only(*group) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_set_are_those_added() {
        assert_eq!(members(only(1) | only(63)).collect::<Vec<_>>(), [1, 63]);
        assert_eq!(members(0).count(), 0);
    }
}
