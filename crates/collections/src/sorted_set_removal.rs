//! Removal of adjacent members of a sorted set.
//!
//! The rows by score are adjacent, those by member are not. So what a large removal writes depends
//! on what there is less of:
//!
//! ```text
//!   removed                       writes
//!   all                           no rows of members
//!   few                           two deletions per member
//!   thousands, up to half         a deletion per member, and one of a range of scores
//!   thousands, more than half     two rows per member that stays, in a new version
//! ```
//!
//! Members are read in parts, so memory is needed for the writes alone.

use std::ops::{Bound, Range};

use siltstone_engine::{KeyRange, Result};

use crate::layout::{Space, element_key, hash_of};
use crate::rows::Order;
use crate::sorted_set::{
    MemberRange, ScoreRange, SortedSet, VisitMember, member_and_score, score_in,
};

/// Members that are read at a time.
const PART_MEMBERS: usize = 1024;

/// Adjacent members, in the order of scores.
#[derive(Debug, Clone, PartialEq)]
pub enum MemberSelection {
    /// By rank from the lowest score.
    Ranks(Range<u64>),
    /// By score.
    Scores(ScoreRange),
    /// By their bytes, as [`SortedSet::for_each_member`] visits them.
    Members(MemberRange),
}

impl SortedSet<'_, '_> {
    /// Visits the selected members from one end or the other.
    fn for_each_selected(
        &self,
        selection: &MemberSelection,
        visit: &mut VisitMember<'_>,
    ) -> Result<()> {
        match selection {
            MemberSelection::Ranks(ranks) => {
                self.for_each_rank(ranks.clone(), Order::Ascending, visit).map(|_| ())
            }
            MemberSelection::Scores(scores) => self.for_each(*scores, Order::Ascending, visit),
            MemberSelection::Members(members) => {
                self.for_each_member(members, Order::Ascending, visit)
            }
        }
    }

    /// Removes the selected members, and returns their number. Cost: two steps per member, and the
    /// writes that the module describes.
    ///
    /// # Errors
    /// Those of reads.
    pub fn remove_selected(&mut self, selection: &MemberSelection) -> Result<u64> {
        let (mut count, mut ends) = (0, None::<[(Vec<u8>, f64); 2]>);
        self.for_each_selected(selection, &mut |member, score| {
            count += 1;
            match &mut ends {
                None => ends = Some([(member.to_vec(), score), (member.to_vec(), score)]),
                Some([_, (last, last_score)]) => {
                    last.clear();
                    last.extend_from_slice(member);
                    *last_score = score;
                }
            }
            true
        })?;
        let Some(ends) = ends else { return Ok(0) };
        if count == self.len() {
            self.clear();
            return Ok(count);
        }
        let mut ends = ends.map(|(member, score)| self.score_key(score, &member));
        // Ranks may be visited from the highest.
        ends.sort_unstable();
        let [first, last] = ends;
        let after = [&last[..], &[0]].concat();
        let kept = self.len() - count;
        let is_range = self.0.deletes_as_range(count);
        if is_range && kept < count {
            self.keep_rows_outside(&first, &after, kept)?;
        } else {
            let removed = KeyRange::new(first.as_slice()..after.as_slice());
            self.for_each_row(removed, &mut |set, key| {
                let (member, _) = member_and_score(key);
                let by_member = set.0.hashed(Space::Members, member);
                set.0.delete(&by_member);
                if !is_range {
                    set.0.delete(key);
                }
                Ok(())
            })?;
            if is_range {
                self.0.delete_range(&first, &after);
            }
            self.0.metadata.count = kept;
        }
        self.0.save();
        Ok(count)
    }

    /// Writes the `kept` members whose rows by score are before `first` or from `after` on, as a
    /// new version.
    fn keep_rows_outside(&mut self, first: &[u8], after: &[u8], kept: u64) -> Result<()> {
        let (old, all) = (self.0.metadata.version, self.0.space(Space::Scores));
        let before = KeyRange { start: all.start, end: Bound::Excluded(first.to_vec()) };
        let behind = KeyRange { start: Bound::Included(after.to_vec()), end: all.end };
        self.0.begin_again(kept);
        for part in [before, behind] {
            self.for_each_row(part, &mut |set, key| {
                let (member, mut score) = member_and_score(key);
                if score == 0.0 {
                    // Only the row of the member has the sign.
                    let hash = hash_of(member).to_be_bytes();
                    let old = set.0.get(&element_key(old, Space::Members, &hash, member))?;
                    score = old.map_or(score, |value| score_in(&value));
                }
                set.put_rows(member, score);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Visits the keys of the rows of a range, in parts, so that `change` may write. Ends early
    /// once the writes exceed their limit.
    fn for_each_row(
        &mut self,
        mut range: KeyRange,
        change: &mut dyn FnMut(&mut Self, &[u8]) -> Result<()>,
    ) -> Result<()> {
        while !self.0.writes().exceeds_limit() {
            let mut keys = Vec::new();
            self.0.scan(&range, Order::Ascending.keys_only(), &mut |row| {
                keys.push(row.key.to_vec());
                keys.len() < PART_MEMBERS
            })?;
            keys.iter().try_for_each(|key| change(self, key))?;
            let Some(last) = keys.pop() else { break };
            range.start = Bound::Excluded(last);
        }
        Ok(())
    }
}
