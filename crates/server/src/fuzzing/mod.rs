//! Entry points for fuzzers and property tests: the protocols over a small store, without sockets.
//!
//! A [`ProtocolHarness`] has two servers with equal tables and a stopped clock. Commands are run at
//! once in one and in pieces, or as a datagram, in the other; both must give the same responses. A
//! [`UdpHarness`] is a port of the UDP server. A [`RedisHarness`] runs commands and scripts of a
//! Redis client.
//!
//! Invariant: everything driven here is the code that serves clients.

mod redis;
mod redis_input;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use siltstone::{Env, ManualClock, Table};
use siltstone_client::coalesce;
use siltstone_client::wire::{HEADER_BYTES, Header, Kind};
use siltstone_mica::{Mica, Options};

use crate::memcached::MemcachedSession;
use crate::memcached::session::Progress;
use crate::memcached::udp;
use crate::resp::Replies;
use crate::store::write_batcher::WriteBatcher;
use crate::udp::{BurstProcessor, Cookies, ForwardQueue, IncomingPacket, Responses};
use crate::{Server, ServerOptions};

pub use redis::{CommandWords, RedisHarness};
pub use redis_input::WORDS;

/// Maximum bytes of responses to one input.
const MAX_OUTPUT: usize = 16 << 20;

/// Two servers that must give the same responses.
pub struct ProtocolHarness {
    sides: [Side; 2],
}

struct Side {
    server: Server,
    batcher: WriteBatcher,
}

impl Side {
    fn new() -> Result<Self, siltstone::Error> {
        let clock = Arc::new(ManualClock::at(1_800_000_000_000));
        let given = [("memory", "4MiB"), ("partitions", "1"), ("cas", "on"), ("mode", "cache")];
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
        Ok(Side { server, batcher: WriteBatcher::new(1) })
    }

    fn memory_bytes(&self) -> u64 {
        self.server.shared().databases[0].engine.stats().memory_bytes()
    }

    /// Responses to commands that arrive in pieces of `piece` bytes.
    fn memcached(&mut self, bytes: &[u8], piece: usize) -> Vec<u8> {
        let shared = self.server.shared();
        let (mut session, mut replies) = (MemcachedSession::new(shared), Replies::new(MAX_OUTPUT));
        let mut start = 0;
        for end in (piece..bytes.len()).step_by(piece).chain([bytes.len()]) {
            while !session.is_closing && !replies.has_overflowed() {
                match session.step(shared, &mut replies, &mut self.batcher, &bytes[start..end]) {
                    Progress::Incomplete => break,
                    Progress::Consumed(count) => start += count,
                }
            }
        }
        self.batcher.finish_iteration();
        assert!(start <= bytes.len(), "used more than there was");
        replies.unsent().to_vec()
    }
}

impl ProtocolHarness {
    /// Two servers with empty tables, bound to free ports and never run.
    ///
    /// # Errors
    /// System errors.
    pub fn new() -> Result<Self, siltstone::Error> {
        Ok(ProtocolHarness { sides: [Side::new()?, Side::new()?] })
    }

    /// Runs a client's bytes as memcached commands.
    ///
    /// # Panics
    /// If the responses depend on the pieces, which is a bug.
    pub fn memcached(&mut self, bytes: &[u8], piece: usize) {
        let [whole, cut] = &mut self.sides;
        let whole = whole.memcached(bytes, bytes.len().max(1));
        let cut = cut.memcached(bytes, piece.max(1));
        // Statistics depend on time and the process.
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
    /// If the response differs from that over TCP, or has wrong headers: bugs.
    pub fn memcached_datagram(&mut self, bytes: &[u8]) {
        let [whole, framed] = &mut self.sides;
        let responses = udp::respond(framed.server.shared(), &mut framed.batcher, bytes);
        let Some((header, commands)) = bytes.split_first_chunk::<{ udp::HEADER_BYTES }>() else {
            assert!(responses.is_empty(), "a response without a request");
            return;
        };
        let (mut text, total) = (Vec::new(), responses.len() as u16);
        for (number, datagram) in (0u16..).zip(&responses) {
            assert!(datagram.len() <= udp::MAX_DATAGRAM_BYTES);
            let (header_bytes, part) = datagram.split_at(udp::HEADER_BYTES);
            let [number, total] = [number, total].map(u16::to_be_bytes);
            assert_eq!(header_bytes, [&header[..2], &number, &total, &[0, 0]].concat());
            text.extend_from_slice(part);
        }
        if header[2..6] != [0, 0, 0, 1] {
            assert!(text.starts_with(b"SERVER_ERROR"), "{}", text.escape_ascii());
            return;
        }
        let expected = whole.memcached(commands, commands.len().max(1));
        let rest = text.strip_prefix(&expected[..]);
        assert!(
            rest.is_some_and(|rest| rest.is_empty() || rest == udp::INCOMPLETE)
                || commands.windows(5).any(|word| word == b"stats"),
            "{}\nTCP: {}\nUDP: {}",
            commands.escape_ascii(),
            expected.escape_ascii(),
            text.escape_ascii()
        );
    }

    /// Memory used by the tables, in bytes; must not grow.
    pub fn memory_bytes(&self) -> u64 {
        self.sides.iter().map(Side::memory_bytes).sum()
    }
}

/// A port of the UDP server, fed with packets.
pub struct UdpHarness {
    side: Side,
    processor: BurstProcessor,
    cookies: Arc<Cookies>,
    responses: Responses,
    forwards: ForwardQueue,
}

impl UdpHarness {
    /// A port over an empty table. With `two_ports` it is one of two that take any request.
    ///
    /// # Errors
    /// System errors.
    ///
    /// # Panics
    /// Never: the table is a `mica` table.
    pub fn new(two_ports: bool) -> Result<Self, siltstone::Error> {
        let side = Side::new()?;
        let store = side.server.udp_store().expect("the table is of mica").clone();
        let cookies = Arc::new(Cookies::new());
        let ports: &[u16] = if two_ports { &[1, 2] } else { &[1] };
        let mut processor = BurstProcessor::new(
            side.server.shared().clone(),
            store,
            0,
            ports.into(),
            cookies.clone(),
        );
        processor.set_any_port(two_ports);
        let (responses, forwards) = Default::default();
        Ok(UdpHarness { side, processor, cookies, responses, forwards })
    }

    /// Processes datagrams as one burst, each from a client port, and with the valid cookie in its
    /// packets if flagged. Returns the bytes of all responses.
    ///
    /// # Panics
    /// If a response exceeds its limit, or memory is not bounded: bugs.
    pub fn burst(&mut self, datagrams: &mut [(Vec<u8>, u16, bool)]) -> usize {
        let now = self.side.server.shared().options.clock.now();
        let address = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
        let mut allowed = 0;
        let mut largest = HashMap::new();
        for (datagram, client, is_known) in &mut *datagrams {
            let to = address(*client);
            let lens: Vec<_> = coalesce::packets(datagram).map(<[u8]>::len).collect();
            let mut start = 0;
            for len in lens {
                let packet = &mut datagram[start..start + len];
                start += len;
                if *is_known && len >= HEADER_BYTES {
                    packet[16..24]
                        .copy_from_slice(&self.cookies.cookie_for(to, now, 0).to_le_bytes());
                }
                allowed += match Header::parse(packet) {
                    Ok((header, _)) if header.kind == Kind::Requests && *is_known => {
                        usize::from(header.response_limit)
                    }
                    _ => len,
                };
            }
            let largest: &mut usize = largest.entry(to).or_default();
            *largest = datagram.len().max(*largest);
        }
        let incoming: Vec<_> = datagrams
            .iter()
            .flat_map(|(bytes, client, _)| IncomingPacket::of(bytes, address(*client)))
            .collect();
        self.processor.serve(&incoming, &mut self.responses, &mut self.forwards);
        let mut all = 0;
        for response in self.responses.iter() {
            let packet = response.bytes;
            let (header, _) = Header::parse(packet).expect("a response is a valid packet");
            assert_eq!(usize::from(header.length), packet.len());
            // The maximum size of a response is what its client has stated.
            assert!(
                header.kind != Kind::Responses
                    || response.max_bytes <= header.response_limit.into()
            );
            assert!(packet.len() <= response.max_bytes);
            assert!(
                response.max_datagram_bytes <= largest[&response.to],
                "longer than what has come"
            );
            all += response.max_bytes;
        }
        assert!(all <= allowed, "{all} bytes of responses where {allowed} are allowed");
        let forwarded: Vec<_> = self.forwards.take().collect();
        let incoming: Vec<_> =
            forwarded.iter().map(|(_, forwarded)| IncomingPacket::from(forwarded)).collect();
        if let Some(first) = incoming.first() {
            assert!(Header::parse(first.bytes).is_ok(), "a forwarded packet is valid");
        }
        assert!(self.processor.cached_bytes() <= 16 << 20);
        all
    }

    /// Hash of a key, for valid packets.
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.side.server.udp_store().map_or(0, |store| store.hash(key))
    }

    /// Memory used by the table, in bytes; must not grow.
    pub fn memory_bytes(&self) -> u64 {
        self.side.memory_bytes()
    }
}
