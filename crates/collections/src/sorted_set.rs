//! Sorted sets: distinct members, ordered by score and then by bytes.
//!
//! Each member has two rows: its score, found by the member; and one whose key sorts by score.
//!
//! Invariant: both rows of a member have the same score.

use std::ops::{Bound, Range};

use siltstone_engine::{Error, KeyRange, Result};

use crate::collection::{Below, Collection, Page};
use crate::error::Result as OpenResult;
use crate::hash::name_in;
use crate::layout::{ELEMENT_PREFIX_BYTES, SCORE_BYTES, Space, score_code, score_of};
use crate::metadata::{Encoding, Kind, Metadata};
use crate::rows::Order;
use crate::write_set::WriteSet;

/// A sorted set in a [`WriteSet`]. Ranks are counted from the lowest score, from 0.
///
/// Every change also writes the metadata. Errors are those of reads.
#[derive(Debug)]
pub struct SortedSet<'w, 'r>(pub(crate) Collection<'w, 'r>);

/// A range of scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreRange {
    /// Lower end.
    pub min: Bound<f64>,
    /// Upper end.
    pub max: Bound<f64>,
}

impl ScoreRange {
    /// Every score.
    pub const ALL: Self = ScoreRange { min: Bound::Unbounded, max: Bound::Unbounded };
}

/// A range of members by their bytes, made for sorted sets whose members have one score.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRange {
    /// Lower end.
    pub min: Bound<Vec<u8>>,
    /// Upper end.
    pub max: Bound<Vec<u8>>,
}

impl MemberRange {
    fn is_above_min(&self, member: &[u8]) -> bool {
        match &self.min {
            Bound::Included(min) => member >= min.as_slice(),
            Bound::Excluded(min) => member > min.as_slice(),
            Bound::Unbounded => true,
        }
    }

    fn is_below_max(&self, member: &[u8]) -> bool {
        match &self.max {
            Bound::Included(max) => member <= max.as_slice(),
            Bound::Excluded(max) => member < max.as_slice(),
            Bound::Unbounded => true,
        }
    }
}

/// Receives member and score; returns whether to continue.
pub type VisitMember<'v> = dyn FnMut(&[u8], f64) -> bool + 'v;

pub(crate) fn score_in(value: &[u8]) -> f64 {
    value.first_chunk().map_or(0.0, |bits| f64::from_bits(u64::from_be_bytes(*bits)))
}

/// Member and score in the key of a row by score. The sign of zero is lost.
pub(crate) fn member_and_score(key: &[u8]) -> (&[u8], f64) {
    let rest = key.get(ELEMENT_PREFIX_BYTES..).unwrap_or_default();
    let code = rest.first_chunk().map_or(0, |code| u64::from_be_bytes(*code));
    (rest.get(SCORE_BYTES..).unwrap_or_default(), score_of(code))
}

impl<'w, 'r> SortedSet<'w, 'r> {
    /// Opens the sorted set at a key; an empty one if the key is missing.
    ///
    /// # Errors
    /// [`Error::WrongType`](crate::Error::WrongType), and those of reads.
    pub fn open(writes: &'w mut WriteSet<'r>, key: &'w [u8]) -> OpenResult<Self> {
        Ok(SortedSet(Collection::open(writes, key, Kind::SortedSet)?))
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// Number of members.
    pub fn len(&self) -> u64 {
        self.0.metadata.count
    }

    /// Whether the sorted set is missing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Score of a member. Cost: a lookup.
    ///
    /// # Errors
    /// Those of reads.
    pub fn score(&self, member: &[u8]) -> Result<Option<f64>> {
        Ok(self.0.get(&self.0.hashed(Space::Members, member))?.map(|value| score_in(&value)))
    }

    pub(crate) fn score_key(&self, score: f64, member: &[u8]) -> Vec<u8> {
        self.0.element(Space::Scores, &score_code(score).to_be_bytes(), member)
    }

    /// Sets the score of a member, which must not be NaN, and returns the old one. Cost: a lookup.
    ///
    /// # Errors
    /// Those of reads.
    pub fn insert(&mut self, member: &[u8], score: f64) -> Result<Option<f64>> {
        self.update(member, |_| Ok(Some(score)))
    }

    /// Sets the score of a member to what `new_score` makes of the old one, or leaves it if that is
    /// `None`, and returns the old one. The new one must not be NaN. Cost: a lookup.
    ///
    /// # Errors
    /// Those of reads, and that of `new_score`; nothing has changed then.
    pub fn update<E: From<Error>>(
        &mut self,
        member: &[u8],
        new_score: impl FnOnce(Option<f64>) -> Result<Option<f64>, E>,
    ) -> Result<Option<f64>, E> {
        let key = self.0.hashed(Space::Members, member);
        let old = self.0.get(&key)?.map(|value| score_in(&value));
        let Some(score) = new_score(old)? else { return Ok(old) };
        if old.is_some_and(|old| old.to_bits() == score.to_bits()) {
            return Ok(old);
        }
        if let Some(old) = old {
            let old = self.score_key(old, member);
            self.0.delete(&old);
        }
        self.0.metadata.count += u64::from(old.is_none());
        self.0.raise_encoding(self.0.limits().sorted_set, member.len());
        self.put_rows_at(&key, member, score);
        self.0.save();
        Ok(old)
    }

    /// Puts both rows of a member.
    pub(crate) fn put_rows(&mut self, member: &[u8], score: f64) {
        let key = self.0.hashed(Space::Members, member);
        self.put_rows_at(&key, member, score);
    }

    fn put_rows_at(&mut self, key: &[u8], member: &[u8], score: f64) {
        self.0.put(key, &score.to_bits().to_be_bytes());
        let by_score = self.score_key(score, member);
        self.0.put(&by_score, &[]);
    }

    /// Removes a member, and returns its score.
    ///
    /// # Errors
    /// Those of reads.
    pub fn remove(&mut self, member: &[u8]) -> Result<Option<f64>> {
        let key = self.0.hashed(Space::Members, member);
        let Some(old) = self.0.get(&key)?.map(|value| score_in(&value)) else { return Ok(None) };
        let by_score = self.score_key(old, member);
        self.0.delete(&key);
        self.0.delete(&by_score);
        self.0.metadata.count -= 1;
        self.0.save();
        Ok(Some(old))
    }

    fn visit_scores(
        &self,
        range: &KeyRange,
        order: Order,
        visit: &mut VisitMember<'_>,
    ) -> Result<()> {
        if range.check().is_err() {
            return Ok(());
        }
        self.0.scan(range, order.keys_only(), &mut |row| {
            let (member, score) = member_and_score(row.key);
            visit(member, score)
        })
    }

    /// Visits the members with scores in a range, by score. Cost: a seek and a step per member.
    ///
    /// # Errors
    /// Those of reads.
    pub fn for_each(
        &self,
        scores: ScoreRange,
        order: Order,
        visit: &mut VisitMember<'_>,
    ) -> Result<()> {
        let all = self.0.space(Space::Scores);
        // All members with a score lie before the code that follows it.
        let key = |code: u64| self.0.element(Space::Scores, &code.to_be_bytes(), &[]);
        let start = match scores.min {
            Bound::Unbounded => all.start,
            Bound::Included(min) => Bound::Included(key(score_code(min))),
            Bound::Excluded(min) => Bound::Included(key(score_code(min) + 1)),
        };
        let end = match scores.max {
            Bound::Unbounded => all.end,
            Bound::Included(max) => Bound::Excluded(key(score_code(max) + 1)),
            Bound::Excluded(max) => Bound::Excluded(key(score_code(max))),
        };
        self.visit_scores(&KeyRange { start, end }, order, visit)
    }

    /// Visits the members in a range of bytes, which are in order if all scores are equal. Cost:
    /// three seeks and a step per member; if scores differ, a step per member from the end on, as
    /// in Redis: the range then begins at the first member in it, and ends before the first that
    /// is not.
    ///
    /// # Errors
    /// Those of reads.
    pub fn for_each_member(
        &self,
        members: &MemberRange,
        order: Order,
        visit: &mut VisitMember<'_>,
    ) -> Result<()> {
        let end_of = |order: Order| -> Result<Option<(Vec<u8>, f64)>> {
            let mut end = None;
            self.for_each(ScoreRange::ALL, order, &mut |member, score| {
                end = Some((member.to_vec(), score));
                false
            })?;
            Ok(end)
        };
        let ends = (end_of(Order::Ascending)?, end_of(Order::Descending)?);
        let (Some((first, score)), Some((last, last_score))) = ends else { return Ok(()) };
        if score.to_bits() != last_score.to_bits() {
            if !members.is_above_min(&last) || !members.is_below_max(&first) {
                return Ok(());
            }
            let mut has_begun = false;
            return self.for_each(ScoreRange::ALL, order, &mut |member, score| {
                let (is_above, is_below) =
                    (members.is_above_min(member), members.is_below_max(member));
                let (begins, goes_on) = match order {
                    Order::Ascending => (is_above, is_below),
                    Order::Descending => (is_below, is_above),
                };
                has_begun |= begins;
                !has_begun || goes_on && visit(member, score)
            });
        }
        let key = |member: &Vec<u8>| self.score_key(score, member);
        let all = self.0.space(Space::Scores);
        let (mut start, mut end) = (members.min.as_ref().map(key), members.max.as_ref().map(key));
        if start == Bound::Unbounded {
            start = all.start;
        }
        if end == Bound::Unbounded {
            end = all.end;
        }
        self.visit_scores(&KeyRange { start, end }, order, visit)
    }

    /// Members and scores of a range of ranks in an order. Cost: a step per member of the range,
    /// and per member between it and the nearer end.
    ///
    /// # Errors
    /// Those of reads.
    pub fn range(&self, ranks: Range<u64>, order: Order) -> Result<Vec<(Vec<u8>, f64)>> {
        let mut members = Vec::new();
        let walked = self.for_each_rank(ranks, order, &mut |member, score| {
            members.push((member.to_vec(), score));
            true
        })?;
        if walked != order {
            members.reverse();
        }
        Ok(members)
    }

    /// Visits the members of a range of ranks in an order, until `visit` returns false. They are
    /// visited from the nearer end: returns the order of the visits, which may be the reverse.
    /// Cost: as that of [`range`](Self::range).
    ///
    /// # Errors
    /// Those of reads.
    pub fn for_each_rank(
        &self,
        ranks: Range<u64>,
        order: Order,
        visit: &mut VisitMember<'_>,
    ) -> Result<Order> {
        let (count, end) = (self.len(), ranks.end.min(self.len()));
        if ranks.start >= end {
            return Ok(order);
        }
        let is_near_end = count - end < ranks.start;
        let (skip, walk) = match (is_near_end, order) {
            (false, order) => (ranks.start, order),
            (true, Order::Ascending) => (count - end, Order::Descending),
            (true, Order::Descending) => (count - end, Order::Ascending),
        };
        let (mut skipped, mut wanted) = (0, end - ranks.start);
        self.for_each(ScoreRange::ALL, walk, &mut |member, score| {
            if skipped < skip {
                skipped += 1;
                return true;
            }
            wanted -= 1;
            visit(member, score) && wanted > 0
        })?;
        Ok(walk)
    }

    /// Rank of a member in an order, and its score. Cost: a step per member before it.
    ///
    /// # Errors
    /// Those of reads.
    pub fn rank(&self, member: &[u8], order: Order) -> Result<Option<(u64, f64)>> {
        let Some(score) = self.score(member)? else { return Ok(None) };
        let mut range = self.0.space(Space::Scores);
        let key = Bound::Excluded(self.score_key(score, member));
        match order {
            Order::Ascending => range.end = key,
            Order::Descending => range.start = key,
        }
        let mut rank = 0;
        self.visit_scores(&range, Order::Ascending, &mut |_, _| {
            rank += 1;
            true
        })?;
        Ok(Some((rank, score)))
    }

    /// All members and scores, by score.
    ///
    /// # Errors
    /// Those of reads.
    pub fn members(&self) -> Result<Vec<(Vec<u8>, f64)>> {
        let mut members = Vec::new();
        self.for_each(ScoreRange::ALL, Order::Ascending, &mut |member, score| {
            members.push((member.to_vec(), score));
            true
        })?;
        Ok(members)
    }

    /// Removes all members, at a cost that does not depend on their number.
    pub fn clear(&mut self) {
        self.0.metadata.count = 0;
        self.0.save();
    }

    /// Members and scores from a position on, and the next position, as
    /// [`Hash::scan`](crate::Hash::scan).
    ///
    /// # Errors
    /// Those of reads.
    pub fn scan(&self, from: u32, count: usize) -> Result<Page<(Vec<u8>, f64)>> {
        let (rows, next) = self.0.scan_hashed(Space::Members, from, count)?;
        let members = rows.iter().map(|(key, value)| (name_in(key).to_vec(), score_in(value)));
        Ok((members.collect(), next))
    }

    /// A random member and its score, with the probabilities and cost of
    /// [`Hash::draw`](crate::Hash::draw).
    ///
    /// # Errors
    /// Those of reads.
    pub fn draw(&self, below: &mut Below<'_>) -> Result<Option<(Vec<u8>, f64)>> {
        let drawn = self.0.draw(Space::Members, below)?;
        Ok(drawn.map(|(key, value)| (name_in(&key).to_vec(), score_in(&value))))
    }

    /// Whether Redis would store it compactly.
    pub fn is_compact(&self) -> bool {
        self.0.metadata.encoding < Encoding::Large
    }
}
