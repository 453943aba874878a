//! Access control: users, their passwords, and what they may do.
//!
//! ```text
//!             ┌ on, off, passwords
//!  user alice ┤
//!             └ selectors ─▶ commands (+get -@write)  keys (~app:* %R~shared:*)  channels (&news.*)
//! ```
//!
//! A command is allowed if one of the user's selectors allows the command, all its keys and all its
//! channels. The first selector is the user's own rules, the others were given in parentheses.
//!
//! | module | contents |
//! | --- | --- |
//! | [`categories`] | categories of commands (`@read`) |
//! | [`names`] | commands and subcommands as rules name them |
//! | [`key_access`] | keys and channels of a call, and how it uses them |
//! | [`selector`], [`user`] | what rules allow; a user |
//! | [`rules`] | changes a user by rules |
//! | [`users`] | all users |
//! | [`file`] | the file of users |
//! | [`access`] | the user of a connection |
//! | [`log`] | denied commands and logins |
//!
//! # Invariants
//! - Users are immutable. A change replaces the user and increments the generation, so that each
//!   connection notices it at its next command.
//! - For a connection whose user may do everything the check of a command is one comparison of
//!   generations ([`access::Access::is_free`]).
//! - Passwords are stored and compared as SHA-256 hashes, in constant time.
//! - Rules with a mistake change nothing.
//!
//! Source: the documentation of Redis's access control; error texts of Redis 7.2.

pub(crate) mod access;
pub(crate) mod categories;
mod file;
mod key_access;
pub(crate) mod log;
pub(crate) mod names;
mod rules;
mod selector;
pub(crate) mod user;
pub(crate) mod users;
