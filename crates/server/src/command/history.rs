//! Values as they were: GETAT, of tables that keep history.
//!
//! ```text
//!   GETAT key 1800000000000     at that time, in milliseconds since 1970
//!   GETAT key -10s              so long ago
//! ```
//!
//! Nothing of Redis's: it has no history. Writes of a transaction that is running are not in the past, and not seen.
//!
//! Source: ours.

use siltstone_engine::Timestamp;
use siltstone_engine::options::parse_duration;

use super::{Command, Context, Failure, ONE_KEY, Outcome, READ};
use crate::resp::{Args, number};

pub(super) fn commands() -> Vec<Command> {
    let summary = "Returns the value that a key had at a time.";
    vec![super::command("string", "getat", 3, READ, ONE_KEY, getat, summary)]
}

fn getat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let time = moment(&args[2], context.now())?;
    let entry = context.get_at(&args[1], time)?;
    context.replies.bulk_or_null(entry.as_ref().map(|entry| entry.value.as_slice()));
    Ok(())
}

/// A moment as milliseconds since 1970, or as a duration before now.
fn moment(word: &[u8], now: Timestamp) -> Result<Timestamp, Failure> {
    let ago = word.strip_prefix(b"-").and_then(|ago| std::str::from_utf8(ago).ok());
    let moment = match ago {
        Some(ago) => parse_duration(ago)
            .ok()
            .map(|ago| now.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX))),
        None => number::parse_u64(word),
    };
    moment.ok_or_else(|| {
        let word = String::from_utf8_lossy(&word[..word.len().min(128)]);
        let text = format!(
            "ERR '{word}' is not a time; give milliseconds since 1970, or -10s for ten seconds ago"
        );
        Failure::Words(text.into())
    })
}
