//! The archive of changes: restores to a point in time, gaps, damage and removal.

#![allow(clippy::unwrap_used)]

mod fixture;
mod gaps;
mod oracle;
mod upkeep;
