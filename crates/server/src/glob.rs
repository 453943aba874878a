//! Glob patterns of SCAN and KEYS: `*`, `?`, `[a-z]`, `[^a]`, and `\` escapes.
//!
//! A pattern is compiled once and matched against many texts. Stars divide it into segments, each a
//! sequence of byte classes:
//!
//! ```text
//! user:*[0-9]?*.x   ──▶  "user:"     "[0-9]?"      ".x"
//!                        at the      first match   at the
//!                        start       after it      end
//! ```
//!
//! A middle segment is matched as early as possible: whatever the next one can reach from a later
//! position it can reach from there. Long segments use the Shift-And algorithm, one bit per class:
//! bit i is set while the last i+1 bytes match the first i+1 classes. So a text costs at most 32
//! steps per byte, or one step per byte and 64 classes of the segment. A text shorter than the
//! pattern costs nothing. No pattern takes quadratic or exponential time.
//!
//! Invariant: any bytes are a pattern; a truncated one (`[a`, a final `\`) matches as in Redis. A
//! pattern that only texts longer than a key could match uses no memory.
//!
//! Source: the documentation of Redis's KEYS command; R. Baeza-Yates and G. Gonnet, "A new approach
//! to text searching", CACM 35(10), 1992.

use siltstone_engine::MAX_KEY_BYTES;

/// Maximum classes of a segment that is matched naively.
const MAX_NAIVE_CLASSES: usize = 32;

/// Set of bytes that match at one position, one bit per byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Class([u64; 4]);

impl Class {
    const ANY: Class = Class([u64::MAX; 4]);
    const NONE: Class = Class([0; 4]);

    fn of(byte: u8) -> Self {
        let mut class = Self::NONE;
        class.add(byte);
        class
    }

    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn negated(self) -> Self {
        Class(self.0.map(|word| !word))
    }

    #[inline]
    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }
}

/// A compiled pattern.
pub(crate) struct Pattern {
    /// Before the first star, or everything.
    first: Vec<Class>,
    /// Between two stars.
    middle: Vec<Searcher>,
    /// After the last star; `None` without a star.
    last: Option<Vec<Class>>,
    /// Length of the shortest matching text.
    min_len: usize,
}

/// Finds a segment in a text.
enum Searcher {
    Short(Vec<Class>),
    /// `masks` has `words` words per byte: the positions of the segment that the byte matches.
    Long {
        len: usize,
        words: usize,
        masks: Vec<u64>,
    },
}

impl Pattern {
    pub(crate) fn new(pattern: &[u8]) -> Self {
        let mut segments = Vec::new();
        let (mut segment, mut min_len, mut rest) = (Vec::new(), 0, pattern);
        while let Some(&byte) = rest.first() {
            if byte == b'*' {
                // Adjacent stars are one.
                if segments.is_empty() || !segment.is_empty() {
                    segments.push(std::mem::take(&mut segment));
                }
                rest = &rest[1..];
                continue;
            }
            let (class, used) = parse_class(rest);
            segment.push(class);
            min_len += 1;
            if min_len > MAX_KEY_BYTES {
                return Pattern { first: Vec::new(), middle: Vec::new(), last: None, min_len };
            }
            rest = &rest[used..];
        }
        let mut segments = segments.into_iter();
        let Some(first) = segments.next() else {
            return Pattern { first: segment, middle: Vec::new(), last: None, min_len };
        };
        let middle = segments.map(Searcher::new).collect();
        Pattern { first, middle, last: Some(segment), min_len }
    }

    /// At most the memory that a compiled pattern takes, in bytes.
    pub(crate) fn max_memory_bytes(pattern: &[u8]) -> usize {
        // A class of 32 bytes may have one byte of the pattern, and half of a list may be unused. A
        // short segment of two bytes has a list of its own.
        const PER_BYTE: usize = 96;
        // Of longer ones nothing is kept, see `new`.
        let kept = pattern.len().min(2 * MAX_KEY_BYTES);
        size_of::<Self>() + PER_BYTE * kept
    }

    /// Whether the complete `text` matches.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        if text.len() < self.min_len {
            return false;
        }
        let Some(last) = &self.last else {
            return text.len() == self.first.len() && is_match(&self.first, text);
        };
        let (head, text) = text.split_at(self.first.len());
        // The minimum length includes both ends.
        let (mut text, tail) = text.split_at(text.len() - last.len());
        if !is_match(&self.first, head) || !is_match(last, tail) {
            return false;
        }
        for searcher in &self.middle {
            let Some(end) = searcher.find(text) else { return false };
            text = &text[end..];
        }
        true
    }
}

/// Whether the complete `text` matches `pattern`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    Pattern::new(pattern).matches(text)
}

/// Whether each byte of a text of the same length is in its class.
fn is_match(classes: &[Class], text: &[u8]) -> bool {
    classes.iter().zip(text).all(|(class, byte)| class.has(*byte))
}

impl Searcher {
    fn new(classes: Vec<Class>) -> Self {
        if classes.len() <= MAX_NAIVE_CLASSES {
            return Searcher::Short(classes);
        }
        let words = classes.len().div_ceil(64);
        let mut masks = vec![0; 256 * words];
        for (place, class) in classes.iter().enumerate() {
            for byte in 0..=u8::MAX {
                if class.has(byte) {
                    masks[usize::from(byte) * words + place / 64] |= 1 << (place % 64);
                }
            }
        }
        Searcher::Long { len: classes.len(), words, masks }
    }

    /// End of the first match in a text.
    fn find(&self, text: &[u8]) -> Option<usize> {
        match self {
            Searcher::Short(classes) => {
                let mut windows = text.windows(classes.len().max(1));
                windows.position(|window| is_match(classes, window)).map(|at| at + classes.len())
            }
            Searcher::Long { len, words, masks } if *len <= text.len() => {
                let (mut state, last_bit) = (vec![0u64; *words], 1u64 << ((len - 1) % 64));
                let end = text.iter().position(|byte| {
                    let masks = &masks[usize::from(*byte) * words..][..*words];
                    let mut carry = 1;
                    for (word, mask) in state.iter_mut().zip(masks) {
                        let next_carry = *word >> 63;
                        *word = (*word << 1 | carry) & mask;
                        carry = next_carry;
                    }
                    state[words - 1] & last_bit != 0
                });
                end.map(|end| end + 1)
            }
            Searcher::Long { .. } => None,
        }
    }
}

/// Literal prefix of a pattern: every match starts with it.
pub(crate) fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let special = pattern.iter().position(|byte| b"*?[\\".contains(byte));
    &pattern[..special.unwrap_or(pattern.len())]
}

/// Parses the class at the start of a pattern, which is not empty and does not start with `*`.
/// Returns its length in bytes.
fn parse_class(pattern: &[u8]) -> (Class, usize) {
    match pattern {
        [b'?', ..] => (Class::ANY, 1),
        [b'[', ..] => parse_brackets(pattern),
        [b'\\', literal, ..] => (Class::of(*literal), 2),
        _ => (Class::of(pattern[0]), 1),
    }
}

/// As [`parse_class`], for a pattern that starts with `[`. A class without `]` extends to the end.
fn parse_brackets(pattern: &[u8]) -> (Class, usize) {
    let is_negated = pattern.get(1) == Some(&b'^');
    let mut at = 1 + usize::from(is_negated);
    let mut class = Class::NONE;
    while at < pattern.len() && pattern[at] != b']' {
        match pattern[at..] {
            [b'\\', literal, ..] => {
                class.add(literal);
                at += 2;
            }
            [low, b'-', high, ..] => {
                (low.min(high)..=low.max(high)).for_each(|byte| class.add(byte));
                at += 3;
            }
            [literal, ..] => {
                class.add(literal);
                at += 1;
            }
            [] => {}
        }
    }
    let used = (at + 1).min(pattern.len());
    (if is_negated { class.negated() } else { class }, used)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    /// Reference matcher: tries all possibilities.
    fn matches_by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.first() {
            None => text.is_empty(),
            Some(b'*') => {
                (0..=text.len()).any(|from| matches_by_definition(&pattern[1..], &text[from..]))
            }
            Some(_) => {
                let (class, used) = parse_class(pattern);
                text.split_first().is_some_and(|(byte, rest)| {
                    class.has(*byte) && matches_by_definition(&pattern[used..], rest)
                })
            }
        }
    }

    proptest! {
        #[test]
        fn patterns_match_like_the_reference_matcher(
            pattern in proptest::collection::vec(prop::sample::select(&b"ab*?[]^-\\"[..]), 0..10),
            text in proptest::collection::vec(prop::sample::select(&b"ab]-"[..]), 0..10),
        ) {
            let expected = matches_by_definition(&pattern, &text);
            prop_assert_eq!(matches(&pattern, &text), expected);
        }

        #[test]
        fn long_segments_are_found_at_their_first_match(
            len in 20usize..200, before in 0usize..150, wildcard in any::<prop::sample::Index>(),
        ) {
            // Nearly periodic, so that wrong backtracking would miss it.
            let mut segment: Vec<u8> = (0..len).map(|i| b"ab"[usize::from(i % 7 == 3)]).collect();
            let text = [&b"a".repeat(before)[..], &segment, b"tail"].concat();
            segment[wildcard.index(len)] = b'?';
            let pattern = [b"*", &segment[..], b"*"].concat();
            prop_assert!(matches(&pattern, &text));
            let classes = Pattern::new(&segment).first;
            let first = text.windows(len).position(|window| is_match(&classes, window));
            prop_assert_eq!(Searcher::new(classes).find(&text), first.map(|at| at + len));
            let pattern = [&pattern[..], b"x*"].concat();
            prop_assert!(!matches(&pattern, &text));
        }
    }

    #[test]
    fn pattern_examples_match() {
        let cases: &[(&str, &str, bool)] = &[
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("**", "anything", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbbd", false),
            ("*a*b*", "xxaxxbxx", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[a-c]llo", "hdllo", false),
            (r"\*", "*", true),
            (r"\*", "a", false),
            (r"[\]]", "]", true),
            ("[a", "a", true),
            ("[a", "b", false),
            (r"a\", "a\\", true),
            ("*[0-9]", "key7", true),
            ("*[0-9]", "key", false),
            ("a?", "a", false),
            ("a*", "a", true),
        ];
        for &(pattern, text, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    /// Linear-time bound: a pattern of 50 KB once took 150 µs for a short key.
    #[test]
    fn pattern_matching_takes_linear_time() {
        let texts = [b"key:00001234".to_vec(), b"a".repeat(65_536)];
        let mut halves = b"*".to_vec();
        halves.extend(b"a".repeat(25_000));
        halves.extend(b"b*");
        let patterns = [
            b"a*".repeat(25_000),
            b"*a".repeat(25_000),
            b"*".repeat(50_000),
            [&b"["[..], &b"ab".repeat(25_000), b"]*x"].concat(),
            [&b"*a"[..], &b"?".repeat(50_000)].concat(),
            halves,
            [&b"*a*b".repeat(12_500)[..], b"*"].concat(),
        ];
        for (number, pattern) in patterns.iter().enumerate() {
            let pattern = Pattern::new(pattern);
            let fastest = |text: &[u8], matches| {
                let time = |_| {
                    let begun = Instant::now();
                    for _ in 0..matches {
                        pattern.matches(text);
                    }
                    begun.elapsed()
                };
                // On a loaded machine few tries run undisturbed.
                (0..5).map(time).min().expect("there were five")
            };
            let took = fastest(&texts[0], 1000);
            assert!(took < Duration::from_millis(20), "pattern {number}, short text: {took:?}");
            let took = fastest(&texts[1], 1);
            assert!(took < Duration::from_secs(20), "pattern {number}, long text: {took:?}");
        }
    }

    #[test]
    fn literal_prefix_ends_at_the_first_special_byte() {
        assert_eq!(literal_prefix(b"user:*"), b"user:");
        assert_eq!(literal_prefix(b"plain"), b"plain");
        assert_eq!(literal_prefix(b"[a]b"), b"");
    }
}
