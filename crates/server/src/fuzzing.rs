//! What fuzzers and property tests drive: the protocols over a small store, without sockets.
//!
//! A [`Bench`] has two servers with the same table and a clock that stands still. Commands are run
//! whole in the one and cut in pieces in the other; both must answer the same, since where a packet
//! is cut means nothing.
//!
//! Invariant: everything that is driven here is the code that serves clients.
//!
//! Source: ours.

use std::sync::Arc;

use siltstone::{Env, ManualClock, Table};
use siltstone_mica::{Mica, Options};

use crate::memcached::Talk;
use crate::memcached::talk::Step;
use crate::resp::Replies;
use crate::store::turn::Turn;
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
        let anywhere = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let options = ServerOptions { listen: anywhere, clock, ..ServerOptions::default() };
        let server = Server::bind(vec![Table::new("fuzzed", Arc::new(mica))], options)?;
        Ok(Side { server, turn: Turn::new(1) })
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

    /// Bytes that the tables take: they must not grow.
    pub fn memory_bytes(&self) -> u64 {
        let stats = self.sides.iter().map(|side| side.server.shared().databases[0].engine.stats());
        stats.map(|stats| stats.memory_bytes()).sum()
    }
}
