//! Encryption at rest: a [`Vfs`](crate::Vfs) that encrypts every file of a store.
//!
//! ```text
//!   engines, catalogue      plaintext, with their own checksums, offsets and torn tails
//!   ────────────────────
//!   EncryptedVfs            header │ frame frame … │ frame │ frame …         one frame per append
//!   ────────────────────                                                   and block of 4 KiB
//!   Disk                    ciphertext
//! ```
//!
//! A file has a random key of its own, which its header holds, wrapped by a master key from the
//! caller's [`KeyProvider`]. So a master key is changed by writing headers
//! ([`EncryptedVfs::rewrap`]), not contents.
//!
//! | module | content |
//! | --- | --- |
//! | `key` | master keys, and where they come from |
//! | `header` | the header: the wrapped key, bound to the file's path in the store |
//! | `frame` | frames: the authenticated pieces of a file |
//! | `content` | a file: its end, appends, truncation |
//! | `read` | reads by offset |
//! | `recover` | the authentic frames of a damaged or torn file |
//! | `directory` | the directory and its handles |
//!
//! What the engines rely on:
//!
//! * *Synced bytes never change.* A write appends frames and changes no earlier byte.
//! * *A torn tail is distinguished from damage* by the log's own evidence, which is in its
//!   plaintext. [`File::read_lossy_at`](crate::File::read_lossy_at) shows the log what is authentic,
//!   at its offsets, and fills the rest.
//! * *Damage is found.* Each byte of a frame, its place and its file are authenticated. Every other
//!   read of damaged bytes is `Corruption`.
//!
//! Limits: files grow by appends of the process that created them; there are no overwrites, holes
//! and mappings. An old state of a file that is put back, as a whole, is authentic.

mod content;
mod directory;
mod frame;
mod header;
mod key;
mod read;
mod recover;
#[cfg(test)]
mod tests;

pub use directory::EncryptedVfs;
pub use key::{KEY_BYTES, KeyId, KeyProvider, KeyRing, MasterKey};

pub(crate) use crate::ENCRYPTED_MAGIC as MAGIC;
