//! `replicate-from`: copies a Redis server into a running Siltstone server, and follows its writes
//! until an operator cuts over.
//!
//! ```text
//!   source ──PSYNC──▶ dump file ──▶ spool ──▶ SET, RESTORE ─┐
//!                 └─▶ stream of commands ──▶ batches ───────┴──RESP──▶ target: siltstone serve
//!                 ◀── REPLCONF ACK: what the target has acknowledged
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`request`] | commands of the stream |
//! | [`source`] | the source: handshake, dump file, stream, acknowledgements |
//! | [`target`] | the target: batches of commands and their replies |
//! | [`copy`] | a full copy: the dump file |
//! | [`follow`] | the stream: databases, transactions, position |
//!
//! Invariants: a position counts only commands that the target has acknowledged, so a broken
//! connection to the source loses nothing and repeats nothing. When the connection to the target
//! breaks, the outcome of its last commands is unknown, and the program ends. While it runs it
//! holds the target's clock: only the source decides when a key expires.
//!
//! Source: the documentation of Redis's replication; replies of Redis 7.0.

mod copy;
mod follow;
mod request;
mod source;
mod target;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use siltstone_server::{ClientTlsFiles, NodeAccess};

use crate::access::{Credentials, PASSWORD_VARIABLE, password_or_variable};
use crate::interrupt::Interrupt;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::replicate_from::follow::Follower;
use crate::replicate_from::source::{Answer, Position, Problem, Source};
use crate::replicate_from::target::Target;

/// The environment variable that has the password of the source.
const SOURCE_PASSWORD_VARIABLE: &str = "SILTSTONE_SOURCE_PASSWORD";
/// The time between two attempts to connect to the source.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Copy a Redis or Valkey server into a running Siltstone server, and follow its writes
///
/// The source sees a replica. The target, a server that `siltstone serve` runs, must be empty, or
/// --replace empties it; each database of the source that has keys needs a table there. After the
/// copy all writes of the source are repeated at the target, in their order, until SIGINT. To cut
/// over: stop the writers, wait until the lag is 0, end this program, and point the clients to the
/// target. When the connection to the source breaks, it goes on from where it was if the source
/// can, and else copies everything again. A command that the target does not know ends it. The user
/// at the source needs the commands PSYNC, REPLCONF, PING, TIME and INFO.
#[derive(Args)]
pub(crate) struct ReplicateFrom {
    /// The source
    #[arg(value_name = "HOST:PORT")]
    source: String,
    /// The target, a running Siltstone server
    #[arg(long, value_name = "HOST:PORT")]
    to: String,
    /// Remove all keys and functions of the target first
    #[arg(long)]
    replace: bool,
    /// The user at the target; by default the default user
    #[arg(long)]
    to_user: Option<String>,
    /// The user's password at the target (or set SILTSTONE_PASSWORD)
    #[arg(long)]
    to_password: Option<String>,
    /// Use TLS to the target; the certificates of its authorities (PEM)
    #[arg(long, value_name = "FILE")]
    to_tls_ca: Option<PathBuf>,
    /// The port that the source shows for this replica. No server listens on it: 0 keeps Sentinel
    /// from connecting to another one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    listening_port: u16,
    /// The directory for the source's dump file while it is copied; by default that of temporary
    /// files
    #[arg(long, value_name = "DIR")]
    spool_dir: Option<PathBuf>,
    // Last, because the heading is that of all options that follow.
    #[command(flatten, next_help_heading = "Connection to the source")]
    credentials: Credentials,
    /// The user's password (or set SILTSTONE_SOURCE_PASSWORD)
    #[arg(long, help_heading = "Connection to the source")]
    password: Option<String>,
}

impl ReplicateFrom {
    pub(crate) fn run(self) -> CommandResult {
        let interrupt = Interrupt::watch()?;
        let access = self
            .credentials
            .node_access(password_or_variable(self.password.clone(), SOURCE_PASSWORD_VARIABLE));
        let to_access = NodeAccess {
            user: self.to_user.clone(),
            password: password_or_variable(self.to_password.clone(), PASSWORD_VARIABLE),
            tls: self.to_tls_ca.clone().map(|ca| ClientTlsFiles { ca, own: None }),
        };
        let target = Target::connect(&self.to, &to_access)?;
        let mut follower = Follower::new(target, access.clone(), self.source.clone());
        if !self.replace {
            follower.target.check_empty()?;
        }
        let connect = || Source::connect(&self.source, &access, self.listening_port, &interrupt);
        let mut source = connect().map_err(Problem::into_failure)?;
        loop {
            let problem = match self.session(&mut source, &mut follower, &interrupt) {
                Ok(()) => return Ok(Outcome::Done),
                Err(Problem::Ended(failure)) => return Err(failure),
                Err(Problem::Broken(text)) => text,
            };
            eprintln!("{problem}; trying again");
            source = loop {
                if interrupt.check().is_err() {
                    follower.report_end();
                    return Ok(Outcome::Done);
                }
                let began = Instant::now();
                match connect() {
                    Ok(source) => break source,
                    Err(Problem::Ended(failure)) => return Err(failure),
                    Err(Problem::Broken(_)) => {}
                }
                std::thread::sleep(RETRY_INTERVAL.saturating_sub(began.elapsed()));
            };
        }
    }

    /// Copies if it must, and follows until a signal.
    fn session(
        &self,
        source: &mut Source,
        follower: &mut Follower,
        interrupt: &Interrupt,
    ) -> Result<(), Problem> {
        // Before the dump file begins: what has expired by then is not in it.
        let time = source.time()?;
        match source.psync(follower.position.as_ref())? {
            Answer::Continue(id) => {
                let position = follower.position.as_mut();
                let position = position.ok_or_else(|| Problem::Ended(unasked()))?;
                position.id = id.unwrap_or_else(|| position.id.clone());
                eprintln!("goes on from offset {}", position.offset);
            }
            Answer::Full { id, offset } => {
                if let Some(old) = follower.position.take() {
                    eprintln!(
                        "{} cannot go on from offset {}: its backlog no longer has it, or it has \
                         restarted. Everything is copied again",
                        self.source, old.offset
                    );
                }
                follower.target.hold_expiry(time)?;
                let start = Position { id, offset, database: 0 };
                let dump = source.receive_dump(self.spool_dir.as_deref(), offset)?;
                copy::copy(dump, time, offset, source, &mut follower.target, interrupt)?;
                follower.begin(start);
            }
        }
        follower.follow(source, interrupt)
    }
}

fn unasked() -> Failure {
    Failure::Store("the source continues a replication that nobody has asked for".to_owned())
}
