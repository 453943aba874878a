//! What fuzzers and property tests drive: the protocols over a small store, without sockets.
//!
//! A [`Bench`] has two servers with the same table and a clock that stands still. Commands are run
//! whole in the one and cut in pieces, or in a datagram, in the other; both must answer the same, since where a
//! packet is cut means nothing. A [`UdpBench`] is a port of the UDP server.
//!
//! Invariant: everything that is driven here is the code that serves clients.
//!
//! Source: ours.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use siltstone::{Env, ManualClock, Table};
use siltstone_client::bundle;
use siltstone_client::wire::{HEADER_BYTES, Header, Kind};
use siltstone_mica::{Mica, Options};

use crate::memcached::Talk;
use crate::memcached::talk::Step;
use crate::memcached::udp;
use crate::resp::Replies;
use crate::store::turn::Turn;
use crate::udp::{Answers, Cookies, Desk, Incoming, Parcels};
use crate::{Server, ServerOptions};

/// Bytes of answers to one input, at most.
const MAX_OUTPUT: usize = 16 << 20;

/// Two servers that must answer the same.
pub struct Bench {
    sides: [Side; 2],
}

struct Side {
    server: Server,
    turn: Turn,
}

impl Side {
    fn new() -> Result<Self, siltstone::Error> {
        let clock = Arc::new(ManualClock::at(1_800_000_000_000));
        let given = [("memory", "4MiB"), ("partitions", "1"), ("stamps", "on"), ("mode", "cache")];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let options = Options::from_map(&given.into_iter().collect())?;
        let mica = Mica::open(Env::replayable(clock.clone(), 1), options)?;
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = ServerOptions {
            listen: anywhere,
            udp: Some(anywhere),
            clock,
            ..ServerOptions::default()
        };
        let server = Server::bind(vec![Table::new("fuzzed", Arc::new(mica))], options)?;
        Ok(Side { server, turn: Turn::new(1) })
    }

    fn memory_bytes(&self) -> u64 {
        self.server.shared().databases[0].engine.stats().memory_bytes()
    }

    /// The answers to commands that come in pieces of so many bytes.
    fn memcached(&mut self, bytes: &[u8], piece: usize) -> Vec<u8> {
        let shared = self.server.shared();
        let (mut talk, mut replies) = (Talk::new(shared), Replies::new(MAX_OUTPUT));
        let mut start = 0;
        for end in (piece..bytes.len()).step_by(piece).chain([bytes.len()]) {
            while !talk.is_closing && !replies.has_overflowed() {
                match talk.step(shared, &mut replies, &mut self.turn, &bytes[start..end]) {
                    Step::Incomplete => break,
                    Step::Used(count) => start += count,
                }
            }
        }
        self.turn.end();
        assert!(start <= bytes.len(), "used more than there was");
        replies.unsent().to_vec()
    }
}

impl Bench {
    /// Two servers with empty tables. They are bound to free ports and never run.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn new() -> Result<Self, siltstone::Error> {
        Ok(Bench { sides: [Side::new()?, Side::new()?] })
    }

    /// Runs a client's bytes as memcached's commands.
    ///
    /// # Panics
    /// If the answers depend on how the bytes are cut, which is a bug.
    pub fn memcached(&mut self, bytes: &[u8], piece: usize) {
        let [whole, cut] = &mut self.sides;
        let whole = whole.memcached(bytes, bytes.len().max(1));
        let cut = cut.memcached(bytes, piece.max(1));
        // Numbers that time and the process bring along are none of the client's.
        if !bytes.windows(5).any(|word| word == b"stats") {
            assert!(
                whole == cut,
                "{}\nwhole: {}\ncut: {}",
                bytes.escape_ascii(),
                whole.escape_ascii(),
                cut.escape_ascii()
            );
        }
    }

    /// Runs a client's datagram.
    ///
    /// # Panics
    /// If its commands are not answered as over TCP, or in datagrams that say something else of themselves:
    /// bugs.
    pub fn memcached_datagram(&mut self, bytes: &[u8]) {
        let [whole, framed] = &mut self.sides;
        let answers = udp::answer(framed.server.shared(), &mut framed.turn, bytes);
        let Some((header, commands)) = bytes.split_first_chunk::<{ udp::HEADER }>() else {
            assert!(answers.is_empty(), "an answer to no request");
            return;
        };
        let (mut text, total) = (Vec::new(), answers.len() as u16);
        for (number, datagram) in (0u16..).zip(&answers) {
            assert!(datagram.len() <= udp::DATAGRAM);
            let (said, part) = datagram.split_at(udp::HEADER);
            let [number, total] = [number, total].map(u16::to_be_bytes);
            assert_eq!(said, [&header[..2], &number, &total, &[0, 0]].concat());
            text.extend_from_slice(part);
        }
        if header[2..6] != [0, 0, 0, 1] {
            assert!(text.starts_with(b"SERVER_ERROR"), "{}", text.escape_ascii());
            return;
        }
        let expected = whole.memcached(commands, commands.len().max(1));
        let rest = text.strip_prefix(&expected[..]);
        assert!(
            rest.is_some_and(|rest| rest.is_empty() || rest == udp::UNFINISHED)
                || commands.windows(5).any(|word| word == b"stats"),
            "{}\nTCP: {}\nUDP: {}",
            commands.escape_ascii(),
            expected.escape_ascii(),
            text.escape_ascii()
        );
    }

    /// Bytes that the tables take: they must not grow.
    pub fn memory_bytes(&self) -> u64 {
        self.sides.iter().map(Side::memory_bytes).sum()
    }
}

/// A port of the UDP server, which is given packets.
pub struct UdpBench {
    side: Side,
    desk: Desk,
    cookies: Arc<Cookies>,
    answers: Answers,
    parcels: Parcels,
}

impl UdpBench {
    /// A port over an empty table. With `two_ports` it is one of two that take any request.
    ///
    /// # Errors
    /// What the system refuses.
    ///
    /// # Panics
    /// Never: the table is of the engine that is served over UDP.
    pub fn new(two_ports: bool) -> Result<Self, siltstone::Error> {
        let side = Side::new()?;
        let store = side.server.udp_store().expect("the table is of mica").clone();
        let cookies = Arc::new(Cookies::new());
        let ports: &[u16] = if two_ports { &[1, 2] } else { &[1] };
        let mut desk =
            Desk::new(side.server.shared().clone(), store, 0, ports.into(), cookies.clone());
        desk.take_any(two_ports);
        let (answers, parcels) = Default::default();
        Ok(UdpBench { side, desk, cookies, answers, parcels })
    }

    /// Gives the port these datagrams in one burst, each from a client with a port number, and its packets with
    /// the right cookie if it is to be known. Bytes of all answers.
    ///
    /// # Panics
    /// If an answer is larger than it may be, or something is kept that must not be: bugs.
    pub fn burst(&mut self, datagrams: &mut [(Vec<u8>, u16, bool)]) -> usize {
        let now = self.side.server.shared().options.clock.now();
        let address = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
        let mut allowed = 0;
        let mut longest = HashMap::new();
        for (datagram, client, is_known) in &mut *datagrams {
            let to = address(*client);
            let lens: Vec<_> = bundle::packets(datagram).map(<[u8]>::len).collect();
            let mut start = 0;
            for len in lens {
                let packet = &mut datagram[start..start + len];
                start += len;
                if *is_known && len >= HEADER_BYTES {
                    packet[16..24].copy_from_slice(&self.cookies.of(to, now).to_le_bytes());
                }
                allowed += match Header::parse(packet) {
                    Ok((header, _)) if header.kind == Kind::Requests && *is_known => {
                        usize::from(header.room)
                    }
                    _ => len,
                };
            }
            let longest: &mut usize = longest.entry(to).or_default();
            *longest = datagram.len().max(*longest);
        }
        let incoming: Vec<_> = datagrams
            .iter()
            .flat_map(|(bytes, client, _)| Incoming::of(bytes, address(*client)))
            .collect();
        self.desk.serve(&incoming, &mut self.answers, &mut self.parcels);
        let mut all = 0;
        for answer in self.answers.iter() {
            let packet = answer.bytes;
            let (header, _) = Header::parse(packet).expect("an answer is a packet");
            assert_eq!(usize::from(header.length), packet.len());
            // An answer names the room that its client has named.
            assert!(header.kind != Kind::Answers || answer.most <= header.room.into());
            assert!(packet.len() <= answer.most);
            assert!(answer.shares <= longest[&answer.to], "longer than what has come");
            all += answer.most;
        }
        assert!(all <= allowed, "{all} bytes of answers where {allowed} are allowed");
        let handed: Vec<_> = self.parcels.take().collect();
        let incoming: Vec<_> = handed.iter().map(|(_, handed)| Incoming::from(handed)).collect();
        if let Some(first) = incoming.first() {
            assert!(Header::parse(first.bytes).is_ok(), "a parcel is a packet");
        }
        assert!(self.desk.kept_bytes() <= 16 << 20);
        all
    }

    /// The keyhash of a key, for packets that are to be done.
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.side.server.udp_store().map_or(0, |store| store.hash(key))
    }

    /// Bytes that the table takes: it must not grow.
    pub fn memory_bytes(&self) -> u64 {
        self.side.memory_bytes()
    }
}
