//! Values and dump files in Redis's format (RDB): the payloads of DUMP and RESTORE, and `dump.rdb`.
//!
//! ```text
//!   payload, file ──▶ source ──▶ value ──▶ store ──▶ collections of a table
//!                                  │
//!                     listpack, ziplist, zipmap, intset, stream: within strings
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`error`] | errors with the offset in the input |
//! | [`mod@crc64`], `lzf` | checksum, decompression |
//! | `source`, `sink` | numbers, lengths and strings, read and written |
//! | `packed`, `listpack`, `ziplist`, `zipmap`, `intset` | small collections in one string |
//! | `modules` | names of module types |
//! | [`stream`], `stream_node`, [`value`], `expiring_hash` | values, byte by byte |
//! | [`payload`] | DUMP and RESTORE |
//! | [`libraries`] | FUNCTION DUMP and FUNCTION RESTORE |
//! | [`mod@file`] | whole dump files |
//! | [`store`] | values from and to the collections of a table |
//!
//! All encodings up to version 12 (Redis 7.4) are read, except values of modules. Values are
//! written as Redis 7.0 writes them, and hashes whose fields expire as Redis 7.4 does, without
//! compression. The layout is drawn byte by byte where it is read.
//!
//! Invariant: no input causes a panic, and memory stays within the limit that a reader gives.
//!
//! Source: the format as Redis documents it in its sources and files; no code of it.

#![warn(missing_debug_implementations)]

pub mod crc64;
pub mod error;
mod expiring_hash;
pub mod file;
mod intset;
pub mod libraries;
mod listpack;
mod lzf;
mod modules;
mod packed;
pub mod payload;
#[cfg(test)]
mod random_values;
mod sink;
mod source;
pub mod store;
pub mod stream;
mod stream_node;
pub mod value;
mod ziplist;
mod zipmap;

pub use error::{Error, Result};
pub use file::{DumpFile, Entry, Item};
pub use payload::WRITTEN_VERSION;
pub use siltstone_collections::Encoding;
pub use store::StoreError;
pub use stream::{PendingEntry, Stream, StreamConsumer, StreamEntry, StreamGroup};
pub use value::{ExpiringField, MAX_VERSION, Value};
