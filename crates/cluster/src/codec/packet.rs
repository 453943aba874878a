//! The frames of packets.
//!
//! The `raft` crate's own encoding is not used: its protobuf decoder has an advisory
//! (RUSTSEC-2024-0437), and these bytes come from the network.

use raft::eraftpb::{Message, MessageType};
use siltstone_table::fixed::{take_u32, take_u64};

use super::{FrameError, kind, malformed};
use crate::applied::{push_members, take_members};
use crate::log::{push_entries, take_bytes, take_entries, take_u8};
use crate::packet::{
    Chunk, ChunkAck, Envelope, NodeMessage, Packet, Register, Registered, Row, StreamId,
};
use crate::packet::{ForgottenState, Start, StartId, Started};

/// The types of messages by their numbers. Those that a node sends to itself alone are not here.
const TYPES: [(u8, MessageType); 14] = [
    (2, MessageType::MsgPropose),
    (3, MessageType::MsgAppend),
    (4, MessageType::MsgAppendResponse),
    (5, MessageType::MsgRequestVote),
    (6, MessageType::MsgRequestVoteResponse),
    (7, MessageType::MsgSnapshot),
    (8, MessageType::MsgHeartbeat),
    (9, MessageType::MsgHeartbeatResponse),
    (13, MessageType::MsgTransferLeader),
    (14, MessageType::MsgTimeoutNow),
    (15, MessageType::MsgReadIndex),
    (16, MessageType::MsgReadIndexResp),
    (17, MessageType::MsgRequestPreVote),
    (18, MessageType::MsgRequestPreVoteResponse),
];

/// About how many bytes a packet's body takes.
pub fn packet_bytes(packet: &Packet) -> usize {
    let message = |message: &Message| {
        let entries = message.get_entries().iter();
        100 + entries.map(|entry| 20 + entry.data.len() + entry.context.len()).sum::<usize>()
    };
    match packet {
        Packet::Raft(raft) => message(raft),
        Packet::Chunk(chunk) => {
            let rows = chunk.rows.iter().map(|row| 20 + row.key.len() + row.value.len());
            100 + rows.sum::<usize>() + chunk.last.as_deref().map_or(0, message)
        }
        Packet::Message(message) => 100 + message.bytes.len(),
        Packet::Ack(_) | Packet::Register(_) | Packet::Registered(_) => 100,
        Packet::Start(_) | Packet::Started(_) => 100,
    }
}

/// The first version of the protocol that has such a packet.
pub fn first_version(packet: &Packet) -> u16 {
    match packet {
        Packet::Raft(_) | Packet::Chunk(_) | Packet::Ack(_) => 1,
        Packet::Register(_) | Packet::Registered(_) => 2,
        Packet::Message(_) => 4,
        Packet::Start(_) | Packet::Started(_) => 5,
    }
}

/// Appends the body of a packet.
pub fn encode_packet(out: &mut Vec<u8>, envelope: &Envelope) {
    let Envelope { group, directory, packet } = envelope;
    out.push(match packet {
        Packet::Raft(_) => kind::RAFT,
        Packet::Chunk(_) => kind::CHUNK,
        Packet::Ack(_) => kind::ACK,
        Packet::Register(_) => kind::REGISTER,
        Packet::Registered(_) => kind::REGISTERED,
        Packet::Message(_) => kind::MESSAGE,
        Packet::Start(_) => kind::START,
        Packet::Started(_) => kind::STARTED,
    });
    push_numbers(out, [*group, *directory]);
    match packet {
        Packet::Raft(message) => push_message(out, message),
        Packet::Chunk(chunk) => push_chunk(out, chunk),
        Packet::Ack(ack) => {
            push_stream(out, ack.stream);
            push_numbers(out, [ack.from, ack.next]);
        }
        Packet::Register(Register { from, to }) => push_numbers(out, [*from, *to]),
        Packet::Registered(Registered { from, to, directory, is_committed }) => {
            push_numbers(out, [*from, *to, *directory]);
            out.push(u8::from(*is_committed));
        }
        Packet::Message(NodeMessage { from, to, bytes }) => {
            push_numbers(out, [*from, *to]);
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
        Packet::Start(start) => {
            let Start { from, to, id: StartId { number, random }, .. } = *start;
            push_numbers(out, [from, to, number, random, start.process]);
            push_numbers(out, [start.term, start.vote, start.last]);
        }
        Packet::Started(Started { from, to, process, forgotten }) => {
            push_numbers(out, [*from, *to, *process]);
            let (code, value) = match *forgotten {
                None => (0, 0),
                Some(ForgottenState::Start(number)) => (1, number),
                Some(ForgottenState::Term(term)) => (2, term),
                Some(ForgottenState::Vote(term)) => (3, term),
                Some(ForgottenState::Entry(index)) => (4, index),
            };
            out.push(code);
            push_numbers(out, [value]);
        }
    }
}

/// Decodes the body of a packet.
///
/// # Errors
/// `Malformed`.
pub fn decode_packet(body: &[u8]) -> Result<Envelope, FrameError> {
    let at = &mut &*body;
    let mut decode = || {
        let kind = take_u8(at)?;
        let (group, directory) = (take_u64(at)?, take_u64(at)?);
        let packet = match kind {
            kind::RAFT => Packet::Raft(take_message(at)?),
            kind::CHUNK => Packet::Chunk(take_chunk(at)?),
            kind::ACK => {
                let stream = take_stream(at)?;
                Packet::Ack(ChunkAck { stream, from: take_u64(at)?, next: take_u64(at)? })
            }
            kind::REGISTER => Packet::Register(Register { from: take_u64(at)?, to: take_u64(at)? }),
            kind::REGISTERED => Packet::Registered(Registered {
                from: take_u64(at)?,
                to: take_u64(at)?,
                directory: take_u64(at)?,
                is_committed: take_flag(at)?,
            }),
            kind::MESSAGE => {
                let (from, to) = (take_u64(at)?, take_u64(at)?);
                let len = take_u32(at)? as usize;
                let bytes = take_bytes(at, len)?.to_vec();
                Packet::Message(NodeMessage { from, to, bytes })
            }
            kind::START => Packet::Start(Start {
                from: take_u64(at)?,
                to: take_u64(at)?,
                id: StartId { number: take_u64(at)?, random: take_u64(at)? },
                process: take_u64(at)?,
                term: take_u64(at)?,
                vote: take_u64(at)?,
                last: take_u64(at)?,
            }),
            kind::STARTED => {
                let (from, to, process) = (take_u64(at)?, take_u64(at)?, take_u64(at)?);
                let (code, value) = (take_u8(at)?, take_u64(at)?);
                let forgotten = match code {
                    0 => None,
                    1 => Some(ForgottenState::Start(value)),
                    2 => Some(ForgottenState::Term(value)),
                    3 => Some(ForgottenState::Vote(value)),
                    4 => Some(ForgottenState::Entry(value)),
                    _ => return None,
                };
                Packet::Started(Started { from, to, process, forgotten })
            }
            _ => return None,
        };
        at.is_empty().then_some(Envelope { group, directory, packet })
    };
    decode().ok_or_else(|| malformed(body))
}

fn push_message(out: &mut Vec<u8>, message: &Message) {
    let number = TYPES.iter().find(|(_, of)| *of == message.get_msg_type());
    // No receiver decodes 0.
    out.push(number.map_or(0, |(number, _)| *number));
    push_numbers(out, [message.to, message.from, message.term, message.log_term, message.index]);
    push_numbers(out, [message.commit, message.commit_term, message.reject_hint]);
    push_numbers(out, [message.request_snapshot, message.priority as u64]);
    push_numbers(out, [message.deprecated_priority]);
    out.push(u8::from(message.reject));
    out.extend_from_slice(&(message.context.len() as u32).to_le_bytes());
    out.extend_from_slice(&message.context);
    let entries = message.get_entries();
    push_entries(out, entries.first().map_or(0, |entry| entry.index), entries.iter());
    out.push(u8::from(message.has_snapshot()));
    if message.has_snapshot() {
        let metadata = message.get_snapshot().get_metadata();
        push_numbers(out, [metadata.index, metadata.term]);
        push_members(out, metadata.get_conf_state());
    }
}

fn take_message(at: &mut &[u8]) -> Option<Message> {
    let mut message = Message::default();
    let number = take_u8(at)?;
    let (_, msg_type) = TYPES.iter().find(|(of, _)| *of == number)?;
    message.set_msg_type(*msg_type);
    (message.to, message.from, message.term) = (take_u64(at)?, take_u64(at)?, take_u64(at)?);
    (message.log_term, message.index) = (take_u64(at)?, take_u64(at)?);
    (message.commit, message.commit_term) = (take_u64(at)?, take_u64(at)?);
    (message.reject_hint, message.request_snapshot) = (take_u64(at)?, take_u64(at)?);
    message.priority = take_u64(at)? as i64;
    message.deprecated_priority = take_u64(at)?;
    message.reject = take_flag(at)?;
    let context = take_u32(at)? as usize;
    message.context = take_bytes(at, context)?.to_vec().into();
    message.set_entries(take_entries(at)?.into());
    if take_flag(at)? {
        let metadata = message.mut_snapshot().mut_metadata();
        (metadata.index, metadata.term) = (take_u64(at)?, take_u64(at)?);
        metadata.set_conf_state(take_members(at)?);
    }
    Some(message)
}

fn push_chunk(out: &mut Vec<u8>, chunk: &Chunk) {
    push_stream(out, chunk.stream);
    push_numbers(out, [chunk.to, chunk.term, chunk.sequence]);
    out.extend_from_slice(&(chunk.rows.len() as u32).to_le_bytes());
    for Row { key, value, expires_at } in &chunk.rows {
        out.extend_from_slice(&(key.len() as u32).to_le_bytes());
        out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        out.push(u8::from(expires_at.is_some()));
        push_numbers(out, [expires_at.unwrap_or_default()]);
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }
    out.push(u8::from(chunk.last.is_some()));
    if let Some(message) = &chunk.last {
        push_message(out, message);
    }
}

fn take_chunk(at: &mut &[u8]) -> Option<Chunk> {
    let stream = take_stream(at)?;
    let (to, term, sequence) = (take_u64(at)?, take_u64(at)?, take_u64(at)?);
    let count = take_u32(at)?;
    let mut rows = Vec::new();
    for _ in 0..count {
        let (key, value) = (take_u32(at)? as usize, take_u32(at)? as usize);
        let (expires, expires_at) = (take_flag(at)?, take_u64(at)?);
        rows.push(Row {
            key: take_bytes(at, key)?.to_vec(),
            value: take_bytes(at, value)?.to_vec(),
            expires_at: expires.then_some(expires_at),
        });
    }
    let last = match take_flag(at)? {
        true => Some(Box::new(take_message(at)?)),
        false => None,
    };
    Some(Chunk { stream, to, term, sequence, rows, last })
}

fn push_stream(out: &mut Vec<u8>, stream: StreamId) {
    push_numbers(out, [stream.node, stream.incarnation, stream.number]);
}

fn take_stream(at: &mut &[u8]) -> Option<StreamId> {
    Some(StreamId { node: take_u64(at)?, incarnation: take_u64(at)?, number: take_u64(at)? })
}

fn push_numbers<const N: usize>(out: &mut Vec<u8>, numbers: [u64; N]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

fn take_flag(at: &mut &[u8]) -> Option<bool> {
    match take_u8(at)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}
