//! Packets and hellos survive encoding; truncated, changed and random bytes are rejected.

#![allow(clippy::unwrap_used)]

use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType};
use siltstone_testkit::TestRng;

use super::*;
use crate::packet::{
    Chunk, ChunkAck, Envelope, ForgottenState, NodeMessage, Packet, Register, Registered, Row,
    Start, StartId, Started, StreamId,
};
use crate::publication::Publication;

fn random_bytes(rng: &mut TestRng) -> Vec<u8> {
    let len = rng.index(20);
    rng.bytes(len)
}

fn random_nodes(rng: &mut TestRng) -> Vec<u64> {
    (0..rng.below(4)).map(|_| rng.draw()).collect()
}

fn random_message(rng: &mut TestRng) -> Message {
    let mut message = Message::default();
    message.set_msg_type(*rng.pick(&[
        MessageType::MsgAppend,
        MessageType::MsgHeartbeat,
        MessageType::MsgRequestPreVoteResponse,
    ]));
    (message.to, message.from, message.term) = (rng.draw(), rng.draw(), rng.draw());
    (message.log_term, message.index) = (rng.draw(), rng.draw());
    (message.commit, message.commit_term) = (rng.draw(), rng.draw());
    (message.reject_hint, message.request_snapshot) = (rng.draw(), rng.draw());
    (message.priority, message.deprecated_priority) = (rng.draw() as i64, rng.draw());
    message.reject = rng.one_in(2);
    message.context = random_bytes(rng).into();
    let first = rng.below(1 << 40);
    let mut entries = Vec::new();
    for index in first..first + rng.below(4) {
        let mut entry = Entry { index, term: rng.draw(), ..Entry::default() };
        entry.set_entry_type(*rng.pick(&[EntryType::EntryNormal, EntryType::EntryConfChangeV2]));
        (entry.data, entry.context) = (random_bytes(rng).into(), random_bytes(rng).into());
        entries.push(entry);
    }
    message.set_entries(entries.into());
    if rng.one_in(3) {
        let metadata = message.mut_snapshot().mut_metadata();
        (metadata.index, metadata.term) = (rng.draw(), rng.draw());
        metadata.set_conf_state(ConfState {
            voters: random_nodes(rng),
            learners: random_nodes(rng),
            voters_outgoing: random_nodes(rng),
            learners_next: random_nodes(rng),
            auto_leave: rng.one_in(2),
            ..ConfState::default()
        });
    }
    message
}

fn random_packet(rng: &mut TestRng) -> Packet {
    let stream = StreamId { node: rng.draw(), incarnation: rng.draw(), number: rng.draw() };
    let row = |rng: &mut TestRng| Row {
        key: random_bytes(rng),
        value: random_bytes(rng),
        expires_at: rng.one_in(2).then(|| rng.draw()),
    };
    match rng.below(8) {
        0 => Packet::Raft(random_message(rng)),
        1 => Packet::Chunk(Chunk {
            stream,
            to: rng.draw(),
            term: rng.draw(),
            sequence: rng.draw(),
            rows: (0..rng.below(4)).map(|_| row(rng)).collect(),
            last: rng.one_in(2).then(|| Box::new(random_message(rng))),
        }),
        2 => Packet::Register(Register { from: rng.draw(), to: rng.draw() }),
        3 => Packet::Registered(Registered {
            from: rng.draw(),
            to: rng.draw(),
            directory: rng.draw(),
            is_committed: rng.one_in(2),
        }),
        4 => Packet::Message(NodeMessage {
            from: rng.draw(),
            to: rng.draw(),
            bytes: random_bytes(rng),
        }),
        5 => Packet::Start(Start {
            from: rng.draw(),
            to: rng.draw(),
            id: StartId { number: rng.draw(), random: rng.draw() },
            process: rng.draw(),
            term: rng.draw(),
            vote: rng.draw(),
            last: rng.draw(),
        }),
        6 => {
            let number = rng.draw();
            let forgotten = *rng.pick(&[
                None,
                Some(ForgottenState::Start(number)),
                Some(ForgottenState::Term(number)),
                Some(ForgottenState::Vote(number)),
                Some(ForgottenState::Entry(number)),
            ]);
            let (from, to, process) = (rng.draw(), rng.draw(), rng.draw());
            Packet::Started(Started { from, to, process, forgotten })
        }
        _ => Packet::Ack(ChunkAck { stream, from: rng.draw(), next: rng.draw() }),
    }
}

fn random_publication(rng: &mut TestRng) -> Publication {
    Publication { channel: random_bytes(rng), message: random_bytes(rng) }
}

fn hello() -> Hello {
    Hello {
        versions: (1, 5),
        cluster: 7,
        from: 1,
        to: 2,
        process: 9,
        client_address: "host:6379".into(),
        groups: 4,
        directories: vec![
            HelloDirectory { group: 7, own: 70, of_receiver: Some(71) },
            HelloDirectory { group: 8, own: 80, of_receiver: None },
        ],
    }
}

/// Reads one frame from the bytes.
fn read(mut bytes: &[u8]) -> Result<Vec<u8>, FrameError> {
    let mut body = Vec::new();
    read_frame(&mut bytes, &mut body, MAX_BODY_BYTES).map(|()| body)
}

#[test]
fn packets_round_trip_and_truncated_ones_are_rejected() {
    let mut rng = TestRng::new(1);
    for group in 0..300 {
        let envelope = Envelope { group, directory: rng.draw(), packet: random_packet(&mut rng) };
        let mut bytes = Vec::new();
        assert!(push_frame(&mut bytes, |out| encode_packet(out, &envelope)));
        let body = read(&bytes).unwrap();
        assert_eq!(decode_packet(&body).unwrap(), envelope);
        for len in 0..body.len() {
            assert!(decode_packet(&body[..len]).is_err(), "{len} of {} bytes", body.len());
        }
        assert!(decode_packet(&[&body[..], &[0]].concat()).is_err());
        let len = rng.index(bytes.len());
        assert!(matches!(read(&bytes[..len]), Err(FrameError::Io(_))));
    }
}

#[test]
fn published_messages_round_trip_and_truncated_ones_are_rejected() {
    let mut rng = TestRng::new(4);
    for _ in 0..300 {
        let publication = random_publication(&mut rng);
        let mut body = Vec::new();
        push_publication(&mut body, &publication);
        assert_eq!(decode_publication(&body).unwrap(), Some(publication.clone()));
        // An earlier version, which knows no such kind, would close the connection.
        assert!(matches!(decode_packet(&body), Err(FrameError::Malformed { kind: 9 })));
        for len in 1..5 + publication.channel.len() {
            let error = decode_publication(&body[..len]).unwrap_err();
            assert!(matches!(error, FrameError::Malformed { kind: 9 }), "{error}");
        }
        let packet = random_packet(&mut rng);
        body.clear();
        encode_packet(&mut body, &Envelope { group: 1, directory: 2, packet });
        assert_eq!(decode_publication(&body).unwrap(), None);
    }
}

#[test]
fn changed_bytes_of_a_frame_are_recognized() {
    let mut rng = TestRng::new(2);
    for _ in 0..300 {
        let envelope = Envelope { group: 1, directory: 2, packet: random_packet(&mut rng) };
        let mut bytes = Vec::new();
        push_frame(&mut bytes, |out| encode_packet(out, &envelope));
        let at = rng.index(bytes.len());
        bytes[at] ^= 1 << rng.below(8);
        assert!(read(&bytes).is_err(), "byte {at}");
    }
}

#[test]
fn random_and_mutated_bodies_are_decoded_or_rejected() {
    let mut rng = TestRng::new(3);
    let mut decoded = 0;
    for _ in 0..20_000 {
        let mut body = Vec::new();
        match rng.below(5) {
            0 => body = random_bytes(&mut rng),
            1 => hello().push(&mut body),
            2 => push_publication(&mut body, &random_publication(&mut rng)),
            _ => {
                let packet = random_packet(&mut rng);
                encode_packet(&mut body, &Envelope { group: 1, directory: 2, packet });
            }
        }
        for _ in 0..rng.below(4) {
            if !body.is_empty() {
                let at = rng.index(body.len());
                let random = rng.draw() as u8;
                body[at] = *rng.pick(&[0, 1, 0x7f, 0xff, random]);
            }
        }
        if let Ok(envelope) = decode_packet(&body) {
            let mut again = Vec::new();
            encode_packet(&mut again, &envelope);
            assert_eq!(decode_packet(&again).unwrap(), envelope);
            decoded += 1;
        }
        if let Ok(Some(publication)) = decode_publication(&body) {
            let mut again = Vec::new();
            push_publication(&mut again, &publication);
            assert_eq!(again, body);
        }
        decoded += usize::from(Hello::decode(&body).is_ok());
        let _ = Answer::decode(&body);
        let _ = read(&body);
    }
    assert!(decoded > 1000, "{decoded}");
}

#[test]
fn frame_over_the_limit_is_refused_before_it_is_read() {
    let mut bytes = Vec::new();
    push_frame(&mut bytes, |out| out.extend_from_slice(&[0; 100]));
    let mut body = Vec::new();
    let error = read_frame(&mut &bytes[..], &mut body, 99).unwrap_err();
    assert!(matches!(error, FrameError::TooLong { bytes: 100, limit: 99 }), "{error}");
    // A length without its bytes takes no memory.
    let claim = [&(MAX_BODY_BYTES as u32).to_le_bytes()[..], &[0; 8]].concat();
    let error = read_frame(&mut &claim[..], &mut body, MAX_BODY_BYTES).unwrap_err();
    assert!(matches!(error, FrameError::Io(_)) && body.capacity() < 1 << 16, "{error}");
    let mut out = vec![1];
    assert!(!push_frame(&mut out, |out| out.resize(MAX_BODY_BYTES + 10, 0)));
    assert_eq!(out, [1]);
}

#[test]
fn hello_round_trips_and_what_later_versions_add_is_ignored() {
    let mut body = Vec::new();
    hello().push(&mut body);
    assert_eq!(Hello::decode(&body).unwrap(), hello());
    // Without directories, and without the number of groups, it is that of an earlier version.
    let directories = 2 + 2 * 17 + 8;
    let (second, first) = (body.len() - directories, body.len() - directories - 4);
    for len in (0..body.len()).filter(|len| ![first, second].contains(len)) {
        assert!(Hello::decode(&body[..len]).is_err(), "{len} bytes");
    }
    let earlier = |groups| Hello { groups, directories: Vec::new(), ..hello() };
    assert_eq!(Hello::decode(&body[..second]).unwrap(), earlier(4));
    assert_eq!(Hello::decode(&body[..first]).unwrap(), earlier(1));
    body.extend_from_slice(b"later");
    assert_eq!(Hello::decode(&body).unwrap(), hello());
    let refused = Answer { refusal: Some("é".repeat(1000)) };
    let mut body = Vec::new();
    refused.push(&mut body);
    let text = Answer::decode(&body).unwrap().refusal.unwrap();
    assert!(text.len() == 1024 && refused.refusal.unwrap().starts_with(&text));
    let mut body = Vec::new();
    Answer { refusal: None }.push(&mut body);
    assert_eq!(Answer::decode(&body).unwrap(), Answer { refusal: None });
}
