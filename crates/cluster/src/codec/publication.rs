//! The frames of published messages.

use siltstone_table::fixed::take_u32;

use super::{FrameError, kind, malformed};
use crate::log::take_bytes;
use crate::publication::Publication;

/// The first version of the protocol that has published messages.
pub const PUBLICATION_VERSION: u16 = 3;

/// Appends the body of a published message.
pub fn push_publication(out: &mut Vec<u8>, publication: &Publication) {
    let Publication { channel, message } = publication;
    out.push(kind::PUBLICATION);
    out.extend_from_slice(&(channel.len() as u32).to_le_bytes());
    out.extend_from_slice(channel);
    out.extend_from_slice(message);
}

/// Decodes the body of a published message; `None` if it is of another kind.
///
/// # Errors
/// `Malformed`.
pub fn decode_publication(body: &[u8]) -> Result<Option<Publication>, FrameError> {
    let Some(mut rest) = body.strip_prefix(&[kind::PUBLICATION]) else { return Ok(None) };
    let at = &mut rest;
    let mut channel = || {
        let len = take_u32(at)? as usize;
        take_bytes(at, len)
    };
    let channel = channel().ok_or_else(|| malformed(body))?.to_vec();
    Ok(Some(Publication { channel, message: rest.to_vec() }))
}
