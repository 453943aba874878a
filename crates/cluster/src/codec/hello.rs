//! The first frames of a connection, by which both sides learn who the other is.

use siltstone_table::fixed::{take_u32, take_u64};

use super::{FrameError, kind, malformed};
use crate::log::{take_bytes, take_u8};

const MAGIC: &[u8; 8] = b"SILTNODE";
/// The longest address or refusal, in bytes.
const MAX_TEXT_BYTES: usize = 1024;

/// Who a node is, and whom it means to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The oldest and the newest version of the format that it speaks.
    pub versions: (u16, u16),
    /// The cluster.
    pub cluster: u64,
    /// The node that speaks.
    pub from: u64,
    /// The node that it means to reach.
    pub to: u64,
    /// A random number of the process that speaks.
    pub process: u64,
    /// Where it serves clients; empty if nowhere.
    pub client_address: String,
    /// The number of groups of the cluster.
    pub groups: u32,
    /// The directories of both nodes in each group of the one that speaks.
    pub directories: Vec<HelloDirectory>,
}

/// The directories of two nodes in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelloDirectory {
    /// The group.
    pub group: u64,
    /// That of the node that speaks.
    pub own: u64,
    /// That of the node that it means to reach, if the group has committed it.
    pub of_receiver: Option<u64>,
}

/// The answer to a hello: why the connection is refused, or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The reason.
    pub refusal: Option<String>,
}

impl Hello {
    /// Appends the body.
    pub fn push(&self, out: &mut Vec<u8>) {
        out.push(kind::HELLO);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.versions.0.to_le_bytes());
        out.extend_from_slice(&self.versions.1.to_le_bytes());
        for number in [self.cluster, self.from, self.to, self.process] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        push_text(out, &self.client_address);
        out.extend_from_slice(&self.groups.to_le_bytes());
        out.extend_from_slice(&(self.directories.len() as u16).to_le_bytes());
        for HelloDirectory { group, own, of_receiver } in &self.directories {
            out.extend_from_slice(&group.to_le_bytes());
            out.extend_from_slice(&own.to_le_bytes());
            out.push(u8::from(of_receiver.is_some()));
            of_receiver.iter().for_each(|directory| {
                out.extend_from_slice(&directory.to_le_bytes());
            });
        }
    }

    /// Decodes a body. What a later version has added is ignored.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn decode(body: &[u8]) -> Result<Self, FrameError> {
        let at = &mut &*body;
        let mut decode = || {
            (take_u8(at)? == kind::HELLO && take_bytes(at, 8)? == MAGIC).then_some(())?;
            Some(Hello {
                versions: (take_u16(at)?, take_u16(at)?),
                cluster: take_u64(at)?,
                from: take_u64(at)?,
                to: take_u64(at)?,
                process: take_u64(at)?,
                client_address: take_text(at)?,
                // Earlier versions have one group and do not say so.
                groups: if at.is_empty() { 1 } else { take_u32(at)? },
                directories: if at.is_empty() { Vec::new() } else { take_directories(at)? },
            })
        };
        decode().ok_or_else(|| malformed(body))
    }
}

impl Answer {
    /// Appends the body.
    pub fn push(&self, out: &mut Vec<u8>) {
        out.push(kind::ANSWER);
        push_text(out, self.refusal.as_deref().unwrap_or_default());
    }

    /// Decodes a body. What a later version has added is ignored.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn decode(body: &[u8]) -> Result<Self, FrameError> {
        let at = &mut &*body;
        let mut decode = || {
            (take_u8(at)? == kind::ANSWER).then_some(())?;
            take_text(at)
        };
        let text = decode().ok_or_else(|| malformed(body))?;
        Ok(Answer { refusal: Some(text).filter(|text| !text.is_empty()) })
    }
}

/// Appends a text, cut at the limit.
fn push_text(out: &mut Vec<u8>, text: &str) {
    let mut len = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    out.extend_from_slice(&(len as u16).to_le_bytes());
    out.extend_from_slice(&text.as_bytes()[..len]);
}

fn take_text(at: &mut &[u8]) -> Option<String> {
    let len = usize::from(take_u16(at)?);
    let bytes = take_bytes(at, len)?;
    String::from_utf8(bytes.to_vec()).ok().filter(|_| len <= MAX_TEXT_BYTES)
}

fn take_directories(at: &mut &[u8]) -> Option<Vec<HelloDirectory>> {
    let count = take_u16(at)?;
    let mut take = || {
        let (group, own) = (take_u64(at)?, take_u64(at)?);
        let of_receiver = match take_u8(at)? {
            0 => None,
            1 => Some(take_u64(at)?),
            _ => return None,
        };
        Some(HelloDirectory { group, own, of_receiver })
    };
    (0..count).map(|_| take()).collect()
}

fn take_u16(at: &mut &[u8]) -> Option<u16> {
    let (value, rest) = at.split_first_chunk()?;
    *at = rest;
    Some(u16::from_le_bytes(*value))
}
