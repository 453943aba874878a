//! The format of the frames that nodes exchange over TCP.
//!
//! A connection carries packets in one direction, from the node that opened it. All integers are
//! little endian. The checksum is a CRC-32C of the length and the body.
//!
//! ```text
// ANCHOR: layout
//! connection := hello frame ─▶   ◀─ hello frame, answer frame   then packets and pings ─▶
//!
//! frame   := body_len:u32  checksum:u32  body
//! body    := 1:u8 hello | 2:u8 answer | 3:u8 (a ping) | 4:u8 raft | 5:u8 chunk | 6:u8 ack
//!          | 7:u8 register | 8:u8 registered             of version 2
//!          | 9:u8 publication                           of version 3
//!          | 10:u8 message of a node                    of version 4
//!          | 11:u8 start | 12:u8 started               of version 5
//!
//! hello   := "SILTNODE"  oldest_version:u16  newest_version:u16  cluster:u64  from:u64  to:u64
//!            process:u64  address_len:u16  address      of clients
//!            groups:u32              absent: one group
//!            count:u16  directory[count]      absent: none; later versions may add bytes
//! directory := group:u64  own:u64  0:u8 | 1:u8 of_receiver:u64       as the group has committed it
//! answer  := refusal_len:u16  refusal                   empty: the connection is accepted
//!
//! raft    := group:u64  directory:u64  message         directory of the sender: a random id
//! message := type:u8  to:u64  from:u64  term:u64  log_term:u64  index:u64  commit:u64
//!            commit_term:u64  reject_hint:u64  request_snapshot:u64  priority:u64
//!            old_priority:u64  reject:u8  context_len:u32  context  entries  snapshot
//! entries := as in the log
//! snapshot := 0:u8 | 1:u8  index:u64  term:u64  members          members as in the table's row
//!
//! chunk   := group:u64  directory:u64  stream  to:u64  term:u64  sequence:u64
//!            row_count:u32  row[row_count]  0:u8 | 1:u8 message
//! stream  := node:u64  incarnation:u64  number:u64
//! row     := key_len:u32  value_len:u32  expires:u8  expires_at:u64  key  value
//! ack     := group:u64  directory:u64  stream  from:u64  next:u64
//! register   := group:u64  directory:u64  from:u64  to:u64
//! registered := group:u64  directory:u64  from:u64  to:u64  of_receiver:u64  is_committed:u8
//! publication := channel_len:u32  channel  message    to the end of the body; of no group
//! message of a node := group:u64  directory:u64  from:u64  to:u64  len:u32  bytes[len]
//! start   := group:u64  directory:u64  from:u64  to:u64  number:u64  random:u64  process:u64
//!            term:u64  vote:u64  last_index:u64
//! started := group:u64  directory:u64  from:u64  to:u64  process:u64  forgotten:u8  value:u64
//!            forgotten: 0 nothing | 1 a start | 2 a term | 3 a vote | 4 an entry, by number
// ANCHOR_END: layout
//! ```
//!
//! The newest version is 5. A node does not send what the receiver's version does not have.
//!
//! A receiver reads no more than the length that it allows, takes memory as bytes arrive, and
//! rejects a frame whose checksum or structure is wrong. The decoded form of a frame takes up to
//! eight times its length.

mod hello;
mod packet;
mod publication;
#[cfg(test)]
mod tests;

use std::io::{self, Read};

pub use hello::{Answer, Hello, HelloDirectory};
pub use packet::{decode_packet, encode_packet, first_version, packet_bytes};
pub use publication::{PUBLICATION_VERSION, decode_publication, push_publication};

/// The largest body of a frame, in bytes.
pub const MAX_BODY_BYTES: usize = 64 << 20;
/// The largest body of a hello or an answer, in bytes.
pub const MAX_HELLO_BYTES: usize = 4096;
/// The length and the checksum.
const HEADER_BYTES: usize = 8;

/// The kind of a body: its first byte.
pub(crate) mod kind {
    pub(crate) const HELLO: u8 = 1;
    pub(crate) const ANSWER: u8 = 2;
    pub(crate) const PING: u8 = 3;
    pub(crate) const RAFT: u8 = 4;
    pub(crate) const CHUNK: u8 = 5;
    pub(crate) const ACK: u8 = 6;
    pub(crate) const REGISTER: u8 = 7;
    pub(crate) const REGISTERED: u8 = 8;
    pub(crate) const PUBLICATION: u8 = 9;
    pub(crate) const MESSAGE: u8 = 10;
    pub(crate) const START: u8 = 11;
    pub(crate) const STARTED: u8 = 12;
}

/// Why bytes are no frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The connection has failed or ended.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The frame is longer than the receiver allows.
    #[error("a frame of {bytes} bytes is over the limit of {limit}")]
    TooLong {
        /// Its body.
        bytes: u64,
        /// The limit.
        limit: usize,
    },
    /// The checksum does not match.
    #[error("the checksum of a frame does not match")]
    Checksum,
    /// The body is not what the format says.
    #[error("a frame of kind {kind} is malformed")]
    Malformed {
        /// The body's first byte.
        kind: u8,
    },
}

/// Appends a frame. The body is what `push` appends; `false` if that is too long: then nothing is
/// appended.
pub fn push_frame(out: &mut Vec<u8>, push: impl FnOnce(&mut Vec<u8>)) -> bool {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    push(out);
    let body = start + HEADER_BYTES;
    let len = out.len() - body;
    if len > MAX_BODY_BYTES {
        out.truncate(start);
        return false;
    }
    let len = (len as u32).to_le_bytes();
    let checksum = checksum(len, &out[body..]).to_le_bytes();
    out[start..start + 4].copy_from_slice(&len);
    out[start + 4..body].copy_from_slice(&checksum);
    true
}

/// Appends a ping, which shows that its sender is alive.
pub fn push_ping(out: &mut Vec<u8>) {
    push_frame(out, |out| out.push(kind::PING));
}

/// Whether the body is a ping.
pub fn is_ping(body: &[u8]) -> bool {
    body == [kind::PING]
}

/// Reads a frame's body, of up to `limit` bytes, into `body`.
///
/// # Errors
/// As [`FrameError`] says; `UnexpectedEof` if the connection has ended.
pub fn read_frame(
    from: &mut impl Read,
    body: &mut Vec<u8>,
    limit: usize,
) -> Result<(), FrameError> {
    let mut header = [0; HEADER_BYTES];
    from.read_exact(&mut header)?;
    let [l0, l1, l2, l3, c0, c1, c2, c3] = header;
    let (len, expected) = ([l0, l1, l2, l3], u32::from_le_bytes([c0, c1, c2, c3]));
    let bytes = u64::from(u32::from_le_bytes(len));
    if bytes > limit as u64 {
        return Err(FrameError::TooLong { bytes, limit });
    }
    body.clear();
    // Memory grows as bytes arrive: the length may be wrong.
    from.take(bytes).read_to_end(body)?;
    if (body.len() as u64) < bytes {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    match checksum(len, body) == expected {
        true => Ok(()),
        false => Err(FrameError::Checksum),
    }
}

fn checksum(len: [u8; 4], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&len), body)
}

pub(crate) fn malformed(body: &[u8]) -> FrameError {
    FrameError::Malformed { kind: body.first().copied().unwrap_or_default() }
}
