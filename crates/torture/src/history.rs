//! A history: one store from its making on, and all that is done to it by one fault class.
//!
//! A history is determined by engine, fault class and seed, as far as real processes allow: what the
//! lanes write, which options the table has and when the fault strikes follow from the seed; how far the
//! server got by then does not.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::client::{Connection, Reply};
use crate::engines::Engine;
use crate::finding::{Result, Stop};
use crate::lane::{Counts, Lane, Manners, Mix};
use crate::load::{self, Control};
use crate::oracle::State;
use crate::process::{self, FSYNC, Launch, Server};
use crate::random::Random;
use crate::runner::Settings;
use crate::values;

/// Connections that write.
pub const LANES: u32 = 3;
/// Lines of the story that a report has.
const STORY: usize = 30;
/// How long a client waits for a reply. Stalls of seconds are no finding on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// A history under way.
pub struct History<'a> {
    /// How the run is set up.
    pub settings: &'a Settings,
    /// The engine.
    pub engine: &'static Engine,
    /// Choices of this history.
    pub random: Random,
    /// A directory of the history's own.
    pub root: PathBuf,
    /// Where the store is: in `root`, or on a file system that the fault class has mounted.
    pub store: PathBuf,
    /// Who writes.
    pub lanes: Vec<Lane>,
    /// What `--table` gets.
    pub table: String,
    /// More arguments of `serve`.
    pub serve: Vec<String>,
    /// How long the last start took until the server listened.
    pub open_time: Duration,
    round: u64,
    rounds: u64,
    story: Vec<String>,
    progress: &'a (dyn Fn() + Sync),
}

impl<'a> History<'a> {
    /// A history of `rounds` rounds, with nothing done yet. `progress` is called behind every round.
    pub fn new(
        settings: &'a Settings,
        engine: &'static Engine,
        seed: u64,
        rounds: u64,
        root: PathBuf,
        progress: &'a (dyn Fn() + Sync),
    ) -> Self {
        let mut random = Random::new(seed);
        let table = format!("default={}{}", engine.name, random.pick(engine.variants));
        let store = root.join("store");
        let mut history = History {
            settings,
            engine,
            random,
            root,
            store,
            lanes: Vec::new(),
            table,
            serve: Vec::new(),
            open_time: Duration::from_millis(20),
            round: 0,
            rounds,
            story: Vec::new(),
            progress,
        };
        history.set_mix(Mix::default());
        history
    }

    /// Has the lanes write so, from empty keys on.
    pub fn set_mix(&mut self, mix: Mix) {
        let random = &mut self.random;
        self.lanes = (0..LANES).map(|lane| Lane::new(lane, mix, random.next())).collect();
    }

    /// Takes options with which the store asks for space as long as it is written to.
    pub fn grow(&mut self) {
        if !self.engine.growing.is_empty() {
            let options = self.random.pick(self.engine.growing);
            self.table = format!("default={}{options}", self.engine.name);
        }
    }

    /// Begins the next round; false when all are done.
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

    /// The round that goes on, counted from 1.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Notes what is done, for reports.
    pub fn tell(&mut self, what: impl Into<String>) {
        let line = format!("round {}: {}", self.round, what.into());
        if self.story.len() == STORY {
            self.story.remove(0);
        }
        self.story.push(line);
    }

    /// What was done last.
    pub fn story(&self) -> &[String] {
        &self.story
    }

    /// What all lanes have done.
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

    /// One of the three levels of `--fsync`.
    pub fn any_fsync(&mut self) -> &'static str {
        self.random.pick::<&'static str>(&FSYNC)
    }

    /// How the server of this history is started.
    pub fn launch(&self, fsync: &'static str) -> Launch {
        Launch {
            program: self.settings.program.clone(),
            store: self.store.clone(),
            table: self.table.clone(),
            fsync,
            more: self.serve.clone(),
            log: self.root.join("server.log"),
        }
    }

    /// Starts the server and waits until it listens.
    ///
    /// # Errors
    /// It does not.
    pub fn start(&mut self, fsync: &'static str) -> Result<Server> {
        let begun = Instant::now();
        let server = Server::start(&self.launch(fsync)).map_err(Stop::Wrong)?;
        self.open_time = begun.elapsed();
        self.tell(format!("serve --table {} --fsync {fsync}", self.table));
        Ok(server)
    }

    /// Has the lanes write while `fault` runs.
    ///
    /// # Errors
    /// See [`load::run`].
    pub fn load<T>(
        &mut self,
        server: &mut Server,
        manners: Manners,
        fault: impl FnOnce(&Control, &mut Server) -> Result<T>,
    ) -> Result<T> {
        let address = server.address();
        load::run(&mut self.lanes, address, PATIENCE, manners, |control| fault(control, server))
    }

    /// Reads all keys of all lanes and has them compared; sometimes the list of all keys, too.
    ///
    /// # Errors
    /// Something is lost, wrong, or there again.
    pub fn check(&mut self, server: &Server) -> Result<()> {
        for lane in &mut self.lanes {
            lane.check(server.address(), PATIENCE)?;
        }
        if self.random.percent(25) { self.check_names(server) } else { Ok(()) }
    }

    /// Whether KEYS tells the keys that there are. Right behind [`History::check`], when all is settled.
    fn check_names(&mut self, server: &Server) -> Result<()> {
        let lost = |error| Stop::Wrong(format!("KEYS is not answered: {error}"));
        let mut connection = Connection::open(server.address(), PATIENCE).map_err(lost)?;
        let reply = connection.ask(&["KEYS", "*"]).map_err(lost)?;
        let Reply::Array(Some(replies)) = reply else {
            return Err(Stop::Wrong(format!("KEYS is answered by {reply:?}")));
        };
        let mut found = BTreeSet::new();
        for reply in replies {
            match reply {
                Reply::Bulk(Some(name)) if found.insert(name.clone()) => {}
                other => return Err(Stop::Wrong(format!("KEYS tells {other:?}, or twice"))),
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
                    return Err(Stop::Wrong(format!(
                        "GET and KEYS differ: KEYS {} {name}",
                        if is_found { "tells" } else { "leaves out" }
                    )));
                }
            }
        }
        match found.into_iter().next() {
            Some(name) => Err(Stop::Wrong(format!(
                "KEYS tells {:?}, which nobody wrote",
                String::from_utf8_lossy(&name)
            ))),
            None => Ok(()),
        }
    }

    /// Ends the server by SIGTERM, which must end it with status 0, and has `siltstone verify` check every byte.
    ///
    /// # Errors
    /// The status is another, or the store is not sound.
    pub fn stop_and_verify(&mut self, server: &mut Server) -> Result<()> {
        server.stop().map_err(Stop::Wrong)?;
        let store = self.store.display().to_string();
        let answer = process::command(&self.settings.program, &["verify", &store])?;
        if answer.status == Some(0) {
            return Ok(());
        }
        Err(Stop::Wrong(format!("verify of a store that was closed: {}", answer.told())))
    }

    /// Waits until the server takes writes again from a connection of its own.
    ///
    /// # Errors
    /// It does not within `limit`; the last answer is told.
    pub fn await_writes(&mut self, server: &mut Server, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        loop {
            let answer = Connection::open(server.address(), PATIENCE)
                .and_then(|mut connection| connection.ask(&["SET", "probe", "1"]))
                .map_err(|error| error.to_string());
            // Its key is nobody's: gone before anybody looks.
            let is_gone = match &answer {
                Ok(Reply::Simple(ok)) if ok == "OK" => Connection::open(server.address(), PATIENCE)
                    .and_then(|mut connection| connection.ask(&["DEL", "probe"]))
                    .is_ok_and(|reply| reply == Reply::Integer(1)),
                _ => false,
            };
            if is_gone {
                return Ok(());
            }
            if let Some(status) = server.ended() {
                return Err(Stop::Wrong(format!(
                    "the server has ended: {status}; {}",
                    server.told()
                )));
            }
            if Instant::now() > until {
                return Err(Stop::Wrong(format!(
                    "writes are still refused {limit:?} after the fault is over: {answer:?}; {}",
                    server.told()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
