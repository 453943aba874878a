//! Historical values: GETAT, on tables that keep history.
//!
//! ```text
//!   GETAT key 1800000000000     at a time, in milliseconds since 1970
//!   GETAT key -10s              ten seconds ago
//! ```
//!
//! Not a Redis command. Writes of the running transaction are not visible to it.

use siltstone_engine::Timestamp;
use siltstone_engine::options::parse_duration;

use super::context::Context;
use super::definition::{ONE_KEY, READ};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome};
use crate::resp::{Args, number};

pub(super) fn commands() -> Vec<Command> {
    let summary = "Returns the value that a key had at a time.";
    vec![entry::command("string", "getat", 3, READ, ONE_KEY, getat, summary)]
}

fn getat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let time = time_ms(&args[2], context.now())?;
    let entry = context.get_at(&args[1], time)?;
    context.replies.bulk_or_null(entry.as_ref().map(|entry| entry.value.as_slice()));
    Ok(())
}

/// Parses milliseconds since 1970, or a duration before now.
fn time_ms(word: &[u8], now: Timestamp) -> Result<Timestamp, Failure> {
    let ago = word.strip_prefix(b"-").and_then(|ago| std::str::from_utf8(ago).ok());
    let time_ms = match ago {
        Some(ago) => parse_duration(ago)
            .ok()
            .map(|ago| now.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX))),
        None => number::parse_u64(word),
    };
    time_ms.ok_or_else(|| {
        let word = String::from_utf8_lossy(&word[..word.len().min(128)]);
        let text = format!(
            "ERR '{word}' is not a time; give milliseconds since 1970, or -10s for ten seconds ago"
        );
        Failure::Text(text.into())
    })
}
