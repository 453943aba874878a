//! Hashes, lists, sets, sorted sets and streams over one ordered table, beside its plain keys.
//!
//! ```text
//!   user's key ──▶ metadata: type, version, count        one lookup finds type and expiry
//!                     │
//!                     └─ version ──▶ elements            adjacent rows under a reserved prefix
//! ```
//!
//! Every operation is one atomic batch. Removing, overwriting and expiry change the metadata alone:
//! their cost does not depend on the number of elements. Elements of removed collections are dead
//! ([`Keyspace::is_live`]) until compactions drop them ([`DeadRows`]). A later collection at the
//! same key does not see them, because it has a new version.
//!
//! | module | contents |
//! | --- | --- |
//! | [`layout`] | keys of all rows, byte by byte |
//! | [`metadata`] | the value at the user's key, byte by byte |
//! | [`rows`] | reads of a table and of pending writes |
//! | [`keyspace`] | upgrade of old tables, versions, dead rows |
//! | [`dead_rows`] | the compaction filter that drops dead rows |
//! | [`pending_rows`] | writes that are not applied yet |
//! | `stored_value` | what is stored at a user's key |
//! | `key_metadata` | metadata in memory, which pass from operation to operation |
//! | [`write_set`] | operations collected into one batch |
//! | `whole_keys` | removal, expiry, renaming and copying of keys of any type |
//! | [`collection`] | common base of all types |
//! | [`hash`], [`list`], [`set`], [`sorted_set`] | the types |
//! | [`sorted_set_removal`] | removal of adjacent members of sorted sets |
//! | [`field_expiry`] | expiry of a hash's fields |
//! | [`stream`], [`stream_groups`], [`stream_id`] | streams, their consumer groups, ids of entries |
//! | [`user_keys`] | a cursor over user keys alone |
//! | [`collections`] | the API for programs: locks, one batch per operation |
//!
//! The design is that of Kvrocks and Pika: metadata by key, elements by version.
//!
//! # Limits
//! A field or member has up to 64 KiB less 20 bytes, the limit of keys. Counting members by score
//! and finding ranks costs a step per member.

#![warn(missing_debug_implementations)]

pub mod collection;
pub mod collections;
pub mod dead_rows;
pub mod encoding_limits;
mod error;
pub mod field_expiry;
pub mod hash;
mod key_metadata;
pub mod keyspace;
pub mod layout;
pub mod list;
pub mod metadata;
pub mod pending_rows;
pub mod rows;
pub mod set;
pub mod sorted_set;
pub mod sorted_set_removal;
mod stored_value;
pub mod stream;
pub mod stream_groups;
pub mod stream_id;
pub mod user_keys;
mod whole_keys;
pub mod write_set;

pub use collection::Below;
pub use collections::Collections;
pub use dead_rows::DeadRows;
pub use encoding_limits::{CompactLimit, EncodingLimits};
pub use error::{Error, Result};
pub use field_expiry::ExpiryChange;
pub use hash::Hash;
pub use key_metadata::{KeyMetadata, NextMetadata};
pub use keyspace::Keyspace;
pub use layout::{stored_key, user_key};
pub use list::{End, List};
pub use metadata::{Encoding, FieldExpiry, Kind, Metadata, StreamState};
pub use pending_rows::{PendingRows, ROW_OVERHEAD_BYTES, WrittenRow};
pub use rows::{EngineRows, Order, OverlayRows, Row, Rows, Walk};
pub use set::Set;
pub use sorted_set::{MemberRange, ScoreRange, SortedSet};
pub use sorted_set_removal::MemberSelection;
pub use stored_value::StoredValue;
pub use stream::{Stream, TrimTo, fields};
pub use stream_groups::{Consumer, Group, PendingEntry};
pub use stream_id::StreamId;
pub use user_keys::UserKeys;
pub use write_set::{ExpiredFields, Lookups, WriteSet};
