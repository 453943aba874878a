//! The stream of commands: databases, transactions, position.
//!
//! A transaction of the source may write to several databases; at the target each transaction
//! writes to one table. So it becomes a transaction per run of commands on one database. MOVE is
//! one of its own.
//!
//! Invariant: the position is that behind the last command or transaction that the target has
//! acknowledged, with the database that the stream had selected there. While a transaction is
//! incomplete it is the place before its MULTI: the commands before it must not be repeated.

use std::time::{Duration, Instant};

use siltstone_server::{NodeAccess, NodeClient};

use super::request::Request;
use super::source::{Position, Problem, Source};
use super::target::Target;
use crate::interrupt::Interrupt;
use crate::outcome::Failure;
use crate::progress;

/// The time between two questions for the source's offset.
const LAG_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two lines with the lag.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Repeats the stream at the target.
pub(super) struct Follower {
    pub(super) target: Target,
    /// `None` before the first copy is complete.
    pub(super) position: Option<Position>,
    /// Where the stream is read; what is between the position and here is on its way.
    read: (u64, u64),
    transaction: Option<Transaction>,
    address: String,
    access: NodeAccess,
    /// A second connection to the source, for its offset.
    watcher: Option<NodeClient>,
    /// The source's offset when it was last asked.
    source_offset: Option<u64>,
    is_in_sync: bool,
}

/// A transaction of which EXEC has not come yet.
struct Transaction {
    /// The place before MULTI, and the database there.
    start: (u64, u64),
    /// Commands since MULTI, with their databases.
    commands: Vec<(u64, Request)>,
}

impl Follower {
    pub(super) fn new(target: Target, access: NodeAccess, address: String) -> Self {
        Follower {
            target,
            position: None,
            read: (0, 0),
            transaction: None,
            address,
            access,
            watcher: None,
            source_offset: None,
            is_in_sync: false,
        }
    }

    /// Begins behind a full copy.
    pub(super) fn begin(&mut self, position: Position) {
        self.position = Some(position);
        self.is_in_sync = false;
        self.source_offset = None;
    }

    /// Follows until a signal.
    pub(super) fn follow(
        &mut self,
        source: &mut Source,
        interrupt: &Interrupt,
    ) -> Result<(), Problem> {
        let Some(Position { offset, database, .. }) = self.position else { return Ok(()) };
        // A transaction that was cut off comes again.
        self.read = (offset, database);
        self.transaction = None;
        let bar = progress::spinner("following");
        let (mut asked_at, mut reported_at) = (None::<Instant>, Instant::now());
        while interrupt.check().is_ok() {
            while let Some(request) = source.next_request()? {
                self.take(source, &request)?;
            }
            self.acknowledged()?;
            let offset = self.offset();
            // The source had that offset up to a second ago: it may write all the time.
            if !self.is_in_sync && self.source_offset.is_some_and(|there| there <= offset) {
                self.is_in_sync = true;
                bar.suspend(|| eprintln!("in sync with {} at offset {offset}", self.address));
            }
            if asked_at.is_none_or(|at| at.elapsed() >= LAG_INTERVAL) {
                asked_at = Some(Instant::now());
                self.ask_offset();
                bar.set_position(offset);
                bar.set_message(format!("following, {}", self.lag()));
                if reported_at.elapsed() >= REPORT_INTERVAL && bar.is_hidden() {
                    reported_at = Instant::now();
                    eprintln!("offset {offset}, {}", self.lag());
                }
            }
            source.wait(offset)?;
        }
        // Whole commands that have come are applied.
        while let Some(request) = source.next_request()? {
            self.take(source, &request)?;
        }
        self.acknowledged()?;
        bar.finish_and_clear();
        // The source learns the last offset; if it cannot, nothing is lost.
        let _ = source.acknowledge(self.offset());
        self.report_end();
        Ok(())
    }

    /// Prints where the replication ends.
    pub(super) fn report_end(&mut self) {
        let Some(position) = self.position.clone() else {
            eprintln!("stopped before the copy was complete");
            return;
        };
        self.ask_offset();
        eprintln!("stopped at offset {} of {}: {}", position.offset, position.id, self.lag());
    }

    fn offset(&self) -> u64 {
        self.position.as_ref().map_or(0, |position| position.offset)
    }

    /// Makes everything that was read acknowledged, except for an open transaction.
    fn acknowledged(&mut self) -> Result<(), Failure> {
        self.target.flush()?;
        let open = self.transaction.as_ref();
        if let Some(position) = &mut self.position {
            (position.offset, position.database) = open.map_or(self.read, |open| open.start);
        }
        Ok(())
    }

    /// Takes one command of the stream.
    fn take(&mut self, source: &mut Source, request: &Request) -> Result<(), Problem> {
        let name = request.name();
        let (start, database) = self.read;
        self.read.0 = start + request.bytes.len() as u64;
        match (&*name, &mut self.transaction) {
            ("select", _) => {
                let number = request.word(1).and_then(|word| std::str::from_utf8(word).ok());
                let number = number.and_then(|word| word.parse().ok());
                self.read.1 = number.ok_or_else(|| unexpected(request, start))?;
            }
            ("ping", _) => {}
            ("replconf", None) => {
                // GETACK: a client of the source may wait for it.
                self.acknowledged()?;
                source.acknowledge(self.offset())?;
            }
            ("multi", None) => {
                let start = (start, database);
                self.transaction = Some(Transaction { start, commands: Vec::new() });
            }
            ("exec", Some(_)) => {
                let transaction = self.transaction.take();
                let commands = transaction.map(|open| open.commands).unwrap_or_default();
                self.send_transaction(&commands, start)?;
            }
            ("multi" | "exec" | "replconf", _) => return Err(unexpected(request, start).into()),
            (_, Some(open)) => open.commands.push((database, request.clone())),
            (_, None) => self.send(database, request, start)?,
        }
        Ok(())
    }

    fn send(&mut self, database: u64, request: &Request, start: u64) -> Result<(), Failure> {
        self.target.add(database, request, || {
            format!("the command of the stream at offset {start}, {}", request.shown())
        })
    }

    fn send_transaction(&mut self, commands: &[(u64, Request)], start: u64) -> Result<(), Failure> {
        let is_move = |request: &Request| request.name() == "move";
        let runs = commands.chunk_by(|(one, first), (other, second)| {
            one == other && !is_move(first) && !is_move(second)
        });
        for run in runs {
            let (database, first) = &run[0];
            if let [_] = run {
                self.send(*database, first, start)?;
                continue;
            }
            self.send(*database, &Request::of(&[b"MULTI"]), start)?;
            for (database, request) in run {
                self.send(*database, request, start)?;
            }
            self.target.add(*database, &Request::of(&[b"EXEC"]), || {
                let shown: Vec<_> = run.iter().take(8).map(|(_, r)| r.shown()).collect();
                format!("the transaction of the stream at offset {start}: {}", shown.join("; "))
            })?;
        }
        Ok(())
    }

    /// Asks the source for its offset, on a connection of its own.
    fn ask_offset(&mut self) {
        if self.watcher.is_none() {
            self.watcher = NodeClient::connect(&self.address, &self.access).ok();
        }
        let asked = self.watcher.as_mut().map(|client| client.call(&["INFO", "replication"]));
        let text = match asked {
            Some(Ok(reply)) => reply.to_text(),
            _ => {
                self.watcher = None;
                self.source_offset = None;
                return;
            }
        };
        let mut lines = text.lines();
        self.source_offset = lines
            .find_map(|line| line.strip_prefix("master_repl_offset:"))
            .and_then(|number| number.trim().parse().ok());
    }

    /// Bytes that the source is ahead, as it was last asked.
    fn lag(&self) -> String {
        match self.source_offset {
            None => "lag unknown".to_owned(),
            Some(offset) => format!("lag {} bytes", offset.saturating_sub(self.offset())),
        }
    }
}

fn unexpected(request: &Request, start: u64) -> Failure {
    let shown = request.shown();
    Failure::Store(format!("the stream has {shown} at offset {start}, where it makes no sense"))
}
