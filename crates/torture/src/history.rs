//! A history: one store, from creation to its last check, under one fault class.
//!
//! Engine, fault class and seed determine a history as far as real processes allow. The options of
//! the table, the commands of the lanes and the time of each fault follow from the seed. How many
//! commands the server has executed by then does not.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::client::{Connection, Reply};
use crate::engines::Engine;
use crate::finding::{Result, Stop};
use crate::lane::{Counts, Lane, Tolerance, Workload};
use crate::load::{self, Control};
use crate::oracle::State;
use crate::process::{self, FSYNC, Launch, Server};
use crate::random::Random;
use crate::settings::Settings;
use crate::values;

/// The number of writing connections.
pub const LANES: u32 = 3;
/// The maximum number of events in a finding.
const MAX_EVENTS: usize = 30;
/// How long a client waits for a reply. A stall of some seconds is not a finding, because the
/// machine may be busy.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(40);

/// A running history.
pub struct History<'a> {
    /// The settings of the run.
    pub settings: &'a Settings,
    /// The engine.
    pub engine: &'static Engine,
    /// The source of this history's random choices.
    pub random: Random,
    /// The directory of this history.
    pub root: PathBuf,
    /// The directory of the store: in `root`, or on a file system that the fault class has mounted.
    pub store: PathBuf,
    /// The writers.
    pub lanes: Vec<Lane>,
    /// The value of `--table`.
    pub table: String,
    /// Additional arguments of `serve`.
    pub serve_arguments: Vec<String>,
    /// The time from the last start to readiness.
    pub open_time: Duration,
    round: u64,
    rounds: u64,
    events: Vec<String>,
    progress: &'a (dyn Fn() + Sync),
}

impl<'a> History<'a> {
    /// A history of `rounds` rounds. `progress` is called after every round.
    pub fn new(
        settings: &'a Settings,
        engine: &'static Engine,
        seed: u64,
        rounds: u64,
        root: PathBuf,
        progress: &'a (dyn Fn() + Sync),
    ) -> Self {
        let mut random = Random::new(seed);
        let table = format!("default={}{}", engine.name, random.pick(engine.option_sets));
        let store = root.join("store");
        let mut history = History {
            settings,
            engine,
            random,
            root,
            store,
            lanes: Vec::new(),
            table,
            serve_arguments: Vec::new(),
            open_time: Duration::from_millis(20),
            round: 0,
            rounds,
            events: Vec::new(),
            progress,
        };
        history.set_workload(Workload::default());
        history
    }

    /// Replaces the lanes by new ones with this workload.
    pub fn set_workload(&mut self, workload: Workload) {
        let random = &mut self.random;
        self.lanes = (0..LANES).map(|lane| Lane::new(lane, workload, random.next())).collect();
    }

    /// Chooses options with which the store allocates space as long as clients write.
    pub fn use_growing_options(&mut self) {
        if !self.engine.growing.is_empty() {
            let options = self.random.pick(self.engine.growing);
            self.table = format!("default={}{options}", self.engine.name);
        }
    }

    /// Begins the next round; false after the last one.
    ///
    /// # Errors
    /// The run was interrupted.
    pub fn next_round(&mut self) -> Result<bool> {
        if self.settings.is_interrupted() {
            return Err(Stop::Interrupted);
        }
        if self.round > 0 {
            (self.progress)();
        }
        if self.round == self.rounds {
            return Ok(false);
        }
        self.round += 1;
        Ok(true)
    }

    /// The number of the current round, from 1.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Records an event for findings.
    pub fn note(&mut self, what: impl Into<String>) {
        let line = format!("round {}: {}", self.round, what.into());
        if self.events.len() == MAX_EVENTS {
            self.events.remove(0);
        }
        self.events.push(line);
    }

    /// The last events.
    pub fn events(&self) -> &[String] {
        &self.events
    }

    /// The counts of all lanes.
    pub fn counts(&self) -> Counts {
        let mut all = Counts::default();
        for Lane { counts, .. } in &self.lanes {
            all.acknowledged += counts.acknowledged;
            all.refused += counts.refused;
            all.unknown += counts.unknown;
            all.read += counts.read;
        }
        all
    }

    /// A random value of `--fsync`.
    pub fn any_fsync(&mut self) -> &'static str {
        self.random.pick::<&'static str>(&FSYNC)
    }

    /// The arguments of this history's server.
    pub fn launch(&self, fsync: &'static str) -> Launch {
        Launch {
            program: self.settings.program.clone(),
            store: self.store.clone(),
            table: self.table.clone(),
            fsync,
            more: self.serve_arguments.clone(),
            log: self.root.join("server.log"),
        }
    }

    /// Starts the server and waits for readiness.
    ///
    /// # Errors
    /// The server does not start.
    pub fn start(&mut self, fsync: &'static str) -> Result<Server> {
        let begun = Instant::now();
        let server = Server::start(&self.launch(fsync)).map_err(Stop::Finding)?;
        self.open_time = begun.elapsed();
        self.note(format!("serve --table {} --fsync {fsync}", self.table));
        Ok(server)
    }

    /// Runs the lanes while `fault` runs.
    ///
    /// # Errors
    /// See [`load::run`].
    pub fn load<T>(
        &mut self,
        server: &mut Server,
        tolerance: Tolerance,
        fault: impl FnOnce(&Control, &mut Server) -> Result<T>,
    ) -> Result<T> {
        let address = server.address();
        load::run(&mut self.lanes, address, REPLY_TIMEOUT, tolerance, |control| {
            fault(control, server)
        })
    }

    /// Reads and checks all keys of all lanes, and in a quarter of the calls the result of KEYS.
    ///
    /// # Errors
    /// A write is lost, a value is wrong, or a refused write is visible.
    pub fn check(&mut self, server: &Server) -> Result<()> {
        for lane in &mut self.lanes {
            lane.check(server.address(), REPLY_TIMEOUT)?;
        }
        if self.random.percent(25) { self.check_names(server) } else { Ok(()) }
    }

    /// Compares KEYS with the oracle. Call it after all lanes were checked, when no outcome is
    /// unknown.
    fn check_names(&mut self, server: &Server) -> Result<()> {
        let lost = |error| Stop::Finding(format!("KEYS has no reply: {error}"));
        let mut connection = Connection::open(server.address(), REPLY_TIMEOUT).map_err(lost)?;
        let reply = connection.command(&["KEYS", "*"]).map_err(lost)?;
        let Reply::Array(Some(replies)) = reply else {
            return Err(Stop::Finding(format!("the reply to KEYS is {reply:?}")));
        };
        let mut found = BTreeSet::new();
        for reply in replies {
            match reply {
                Reply::Bulk(Some(name)) if found.insert(name.clone()) => {}
                other => {
                    return Err(Stop::Finding(format!("KEYS returns {other:?}, or a key twice")));
                }
            }
        }
        for lane in &self.lanes {
            for key in 0..lane.oracle.keys() {
                let name = values::key(lane.oracle.lane(), key);
                let is_found = found.remove(&name);
                let is_wrong = match lane.oracle.expected(key) {
                    Some(State::Absent) => is_found,
                    Some(State::Value(_, None)) => !is_found,
                    Some(State::Number(number)) => number != 0 && !is_found,
                    Some(State::Value(_, Some(_))) | None => false,
                };
                if is_wrong {
                    let name = String::from_utf8_lossy(&name).into_owned();
                    return Err(Stop::Finding(format!(
                        "GET and KEYS differ: KEYS {} {name}",
                        if is_found { "returns" } else { "omits" }
                    )));
                }
            }
        }
        match found.into_iter().next() {
            Some(name) => Err(Stop::Finding(format!(
                "KEYS returns {:?}, which no client wrote",
                String::from_utf8_lossy(&name)
            ))),
            None => Ok(()),
        }
    }

    /// Stops the server by SIGTERM, which must result in status 0, and runs `siltstone verify`.
    ///
    /// # Errors
    /// The status is not 0, or `verify` finds damage.
    pub fn stop_and_verify(&mut self, server: &mut Server) -> Result<()> {
        server.stop().map_err(Stop::Finding)?;
        let store = self.store.display().to_string();
        let answer = process::command(&self.settings.program, &["verify", &store])?;
        if answer.status == Some(0) {
            return Ok(());
        }
        Err(Stop::Finding(format!("verify of a closed store: {}", answer.summary())))
    }

    /// Waits until the server accepts a write on a new connection.
    ///
    /// # Errors
    /// The server refuses writes for longer than `limit`; the error has the last reply.
    pub fn await_writes(&mut self, server: &mut Server, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        loop {
            let answer = Connection::open(server.address(), REPLY_TIMEOUT)
                .and_then(|mut connection| connection.command(&["SET", "probe", "1"]))
                .map_err(|error| error.to_string());
            // This key belongs to no lane, so it is removed before KEYS is compared.
            let is_removed = match &answer {
                Ok(Reply::Simple(ok)) if ok == "OK" => {
                    Connection::open(server.address(), REPLY_TIMEOUT)
                        .and_then(|mut connection| connection.command(&["DEL", "probe"]))
                        .is_ok_and(|reply| reply == Reply::Integer(1))
                }
                _ => false,
            };
            if is_removed {
                return Ok(());
            }
            if let Some(status) = server.ended() {
                return Err(Stop::Finding(format!(
                    "the server has exited: {status}; {}",
                    server.stderr_tail()
                )));
            }
            if Instant::now() > until {
                return Err(Stop::Finding(format!(
                    "writes are still refused {limit:?} after the fault is over: {answer:?}; {}",
                    server.stderr_tail()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
