//! HELP of commands with subcommands, in Redis's format.
//!
//! ```text
//! CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
//! GETNAME
//!     Return the name of the current connection.
//! ...
//! HELP
//!     Prints this help.
//! ```
//!
//! Invariant: the help lists exactly the subcommands that this server has.
//!
//! Source: the replies of Redis 7.0.

use super::failure::Outcome;
use crate::resp::Replies;

/// Writes the help of a command; `lines` are its subcommands without HELP.
pub(super) fn reply(replies: &mut Replies, command: &str, lines: &[&str]) -> Outcome {
    replies.array(lines.len() + 3);
    replies.simple(&format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for line in lines {
        replies.simple(line);
    }
    replies.simple("HELP");
    replies.simple("    Prints this help.");
    Ok(())
}
