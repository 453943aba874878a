//! Helpers of the commands on collections: arguments, random selections, scans of elements.

use std::hash::{BuildHasher, RandomState};

use siltstone_collections::ROW_OVERHEAD_BYTES;

use super::context::Context;
use super::decimal;
use super::failure::{Failure, NOT_AN_INTEGER, Outcome, SYNTAX, reply_error, reply_too_large};
use crate::glob::Pattern;
use crate::resp::{Args, RespVersion, number};

pub(super) const NOT_A_FLOAT: Failure = reply_error("ERR value is not a valid float");
const OUT_OF_RANGE: Failure = reply_error(
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);
const NOT_POSITIVE: Failure = reply_error("ERR value is out of range, must be positive");
const INVALID_CURSOR: Failure = reply_error("ERR invalid cursor");
const BAD_KEY_COUNT: Failure =
    reply_error("ERR Number of keys can't be greater than number of args");

/// Whether a word is `name`, in any case.
pub(super) fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// Parses an integer.
pub(super) fn integer(word: &[u8]) -> Result<i64, Failure> {
    number::parse_i64(word).ok_or(NOT_AN_INTEGER)
}

/// Parses a count of at least zero.
pub(super) fn count(word: &[u8]) -> Result<u64, Failure> {
    let count = number::parse_i64(word).ok_or(NOT_POSITIVE)?;
    u64::try_from(count).map_err(|_| NOT_POSITIVE)
}

/// Parses a number of keys or elements of at least one; `text` is the error otherwise.
pub(super) fn count_from_one(word: &[u8], text: &'static str) -> Result<u64, Failure> {
    let count = number::parse_i64(word).filter(|count| *count > 0);
    count.and_then(|count| u64::try_from(count).ok()).ok_or(reply_error(text))
}

/// Parses the count of a random selection: negative if elements may repeat.
pub(super) fn selection(word: &[u8], is_paired: bool) -> Result<i64, Failure> {
    let count = integer(word)?;
    let limit = if is_paired { i64::MAX / 2 } else { i64::MAX };
    if is_paired && !(-limit..=limit).contains(&count) {
        return Err(reply_error("ERR value is out of range"));
    }
    if count == i64::MIN { Err(OUT_OF_RANGE) } else { Ok(count) }
}

/// Parses a score or an increment; NaN is none.
pub(super) fn float(word: &[u8]) -> Option<f64> {
    let value = decimal::parse_double(word).ok()?;
    // A number beyond the range of doubles is not infinity.
    let is_number = word.iter().any(u8::is_ascii_digit);
    (value.is_finite() || !is_number).then_some(value)
}

/// Splits `numkeys key …` at the end of the keys.
pub(super) fn counted_keys<'a>(
    args: Args<'a>,
    at: usize,
) -> Result<(Vec<&'a [u8]>, Args<'a>), Failure> {
    let keys = count_from_one(&args[at], "ERR numkeys should be greater than 0")?;
    let keys = usize::try_from(keys).unwrap_or(usize::MAX);
    if keys > args.len() - at - 1 {
        return Err(BAD_KEY_COUNT);
    }
    Ok((args.from(at + 1).iter().take(keys).collect(), args.from(at + 1 + keys)))
}

/// Positions from `start` to `end`, both inclusive and counted from the end if negative, in a
/// sequence of `len` elements.
pub(super) fn resolve_range(start: i64, end: i64, len: u64) -> std::ops::Range<u64> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let from_end = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let (start, end) = (from_end(start).max(0), from_end(end).min(len - 1));
    if start > end { 0..0 } else { start as u64..end as u64 + 1 }
}

/// Draws random numbers.
pub(super) struct Dice {
    state: RandomState,
    drawn: u64,
}

impl Dice {
    pub(super) fn new() -> Self {
        Dice { state: RandomState::new(), drawn: 0 }
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.drawn += 1;
        // Modulo bias is negligible for 64 bits and such small bounds.
        self.state.hash_one(self.drawn) % bound
    }
}

/// The room that a reply has for certain. What a command removes and replies takes it before the
/// command writes: nothing may be lost with a reply that is too large.
#[derive(Clone, Copy)]
pub(super) struct ReplyRoom {
    left: usize,
    max_output_bytes: usize,
}

impl ReplyRoom {
    pub(super) fn new(context: &Context<'_>) -> Self {
        let options = &context.shared.options;
        // For the header of the reply.
        let left = options.reply_bytes() - HEADER_BYTES;
        ReplyRoom { left, max_output_bytes: options.max_output_bytes }
    }

    /// Takes the room of some bytes.
    pub(super) fn take(&mut self, bytes: usize) -> Outcome {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| reply_too_large(self.max_output_bytes))?;
        Ok(())
    }

    /// Takes the room of a byte string.
    pub(super) fn take_bulk(&mut self, bytes: &[u8]) -> Outcome {
        // `$`, the length and two line ends.
        self.take(5 + digits(bytes.len() as u64) + bytes.len())
    }
}

/// What the result of an operation on several collections may take. Beyond it not all of it is
/// needed: the reply, or the batch, is refused anyway.
#[derive(Clone, Copy)]
pub(super) struct ResultLimit {
    left: usize,
    per_member: usize,
}

impl ResultLimit {
    /// Of a result that is returned.
    pub(super) fn of_reply(context: &Context<'_>) -> Self {
        let left = context.shared.options.max_output_bytes;
        ResultLimit { left, per_member: MIN_FRAME_BYTES }
    }

    /// Of a result that is stored.
    pub(super) fn of_rows(context: &Context<'_>) -> Self {
        let left = context.shared.options.max_request_bytes;
        ResultLimit { left, per_member: ROW_OVERHEAD_BYTES }
    }

    /// Takes the room of a member; false: there is none, or no more.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        self.left = self.left.saturating_sub(self.per_member + bytes);
        self.left > 0
    }

    /// Whether there is room.
    pub(super) fn has_room(&self) -> bool {
        self.left > 0
    }
}

/// More than the header of an array takes.
const HEADER_BYTES: usize = 64;

/// The digits of a number.
pub(super) fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// The least that an element takes in a reply besides its own bytes: `$`, a digit and two line
/// ends.
const MIN_FRAME_BYTES: usize = 6;

/// Elements selected at random: `count` of `len`, distinct unless it is negative. `draw` draws one,
/// `each` visits all until its visitor returns false. Collects no more than a reply of `max_bytes`
/// takes, as `bytes_of` counts them.
///
/// Many distinct ones are selected in one pass (Knuth, The Art of Computer Programming 2, 3.4.2,
/// algorithm S), and are in the order of the pass.
pub(super) fn select<T: Ord + Clone>(
    count: i64,
    len: u64,
    dice: &mut Dice,
    mut draw: impl FnMut(&mut Dice) -> Result<Option<T>, Failure>,
    each: impl FnOnce(&mut dyn FnMut(T) -> bool) -> Outcome,
    (max_bytes, bytes_of): (usize, impl Fn(&T) -> usize),
) -> Result<Vec<T>, Failure> {
    let wanted = if count < 0 { count.unsigned_abs() } else { (count as u64).min(len) };
    let mut selected = Vec::new();
    if len == 0 || count == 0 {
        return Ok(selected);
    }
    if wanted.saturating_mul(MIN_FRAME_BYTES as u64) > max_bytes as u64 {
        return Err(reply_too_large(max_bytes));
    }
    let mut left = max_bytes;
    let mut take_room = |element: &T| {
        let rest = left.checked_sub(MIN_FRAME_BYTES + bytes_of(element));
        left = rest.ok_or_else(|| reply_too_large(max_bytes))?;
        Ok(())
    };
    if count > 0 && wanted.saturating_mul(3) > len {
        let (mut unvisited, mut missing, mut outcome) = (len, wanted, Ok(()));
        each(&mut |element| {
            if dice.below(unvisited.max(1)) < missing {
                missing -= 1;
                outcome = take_room(&element);
                selected.push(element);
            }
            unvisited = unvisited.saturating_sub(1);
            missing > 0 && outcome.is_ok()
        })?;
        return outcome.map(|()| selected);
    }
    let mut seen = std::collections::BTreeSet::new();
    while (selected.len() as u64) < wanted {
        // There is always one, unless all fields of a hash have expired meanwhile.
        let Some(drawn) = draw(dice)? else { break };
        if count < 0 || seen.insert(drawn.clone()) {
            take_room(&drawn)?;
            selected.push(drawn);
        }
    }
    Ok(selected)
}

/// Arguments of HSCAN, SSCAN and ZSCAN.
pub(super) struct ElementScan {
    pub(super) from: u32,
    pub(super) count: usize,
    pattern: Option<Pattern>,
    /// HSCAN with NOVALUES.
    pub(super) without_values: bool,
}

impl ElementScan {
    /// Arguments of SSCAN or ZSCAN.
    pub(super) fn parse(args: Args<'_>) -> Result<Self, Failure> {
        match Self::parse_of_hash(args)? {
            ElementScan { without_values: true, .. } => {
                Err(reply_error("ERR NOVALUES option can only be used in HSCAN"))
            }
            scan => Ok(scan),
        }
    }

    /// Arguments of HSCAN.
    pub(super) fn parse_of_hash(args: Args<'_>) -> Result<Self, Failure> {
        // A cursor of this server has 32 bits; a larger one is invented, and at the end.
        let cursor = super::scan::parse_cursor(&args[2]).ok_or(INVALID_CURSOR)?;
        let from = u32::try_from(cursor).unwrap_or(u32::MAX);
        let mut scan = ElementScan { from, count: 10, pattern: None, without_values: false };
        let mut words = args.from(3).iter();
        while let Some(word) = words.next() {
            if is(word, "novalues") {
                scan.without_values = true;
                continue;
            }
            let value = words.next().ok_or(SYNTAX)?;
            if is(word, "match") {
                scan.pattern = Some(Pattern::new(value));
            } else if is(word, "count") {
                let count = integer(value)?;
                scan.count = usize::try_from(count).ok().filter(|n| *n > 0).ok_or(SYNTAX)?;
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(scan)
    }

    /// Number of elements to read: all of a small collection, as in Redis.
    pub(super) fn count_of(&self, is_small: bool) -> usize {
        if is_small { usize::MAX } else { self.count }
    }

    /// Replies with the next cursor, and the `words` of each element whose name matches.
    pub(super) fn reply<const N: usize>(
        &self,
        context: &mut Context<'_>,
        next: Option<u32>,
        elements: Vec<[Vec<u8>; N]>,
    ) -> Outcome {
        let matches = |words: &[Vec<u8>; N]| {
            self.pattern.as_ref().is_none_or(|pattern| pattern.matches(&words[0]))
        };
        let elements: Vec<_> = elements.into_iter().filter(matches).collect();
        context.replies.array(2);
        context.replies.bulk(next.unwrap_or(0).to_string().as_bytes());
        context.replies.array(elements.len() * N);
        for word in elements.iter().flatten() {
            context.replies.bulk(word);
        }
        Ok(())
    }
}

/// Replies with a list of byte strings.
pub(super) fn reply_list(context: &mut Context<'_>, elements: &[Vec<u8>]) -> Outcome {
    context.replies.array(elements.len());
    for element in elements {
        context.replies.bulk(element);
    }
    Ok(())
}

/// Begins a list of `len` pairs: nested in RESP3, flat in RESP2. Returns whether each pair begins
/// its own array.
pub(super) fn begin_pairs(context: &mut Context<'_>, len: usize) -> bool {
    let is_nested = context.replies.version == RespVersion::Resp3;
    context.replies.array(if is_nested { len } else { 2 * len });
    is_nested
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_resolved_from_both_ends() {
        assert_eq!(resolve_range(0, -1, 3), 0..3);
        assert_eq!(resolve_range(-2, -1, 3), 1..3);
        assert_eq!(resolve_range(-100, 100, 3), 0..3);
        assert_eq!(resolve_range(2, 1, 3), 0..0);
        assert_eq!(resolve_range(3, 5, 3), 0..0);
        assert_eq!(resolve_range(i64::MIN, i64::MAX, 3), 0..3);
        assert_eq!(resolve_range(0, -1, 0), 0..0);
    }

    #[test]
    fn selections_are_distinct_unless_negative() {
        let mut dice = Dice::new();
        let all: Vec<u64> = (0..100).collect();
        for (count, expected) in [(5, 5), (60, 60), (1000, 100), (-300, 300), (0, 0)] {
            let draw = |dice: &mut Dice| Ok(Some(dice.below(100)));
            let limit = (10_000, |_: &u64| 2);
            let selected = select(count, 100, &mut dice, draw, each_of(&all), limit).unwrap();
            assert_eq!(selected.len(), expected);
            let distinct: std::collections::BTreeSet<_> = selected.iter().collect();
            assert_eq!(distinct.len() == expected, count >= 0);
        }
    }

    fn each_of(all: &[u64]) -> impl FnOnce(&mut dyn FnMut(u64) -> bool) -> Outcome {
        |visit| {
            let _ = all.iter().all(|element| visit(*element));
            Ok(())
        }
    }

    #[test]
    fn each_element_of_a_large_selection_is_about_equally_frequent() {
        let (mut dice, all) = (Dice::new(), (0..12).collect::<Vec<u64>>());
        let mut drawn = [0u32; 12];
        for _ in 0..12_000 {
            let limit = (10_000, |_: &u64| 2);
            let unused = |_: &mut Dice| panic!("a draw of a single element");
            for element in select(5, 12, &mut dice, unused, each_of(&all), limit).unwrap() {
                drawn[element as usize] += 1;
            }
        }
        // Expected are 5,000 with a standard deviation of 54.
        assert!(drawn.iter().all(|count| (4_500..5_500).contains(count)), "{drawn:?}");
    }

    #[test]
    fn distinct_elements_beyond_a_reply_are_refused_before_more_are_collected() {
        let all: Vec<u64> = (0..100).collect();
        let selects = |count: i64, max_bytes: usize| {
            let draw = |dice: &mut Dice| Ok(Some(dice.below(100)));
            let limit = (max_bytes, |_: &u64| 94);
            select(count, 100, &mut Dice::new(), draw, each_of(&all), limit).is_ok()
        };
        for count in [5, 50, 100] {
            assert!(selects(count, 100 * count as usize));
            assert!(!selects(count, 100 * count as usize - 1));
        }
        assert!(selects(1000, 10_000) && !selects(1000, 9_999));
    }

    #[test]
    fn repeated_elements_beyond_a_reply_are_refused() {
        let mut draws = 0;
        let mut selects = |count: i64| {
            let draw = |_: &mut Dice| {
                draws += 1;
                Ok(Some(7u64))
            };
            let limit = (600, |_: &u64| 94);
            select(count, 1, &mut Dice::new(), draw, each_of(&[7]), limit).is_ok()
        };
        assert!(selects(-6) && !selects(-7) && !selects(-i64::MAX));
        assert_eq!(draws, 13);
    }

    #[test]
    fn float_beyond_the_range_is_none() {
        assert_eq!(float(b"1e400"), None);
        assert_eq!(float(b"-inf"), Some(f64::NEG_INFINITY));
        assert_eq!(float(b"nan"), None);
        assert_eq!(float(b"0x10"), Some(16.0));
    }
}
