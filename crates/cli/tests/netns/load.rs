//! The clients of a round: threads that run commands until the round ends, and what they have seen.
//!
//! Each tag has keys of its own, in one slot: a counter, a register, two counters that transactions
//! increment together, and keys that expire. The keys are new in each round.
//!
//! A node holds its replies behind a write that cannot be committed, so an old leader gives stale
//! reads away, if it has any, only to those who come without writes. Therefore a reader per tag
//! stays at its node as long as it can, and in some rounds all others avoid the leader before it
//! is hit.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use siltstone_testkit::TestRng;
use siltstone_testkit::linear::{Act, NEVER, Operation};

use super::history::{Count, check_counter, check_expiry, check_register};
use crate::three_nodes::client::{Answer, ClusterClient};
use crate::three_nodes::nodes::wait_for;

/// Keys with these tags are in the groups 0 to 3 of four.
pub const TAGS: [&str; 4] = ["b", "c", "d", "a"];
/// Between the commands of one client, so that nodes have time for other things.
const PAUSE: Duration = Duration::from_millis(4);
const TIME_TO_LIVE: &str = "250";
/// Longer than a fault.
const PATIENCE: Duration = Duration::from_secs(5);

/// What one round shares.
pub struct Round<'a> {
    pub clients: &'a [SocketAddr],
    pub number: usize,
    pub begin: Instant,
    pub ends: AtomicBool,
    /// The successes of all clients.
    pub successes: AtomicU64,
    /// The node to which only readers go.
    pub avoided: Mutex<Option<SocketAddr>>,
}

/// What one client has seen.
#[derive(Default)]
pub struct Record {
    tag: usize,
    counts: BTreeMap<String, Vec<Count>>,
    registers: BTreeMap<String, Vec<Operation>>,
    expiring: Vec<Vec<bool>>,
    /// When commands have succeeded.
    successes: Vec<u64>,
}

/// The numbers of a round.
#[derive(Debug, Default, Clone, Copy)]
pub struct Totals {
    pub acknowledged: u64,
    pub unknown: u64,
    pub reads: u64,
}

struct Client<'a> {
    round: &'a Round<'a>,
    client: ClusterClient,
    /// Whether it goes to all nodes, also to the one that others avoid.
    stays: bool,
    rng: TestRng,
    record: Record,
}

#[derive(Debug, Clone, Copy)]
enum Work {
    Counter,
    Register,
    Transactions,
    Expiry,
    Reads,
}

impl<'a> Round<'a> {
    pub fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// Starts the clients.
    pub fn start<'scope>(
        &'a self,
        scope: &'scope std::thread::Scope<'scope, 'a>,
    ) -> Vec<std::thread::ScopedJoinHandle<'scope, Record>> {
        use Work::{Counter, Expiry, Reads, Register, Transactions};
        let works = [Counter, Counter, Register, Register, Transactions, Expiry, Reads];
        let all = (0..TAGS.len()).flat_map(|tag| works.map(|work| (tag, work)));
        let start = |(thread, (tag, work)): (usize, (usize, Work))| {
            let rng = TestRng::of(self.number as u64, thread as u64);
            let record = Record { tag, ..Record::default() };
            let client = match work {
                Reads => ClusterClient::with_timeout(self.clients, PATIENCE),
                _ => ClusterClient::impatient(self.clients),
            };
            let stays = matches!(work, Reads);
            let client = Client { round: self, client, stays, rng, record };
            scope.spawn(move || client.run(work))
        };
        all.enumerate().map(start).collect()
    }

    /// Waits until each client has had time for several successes.
    pub fn wait_for_successes(&self) {
        let before = self.successes.load(SeqCst) + 200;
        wait_for("successes", || self.successes.load(SeqCst) > before);
    }
}

impl Client<'_> {
    fn run(mut self, work: Work) -> Record {
        while !self.round.ends.load(SeqCst) {
            match work {
                Work::Counter => self.count(),
                Work::Register => {
                    let is_write = self.rng.one_in(2);
                    self.register(is_write);
                }
                Work::Reads => self.register(false),
                Work::Transactions => self.transaction(),
                Work::Expiry => self.expiry(),
            }
            std::thread::sleep(PAUSE);
        }
        self.record
    }

    fn key(&self, name: &str) -> String {
        format!("{{{}}}{}:{name}", TAGS[self.record.tag], self.round.number)
    }

    /// Runs a command; returns its times and the reply, `None` if it has had no effect.
    fn timed(
        &mut self,
        run: impl FnOnce(&mut ClusterClient) -> Answer,
    ) -> Option<(u64, u64, String)> {
        if !self.stays {
            self.client.avoid(*self.round.avoided.lock().unwrap());
        }
        let called = self.round.now();
        let answer = run(&mut self.client);
        let returned = self.round.now();
        match answer {
            Answer::Refused => None,
            Answer::Unknown => Some((called, NEVER, String::new())),
            Answer::Reply(reply) => {
                self.record.successes.push(returned);
                self.round.successes.fetch_add(1, SeqCst);
                Some((called, returned, reply))
            }
        }
    }

    fn note_count(&mut self, key: String, is_increment: bool, outcome: (u64, u64, &str)) {
        let (called, returned, reply) = outcome;
        let value = match reply {
            "" | "$-1" => 0,
            reply => reply.trim_start_matches(':').parse().unwrap(),
        };
        if is_increment || returned != NEVER {
            let count = Count { called, returned, is_increment, value };
            self.record.counts.entry(key).or_default().push(count);
        }
    }

    fn count(&mut self) {
        let (key, is_increment) = (self.key("count"), !self.rng.one_in(3));
        let command = if is_increment { "INCR" } else { "GET" };
        if let Some((called, returned, reply)) = self.timed(|client| client.call(&[command, &key]))
        {
            self.note_count(key, is_increment, (called, returned, &reply));
        }
    }

    fn register(&mut self, is_write: bool) {
        let key = self.key("register");
        let value = self.rng.draw() >> 1;
        let done = match is_write {
            true => self.timed(|client| client.call(&["SET", &key, &value.to_string()])),
            false => self.timed(|client| client.call(&["GET", &key])),
        };
        let Some((called, returned, reply)) = done else { return };
        let act = match is_write {
            true => Act::Write(Some(value)),
            false if returned == NEVER => return,
            false => Act::Read((reply != "$-1").then(|| reply.parse().unwrap())),
        };
        let operation = Operation { called, returned, act };
        self.record.registers.entry(key).or_default().push(operation);
    }

    /// Two counters that are always equal.
    fn transaction(&mut self) {
        let keys = [self.key("one"), self.key("other")];
        let is_increment = !self.rng.one_in(3);
        let command = if is_increment { "INCR" } else { "GET" };
        let commands = [[command, &keys[0]], [command, &keys[1]]];
        let commands = [&commands[0][..], &commands[1]];
        let Some((called, returned, reply)) = self.timed(|client| client.transaction(&commands))
        else {
            return;
        };
        let replies: Vec<_> = reply.split(',').collect();
        if returned != NEVER {
            assert_eq!(replies.len(), 2, "EXEC: {reply}");
            assert_eq!(replies[0], replies[1], "EXEC: half of a transaction is visible");
        }
        let [one, _] = keys;
        self.note_count(one, is_increment, (called, returned, replies[0]));
    }

    /// A key that expires, and reads of it.
    fn expiry(&mut self) {
        let key = self.key(&format!("expires{}", self.record.expiring.len()));
        let set = ["SET", &key, "v", "PX", TIME_TO_LIVE];
        let is_set = self.timed(|client| client.call(&set));
        if is_set.is_none_or(|(_, returned, _)| returned == NEVER) {
            return;
        }
        let mut reads = Vec::new();
        for _ in 0..40 {
            let read = self.timed(|client| client.call(&["GET", &key]));
            if let Some((_, returned, reply)) = read
                && returned != NEVER
            {
                reads.push(reply != "$-1");
            }
            if self.round.ends.load(SeqCst) {
                break;
            }
            std::thread::sleep(2 * PAUSE);
        }
        self.record.expiring.push(reads);
    }
}

/// What a node says of itself, each time that it changes, with the time in milliseconds.
pub fn observe(round: &Round<'_>, node: SocketAddr) -> Vec<String> {
    let mut client = ClusterClient::with_timeout(&[node], Duration::from_millis(300));
    let (mut seen, mut last) = (Vec::new(), String::new());
    while !round.ends.load(SeqCst) {
        let state = match client.call(&["CLUSTER", "STATUS"]) {
            Answer::Reply(reply) => {
                let is_shown = |line: &&str| {
                    ["role", "term", "leader", "voters"].contains(&line.split(':').next().unwrap())
                };
                reply.lines().filter(is_shown).collect::<Vec<_>>().join(" ")
            }
            _ => "no answer".to_owned(),
        };
        if state != last {
            seen.push(format!("{:6} ms  {node}  {state}", round.now() / 1_000_000));
            last = state;
        }
        std::thread::sleep(10 * PAUSE);
    }
    seen
}

/// The longest time without any success of a group that reaches into the time after `from`.
pub fn longest_gap(records: &[Record], groups: usize, from: u64) -> Duration {
    let of_group = |group: usize| {
        let of_group = records.iter().filter(|record| record.tag % groups == group);
        let mut successes: Vec<_> =
            of_group.flat_map(|record| record.successes.iter().copied()).collect();
        successes.sort_unstable();
        let gaps = successes.windows(2).filter(|pair| pair[1] > from);
        gaps.map(|pair| pair[1] - pair[0].max(from)).max().unwrap_or(0)
    };
    Duration::from_nanos((0..groups).map(of_group).max().unwrap_or(0))
}

/// Reads the last values and checks everything.
pub fn check(round: &Round<'_>, records: Vec<Record>) -> Totals {
    let mut totals = Totals::default();
    let mut last = ClusterClient::impatient(round.clients);
    let mut read = |key: &str| {
        let mut value = String::new();
        wait_for("the last read", || match last.call(&["GET", key]) {
            Answer::Reply(reply) => {
                value = reply;
                true
            }
            _ => false,
        });
        if value == "$-1" { None } else { Some(value.parse::<u64>().unwrap()) }
    };
    let (mut counts, mut registers) = (BTreeMap::new(), BTreeMap::new());
    for record in records {
        for (key, mut history) in record.counts {
            counts.entry(key).or_insert_with(Vec::new).append(&mut history);
        }
        for (key, mut history) in record.registers {
            registers.entry(key).or_insert_with(Vec::new).append(&mut history);
        }
        for reads in &record.expiring {
            totals.reads += reads.len() as u64;
            check_expiry(reads).unwrap();
        }
    }
    for (key, history) in &counts {
        for count in history {
            totals.note(count.is_increment, count.returned);
        }
        let last = read(key).unwrap_or(0);
        check_counter(history, last).unwrap_or_else(|wrong| panic!("{key}: {wrong}"));
    }
    for (key, mut history) in registers {
        for operation in &history {
            totals.note(matches!(operation.act, Act::Write(_)), operation.returned);
        }
        let called = round.now();
        let act = Act::Read(read(&key));
        history.push(Operation { called, returned: round.now(), act });
        check_register(&history).unwrap_or_else(|wrong| panic!("{key}: {wrong}"));
    }
    totals
}

impl Totals {
    fn note(&mut self, is_write: bool, returned: u64) {
        match (is_write, returned) {
            (_, NEVER) => self.unknown += 1,
            (true, _) => self.acknowledged += 1,
            (false, _) => self.reads += 1,
        }
    }

    pub fn add(&mut self, other: Totals) {
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.reads += other.reads;
    }
}
