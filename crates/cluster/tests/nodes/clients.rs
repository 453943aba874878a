//! Concurrent clients, their histories, and the checks of these.
//!
//! Registers: gets, puts of unique values, and increments (a read and a proposal in its term); the
//! history of each key must be linearizable. Lists: appends of unique numbers in the same way; each
//! acknowledged one must be in the list once, no other twice, and no read may miss what an earlier
//! one has seen.
//!
//! As the server does, clients of one node lock a key from the read until the write is decided.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use siltstone_testkit::TestRng;
use siltstone_testkit::linear::{Act, NEVER, Operation, is_linearizable};

const CLIENTS: u64 = 4;
/// Registers at a time: each phase of a test has others, so that histories stay short.
const REGISTERS: u64 = 3;

/// What a node answers.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Done(T),
    /// No effect; the leader, if it is known.
    Refused(Option<u64>),
    Unknown,
}

/// Nodes as their clients see them.
pub(crate) trait Service: Sync {
    /// The nodes, 1 to this number.
    fn nodes(&self) -> u64;
    /// A linearizable read: the value, and the term for a write that depends on it.
    fn get(&self, node: u64, key: &str) -> Answer<(u64, Option<String>)>;
    fn put(&self, node: u64, term: Option<u64>, key: &str, value: &str) -> Answer<()>;
}

/// What clients did and saw.
#[derive(Default)]
pub(crate) struct Histories {
    clock: AtomicU64,
    last_value: AtomicU64,
    phase: AtomicU64,
    registers: Mutex<BTreeMap<String, Vec<Operation>>>,
    appends: Mutex<BTreeMap<String, Appends>>,
    list_reads: Mutex<BTreeMap<String, Vec<ListRead>>>,
    locks: Mutex<HashMap<(u64, String), ()>>,
    acknowledged: AtomicU64,
}

/// Numbers that were appended to a list: acknowledged ones, and those of unknown outcome.
type Appends = (Vec<u64>, HashSet<u64>);

/// A read of a list: the times of its call and return, and what it has seen.
type ListRead = (u64, u64, Vec<u64>);

impl Histories {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }

    /// Acknowledged writes.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(SeqCst)
    }

    /// Begins a phase with keys of its own.
    pub(crate) fn next_phase(&self) {
        self.phase.fetch_add(1, SeqCst);
    }

    /// Runs clients until `work` returns.
    pub(crate) fn run<T>(&self, service: &dyn Service, seed: u64, work: impl FnOnce() -> T) -> T {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (mut rng, is_over) = (TestRng::of(seed, client), &is_over);
                scope.spawn(move || {
                    let mut node = 1 + rng.below(service.nodes());
                    while !is_over.load(SeqCst) {
                        self.operate(service, &mut node, &mut rng);
                    }
                });
            }
            // Clients must end also if the work panics.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            is_over.store(true, SeqCst);
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn operate(&self, service: &dyn Service, node: &mut u64, rng: &mut TestRng) {
        let phase = self.phase.load(SeqCst);
        let register = format!("register-{phase}-{}", rng.below(REGISTERS));
        let list = format!("list-{phase}");
        let leader = match rng.below(8) {
            0..3 => self.get_register(service, *node, &register),
            3..5 => self.put_register(service, *node, &register),
            5..7 => self.increment(service, *node, &register),
            _ => self.append(service, *node, &list, rng),
        };
        match leader {
            Ok(()) => {}
            Err(leader) => {
                *node = leader.unwrap_or(1 + rng.below(service.nodes()));
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    fn record(&self, key: &str, called: u64, returned: u64, act: Act) {
        let mut registers = self.registers.lock().unwrap();
        registers.entry(key.into()).or_default().push(Operation { called, returned, act });
    }

    fn get_register(&self, service: &dyn Service, node: u64, key: &str) -> Result<(), Option<u64>> {
        let called = self.tick();
        match service.get(node, key) {
            Answer::Done((_, value)) => {
                let value = value.map(|value| value.parse().unwrap());
                self.record(key, called, self.tick(), Act::Read(value));
                Ok(())
            }
            Answer::Refused(leader) => Err(leader),
            Answer::Unknown => Err(None),
        }
    }

    fn put_register(&self, service: &dyn Service, node: u64, key: &str) -> Result<(), Option<u64>> {
        let Some(_lock) = self.lock(node, key) else { return Ok(()) };
        let value = self.last_value.fetch_add(1, SeqCst) + 1;
        let called = self.tick();
        let answer = service.put(node, None, key, &value.to_string());
        self.note_write(key, called, Act::Write(Some(value)), answer)
    }

    fn increment(&self, service: &dyn Service, node: u64, key: &str) -> Result<(), Option<u64>> {
        let Some(_lock) = self.lock(node, key) else { return Ok(()) };
        let called = self.tick();
        let (term, from) = match service.get(node, key) {
            Answer::Done((term, value)) => (term, value.map(|value| value.parse::<u64>().unwrap())),
            Answer::Refused(leader) => return Err(leader),
            Answer::Unknown => return Err(None),
        };
        // Far away from the values of puts.
        let to = from.unwrap_or_default() + (1 << 32);
        let answer = service.put(node, Some(term), key, &to.to_string());
        self.note_write(key, called, Act::Swap { from, to: Some(to) }, answer)
    }

    fn note_write(
        &self,
        key: &str,
        called: u64,
        act: Act,
        answer: Answer<()>,
    ) -> Result<(), Option<u64>> {
        match answer {
            Answer::Done(()) => {
                self.acknowledged.fetch_add(1, SeqCst);
                self.record(key, called, self.tick(), act);
                Ok(())
            }
            Answer::Refused(leader) => Err(leader),
            Answer::Unknown => {
                self.record(key, called, NEVER, act);
                Err(None)
            }
        }
    }

    fn append(
        &self,
        service: &dyn Service,
        node: u64,
        key: &str,
        rng: &mut TestRng,
    ) -> Result<(), Option<u64>> {
        let Some(_lock) = self.lock(node, key) else { return Ok(()) };
        let called = self.tick();
        let (term, value) = match service.get(node, key) {
            Answer::Done(found) => found,
            Answer::Refused(leader) => return Err(leader),
            Answer::Unknown => return Err(None),
        };
        let mut numbers = parse_list(value.as_deref());
        let read = (called, self.tick(), numbers.clone());
        self.list_reads.lock().unwrap().entry(key.into()).or_default().push(read);
        let number = self.last_value.fetch_add(1, SeqCst) + 1;
        numbers.push(number);
        // A leader may change between the two.
        std::thread::sleep(Duration::from_micros(rng.below(500)));
        let text: Vec<_> = numbers.iter().map(u64::to_string).collect();
        let answer = service.put(node, Some(term), key, &text.join(","));
        let mut appends = self.appends.lock().unwrap();
        let (acknowledged, unknown) = appends.entry(key.into()).or_default();
        match answer {
            Answer::Done(()) => {
                self.acknowledged.fetch_add(1, SeqCst);
                acknowledged.push(number);
                Ok(())
            }
            Answer::Refused(leader) => Err(leader),
            Answer::Unknown => {
                unknown.insert(number);
                Err(None)
            }
        }
    }

    /// Locks a key at a node, if it is free.
    fn lock<'h>(&'h self, node: u64, key: &str) -> Option<KeyLock<'h>> {
        let mut locks = self.locks.lock().unwrap();
        let key = (node, key.to_owned());
        match locks.insert(key.clone(), ()) {
            Some(()) => None,
            None => Some(KeyLock { histories: self, key }),
        }
    }

    /// Reads everything once more, and checks all that was seen.
    pub(crate) fn check(&self, service: &dyn Service) {
        let read = |key: &str| {
            for _ in 0..10_000 {
                for node in 1..=service.nodes() {
                    if let Answer::Done((_, value)) = service.get(node, key) {
                        return value;
                    }
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            panic!("key {key} cannot be read");
        };
        for (key, history) in self.registers.lock().unwrap().iter_mut() {
            let called = self.tick();
            let value = read(key).map(|value| value.parse().unwrap());
            history.push(Operation { called, returned: self.tick(), act: Act::Read(value) });
            assert!(is_linearizable(history), "the history of {key}: {history:#?}");
        }
        for (key, (acknowledged, unknown)) in self.appends.lock().unwrap().iter() {
            let last = parse_list(read(key).as_deref());
            let found: HashSet<u64> = last.iter().copied().collect();
            assert_eq!(found.len(), last.len(), "{key} has a number twice");
            let lost: Vec<_> = acknowledged.iter().filter(|at| !found.contains(at)).collect();
            assert!(lost.is_empty(), "{key} has lost {lost:?}");
            let known: HashSet<u64> = acknowledged.iter().chain(unknown).copied().collect();
            assert!(found.is_subset(&known), "{key} has numbers that were refused");
            let mut reads = self.list_reads.lock().unwrap().remove(key).unwrap_or_default();
            reads.sort_by_key(|(called, ..)| *called);
            for (at, (_, returned, numbers)) in reads.iter().enumerate() {
                assert!(last.starts_with(numbers), "{key}: a read has seen {numbers:?}");
                let later = reads[at..]
                    .iter()
                    .find(|(called, _, later)| called > returned && later.len() < numbers.len());
                assert!(later.is_none(), "{key}: a stale read of {later:?} after {numbers:?}");
            }
        }
    }
}

struct KeyLock<'h> {
    histories: &'h Histories,
    key: (u64, String),
}

impl Drop for KeyLock<'_> {
    fn drop(&mut self) {
        self.histories.locks.lock().unwrap().remove(&self.key);
    }
}

fn parse_list(text: Option<&str>) -> Vec<u64> {
    let numbers = text.unwrap_or_default().split(',').filter(|number| !number.is_empty());
    numbers.map(|number| number.parse().unwrap()).collect()
}

#[test]
fn lost_write_and_stale_read_of_a_list_are_found() {
    struct Fixed(&'static str);
    impl Service for Fixed {
        fn nodes(&self) -> u64 {
            1
        }
        fn get(&self, _: u64, _: &str) -> Answer<(u64, Option<String>)> {
            Answer::Done((1, Some(self.0.into())))
        }
        fn put(&self, _: u64, _: Option<u64>, _: &str, _: &str) -> Answer<()> {
            Answer::Done(())
        }
    }
    let finds = |last: &'static str, reads: &[&[u64]]| {
        let histories = Histories::default();
        histories.appends.lock().unwrap().insert("k".into(), (vec![1, 2], HashSet::from([3])));
        let reads = reads.iter().enumerate();
        let reads = reads.map(|(at, seen)| (2 * at as u64, 2 * at as u64 + 1, seen.to_vec()));
        histories.list_reads.lock().unwrap().insert("k".into(), reads.collect());
        let check = std::panic::AssertUnwindSafe(|| histories.check(&Fixed(last)));
        std::panic::catch_unwind(check).is_err()
    };
    assert!(!finds("1,2", &[&[], &[1], &[1, 2]]));
    assert!(!finds("1,3,2", &[&[1, 3]]));
    assert!(finds("1", &[]));
    assert!(finds("1,2,2", &[]));
    assert!(finds("1,2,4", &[]));
    assert!(finds("1,2", &[&[1, 2], &[1]]));
    assert!(finds("1,3,2", &[&[1, 2]]));
}
