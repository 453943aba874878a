//! LCS: the longest common subsequence of two strings.
//!
//! A table of all pairs of prefixes, four bytes per pair, is bounded by `--max-request`.
//!
//! Source: the documentation of Redis's LCS; replies of Redis 7.2.

use super::context::Context;
use super::definition::{READ, TWO_KEYS};
use super::elements::{integer, is};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, SYNTAX, reply_error};
use crate::resp::Args;

pub(super) fn commands() -> Vec<Command> {
    let summary = "Returns the longest common subsequence of two values.";
    vec![entry::command("string", "lcs", -3, READ, TWO_KEYS, lcs, summary)]
}

/// Lengths of the longest common subsequences of all prefixes.
struct Lengths {
    cells: Vec<u32>,
    width: usize,
}

impl Lengths {
    fn new(a: &[u8], b: &[u8], max_bytes: usize) -> Result<Self, Failure> {
        let width = b.len() + 1;
        let cells = (a.len() + 1).saturating_mul(width);
        if cells.saturating_mul(size_of::<u32>()) > max_bytes {
            return Err(reply_error(
                "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
            ));
        }
        let mut lengths = Lengths { cells: vec![0; cells], width };
        for (i, x) in a.iter().enumerate() {
            for (j, y) in b.iter().enumerate() {
                let longest = match x == y {
                    true => lengths.at(i, j) + 1,
                    false => lengths.at(i, j + 1).max(lengths.at(i + 1, j)),
                };
                lengths.cells[(i + 1) * width + j + 1] = longest;
            }
        }
        Ok(lengths)
    }

    /// The length for the first `i` bytes of one and the first `j` of the other string.
    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }
}

/// A run of equal bytes: its first positions, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Match {
    a: usize,
    b: usize,
    len: usize,
}

/// The runs that make up the subsequence, the last one first.
fn matches(a: &[u8], b: &[u8], lengths: &Lengths) -> Vec<Match> {
    let mut runs: Vec<Match> = Vec::new();
    let (mut i, mut j) = (a.len(), b.len());
    while i > 0 && j > 0 {
        if a[i - 1] != b[j - 1] {
            match lengths.at(i - 1, j) > lengths.at(i, j - 1) {
                true => i -= 1,
                false => j -= 1,
            }
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.a == i && run.b == j => {
                *run = Match { a: i - 1, b: j - 1, len: run.len + 1 };
            }
            _ => runs.push(Match { a: i - 1, b: j - 1, len: 1 }),
        }
        (i, j) = (i - 1, j - 1);
    }
    runs
}

fn lcs(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut strings = Vec::new();
    // Both are of one moment.
    let guard = context.lock_rows([&args[1], &args[2]].into_iter());
    for key in [&args[1], &args[2]] {
        let stored = context.read_any(key)?;
        if stored.as_ref().is_some_and(|stored| stored.metadata.is_some()) {
            return Err(reply_error("ERR The specified keys must contain string values"));
        }
        strings.push(stored.map(|stored| stored.entry.value).unwrap_or_default());
    }
    drop(guard);
    let (a, b) = (&strings[0], &strings[1]);
    let (mut only_len, mut with_positions, mut with_len, mut min_len) = (false, false, false, 0);
    let mut words = args.from(3).iter();
    while let Some(word) = words.next() {
        match word {
            word if is(word, "idx") => with_positions = true,
            word if is(word, "len") => only_len = true,
            word if is(word, "withmatchlen") => with_len = true,
            word if is(word, "minmatchlen") => {
                let value = integer(words.next().ok_or(SYNTAX)?)?;
                min_len = usize::try_from(value).unwrap_or(0);
            }
            _ => return Err(SYNTAX),
        }
    }
    if only_len && with_positions {
        return Err(reply_error(
            "ERR If you want both the length and indexes, please just use IDX.",
        ));
    }
    let lengths = Lengths::new(a, b, context.shared.options.max_request_bytes)?;
    let len = lengths.at(a.len(), b.len()) as usize;
    let replies = &mut *context.replies;
    if only_len {
        replies.count(len);
        return Ok(());
    }
    let mut runs = matches(a, b, &lengths);
    if !with_positions {
        let common = runs.iter().rev().flat_map(|run| &a[run.a..run.a + run.len]);
        replies.bulk(&common.copied().collect::<Vec<u8>>());
        return Ok(());
    }
    runs.retain(|run| run.len >= min_len);
    replies.map(2);
    replies.bulk(b"matches");
    replies.array(runs.len());
    for Match { a, b, len } in runs {
        replies.array(if with_len { 3 } else { 2 });
        for start in [a, b] {
            replies.array(2);
            replies.count(start);
            replies.count(start + len - 1);
        }
        if with_len {
            replies.count(len);
        }
    }
    replies.bulk(b"len");
    replies.count(len);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsequence_is_common_and_as_long_as_the_table_says() {
        for (a, b, expected) in [
            (&b"ohmytext"[..], &b"mynewtext"[..], &b"mytext"[..]),
            (b"", b"abc", b""),
            (b"abc", b"abc", b"abc"),
            (b"abc", b"xyz", b""),
        ] {
            let lengths = Lengths::new(a, b, 1 << 20).unwrap();
            let runs = matches(a, b, &lengths);
            let side = |string: &[u8], start: fn(&Match) -> usize| -> Vec<u8> {
                let parts = runs.iter().rev().map(|run| &string[start(run)..start(run) + run.len]);
                parts.flatten().copied().collect()
            };
            assert_eq!(side(a, |run| run.a), expected);
            assert_eq!(side(b, |run| run.b), expected);
            assert_eq!(lengths.at(a.len(), b.len()) as usize, expected.len());
        }
        assert!(Lengths::new(b"abc", b"abc", 63).is_err());
    }
}
