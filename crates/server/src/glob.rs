//! Patterns of SCAN and KEYS: `*`, `?`, `[a-z]`, `[^a]`, and `\` before any of them.
//!
//! A `*` is first taken to match nothing; on a mismatch the text is tried one byte further from the
//! last `*`. Earlier stars never need to be tried again, because what a later one can reach from
//! there it can reach from here. So the cost is at most pattern × text, with no recursion.
//!
//! Invariant: any bytes are a pattern; one that is cut off (`[a`, a final `\`) matches as Redis
//! would have it.
//!
//! Source: the documentation of Redis's KEYS command; the two-pointer walk is folklore.

/// Whether `text` matches `pattern`, whole.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Behind the last star, and how far the text was taken there.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let step = match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                retry = Some((p, t));
                continue;
            }
            Some(_) => match text.get(t) {
                Some(&byte) => one(&pattern[p..], byte),
                // The text is used up and the pattern wants more.
                None => return false,
            },
            None if t == text.len() => return true,
            None => None,
        };
        match (step, retry) {
            (Some(used), _) => {
                p += used;
                t += 1;
            }
            (None, Some((behind, taken))) if taken < text.len() => {
                retry = Some((behind, taken + 1));
                (p, t) = (behind, taken + 1);
            }
            (None, _) => return false,
        }
    }
}

/// The part of the pattern before its first special byte: every match begins with it.
pub(crate) fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let special = pattern.iter().position(|byte| b"*?[\\".contains(byte));
    &pattern[..special.unwrap_or(pattern.len())]
}

/// How many bytes of the pattern match `byte`; `None` if they don't. The pattern begins with none
/// of `*` and the end.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern[0] {
        b'?' => Some(1),
        b'[' => class(pattern, byte),
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
        literal => (literal == byte).then_some(1),
    }
}

/// As [`one`], for a pattern that begins with `[`. A class without `]` goes on to the end.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let is_negated = pattern.get(1) == Some(&b'^');
    let mut at = 1 + usize::from(is_negated);
    let mut found = false;
    while at < pattern.len() && pattern[at] != b']' {
        match pattern[at..] {
            [b'\\', literal, ..] => {
                found |= literal == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                found |= (low.min(high)..=low.max(high)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= literal == byte;
                at += 1;
            }
            [] => {}
        }
    }
    let used = (at + 1).min(pattern.len());
    (found != is_negated).then_some(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_pattern() {
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

    #[test]
    fn many_stars_do_not_explode() {
        let pattern = b"a*".repeat(5000);
        let text = b"a".repeat(9999);
        assert!(matches(&pattern, &text));
        let mut pattern = b"*a".repeat(200);
        pattern.push(b'b');
        assert!(!matches(&pattern, &b"a".repeat(20_000)));
    }

    #[test]
    fn the_literal_prefix_ends_at_the_first_special_byte() {
        assert_eq!(literal_prefix(b"user:*"), b"user:");
        assert_eq!(literal_prefix(b"plain"), b"plain");
        assert_eq!(literal_prefix(b"[a]b"), b"");
    }
}
