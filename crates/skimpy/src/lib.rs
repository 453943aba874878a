//! multi-version engine (doc to come)

mod cache;
mod chains;
mod checkpoint;
mod copy;
mod cursor;
mod device;
mod engine;
mod ftl;
mod history;
mod inspect;
mod keys;
mod location;
mod log;
mod mapping;
mod options;
mod page;
mod pending;
mod pins;
mod record;
mod recover;
mod space;
mod stage;
mod stats;
mod tail;
mod timestamp;
mod verify;
mod versions;
mod write;

pub use engine::Skimpy;
pub use inspect::inspect;
pub use options::{Mapping, Options};

/// The largest value: 1 MiB, so that one write leaves room for others on the device.
pub const MAX_VALUE_BYTES: usize = 1 << 20;
