//! Two-phase commit under power cuts.
//!
//! ```text
//!   two families with values, closed
//!     └─ open, steps ──✂ ─ survivors ─ open, check, steps ──✂ ─ survivors ─ … ─ decide all, open
//! ```
//!
//! A step is one write: a prepare, a commit, a rollback, or a transaction of one phase, synced or
//! buffered; or a flush. One run in eight ends with a process crash instead of a power cut.
//!
//! Checked after each open: the entries and the prepared transactions are those after some number
//! of writes; none of the synced ones is missing, after a process crash none at all. Exactly the
//! keys of prepared transactions are locked. Decisions on them are applied whole or not at all.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_faults::FaultyVfs;
use siltstone_testkit::TestRng;
use store::{Db, DbOptions, Env, SystemClock};

use super::prepared::{recover, take_prepared};
use super::*;
use crate::database::Wanted;
use crate::options::Options;

const CASES: u64 = 150;
const CUTS: usize = 3;
const STEPS: u64 = 24;
/// About as many operations of the disk as the steps take.
const OPERATIONS: u64 = 60;
const MAX_PREPARED: usize = 3;
const KEYS_PER_FAMILY: u8 = 8;

/// Values by key of the store; `None` removes one.
type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// What a database shows.
#[derive(Debug, Clone, Default, PartialEq)]
struct State {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    prepared: BTreeMap<Vec<u8>, Writes>,
}

impl State {
    fn apply(&mut self, writes: &Writes) {
        for (key, value) in writes {
            match value {
                Some(value) => drop(self.entries.insert(key.clone(), value.clone())),
                None => drop(self.entries.remove(key)),
            }
        }
    }

    fn is_locked(&self, key: &[u8]) -> bool {
        self.prepared.values().any(|writes| writes.contains_key(key))
    }
}

/// The states that the database has had, one per write.
struct History {
    states: Vec<State>,
    /// The last one that is synced, and the last one that was acknowledged.
    synced: usize,
    acknowledged: usize,
}

impl History {
    fn of(state: State) -> Self {
        History { states: vec![state], synced: 0, acknowledged: 0 }
    }

    fn now(&self) -> State {
        self.states.last().unwrap().clone()
    }

    /// Notes the outcome of a write that leads to `state`. Returns whether it was acknowledged.
    fn note(&mut self, state: State, is_synced: bool, outcome: Result<(), Failure>) -> bool {
        self.states.push(state);
        if outcome.is_ok() {
            self.acknowledged = self.states.len() - 1;
            if is_synced {
                self.synced = self.acknowledged;
            }
        }
        outcome.is_ok()
    }
}

/// The keys of both families.
fn keys() -> impl std::iter::Iterator<Item = (u32, Vec<u8>)> {
    (0..2).flat_map(|family| (0..KEYS_PER_FAMILY).map(move |key| (family, vec![b'a' + key])))
}

fn db_options() -> DbOptions {
    DbOptions { env: Env::replayable(Arc::new(SystemClock), 1), ..DbOptions::default() }
}

fn open(disk: &FaultyVfs) -> Result<Database, Failure> {
    let mut options = Options::default();
    options.scalars_mut().set("create_missing_column_families", 1u8);
    let db = Db::open_vfs(Arc::new(disk.clone()), db_options())?;
    let wanted = ["default", "one"].map(|name| Wanted::family(name, &options));
    let families = Arc::default();
    let mut database = Database::of_store(db, &options, &wanted, families, false, "db")?.0;
    let locks = Arc::new(Locks::new(0, 0));
    recover(&database, &locks)?;
    database.locks = Some(locks);
    Ok(database)
}

/// A database with a value per key, which was closed.
fn create(seed: u64) -> (FaultyVfs, State) {
    let disk = FaultyVfs::new(seed);
    Db::create_vfs(Arc::new(disk.clone()), db_options()).unwrap().close().unwrap();
    let database = open(&disk).unwrap();
    let mut state = State::default();
    for (family, key) in keys() {
        let key = entry_key(family, &key);
        database.table().put(&key, b"old").unwrap();
        state.entries.insert(key, b"old".to_vec());
    }
    database.db().close().unwrap();
    (disk, state)
}

fn entries(database: &Database) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let all = database.table().iter().unwrap().map(Result::unwrap);
    let all = all.map(|(key, entry)| (key, entry.value));
    all.filter(|(key, _)| layout::split(key).is_some()).collect()
}

fn writes_of(transaction: &Transaction) -> Writes {
    let ops = transaction.writes.batch.ops.iter_all();
    let write = |op| match op {
        BatchOp::Point(Op::Put { key, value, .. }) => (key.to_vec(), Some(value.to_vec())),
        BatchOp::Point(Op::Delete { key }) => (key.to_vec(), None),
        other => panic!("{other:?}"),
    };
    ops.map(write).collect()
}

/// Checks that exactly the keys of the prepared transactions are locked.
fn check_locks(database: &Database, state: &State) {
    let locks = database.locks.as_deref().unwrap();
    for (family, key) in keys() {
        let (owner, key) = (locks.new_owner(), entry_key(family, &key));
        let locked = locks.lock(owner, &key, true, Some(Duration::ZERO));
        assert_eq!(locked.is_err(), state.is_locked(&key), "the lock of {key:?} in {state:?}");
        locks.release(owner, [key].iter());
    }
}

struct Run<'r> {
    rng: &'r mut TestRng,
    database: Database,
    history: History,
    prepared: Vec<Transaction>,
    /// The number of transactions that were begun.
    begun: u64,
}

impl Run<'_> {
    /// Begins a transaction with writes to keys that are not locked.
    fn begin(&mut self, state: &State) -> (Transaction, Writes, bool) {
        let is_synced = self.rng.one_in(2);
        let mut options = Plain::default();
        options.scalars_mut().set("sync", u8::from(is_synced));
        let mut transaction = Transaction::begin(&self.database, &options, &Plain::default());
        let (mut writes, value) = (Writes::new(), format!("{}", self.begun).into_bytes());
        self.begun += 1;
        for (family, key) in keys() {
            let stored = entry_key(family, &key);
            if state.is_locked(&stored) || !self.rng.one_in(6) {
                continue;
            }
            if self.rng.one_in(4) {
                transaction.delete(family, &key).unwrap();
                writes.insert(stored, None);
            } else {
                transaction.put(family, &key, &value).unwrap();
                writes.insert(stored, Some(value.clone()));
            }
        }
        (transaction, writes, is_synced)
    }

    /// Commits or rolls back one of the prepared transactions.
    fn decide(&mut self, at: usize) -> bool {
        let mut transaction = self.prepared.swap_remove(at);
        let mut state = self.history.now();
        let writes = state.prepared.remove(&transaction.name).unwrap();
        let is_synced = matches!(transaction.durability, Durability::Synced);
        let outcome = match self.rng.one_in(3) {
            true => transaction.rollback(),
            false => {
                state.apply(&writes);
                transaction.commit()
            }
        };
        self.history.note(state, is_synced, outcome)
    }

    /// Returns whether the disk works on.
    fn step(&mut self) -> bool {
        let mut state = self.history.now();
        match self.rng.below(8) {
            0 => {
                let outcome = self.database.table().flush().map_err(Failure::from);
                self.history.note(state, true, outcome)
            }
            1 => {
                let (mut transaction, writes, is_synced) = self.begin(&state);
                if writes.is_empty() {
                    return true;
                }
                state.apply(&writes);
                let outcome = transaction.commit();
                self.history.note(state, is_synced, outcome)
            }
            2..5 if !self.prepared.is_empty() => {
                let at = self.rng.index(self.prepared.len());
                self.decide(at)
            }
            _ if self.prepared.len() < MAX_PREPARED => {
                let (mut transaction, writes, is_synced) = self.begin(&state);
                let name = format!("transaction {}", self.begun).into_bytes();
                transaction.set_name(&name).unwrap();
                state.prepared.insert(name, writes);
                let outcome = transaction.prepare();
                self.prepared.push(transaction);
                self.history.note(state, is_synced, outcome)
            }
            _ => true,
        }
    }

    /// The database after a cut.
    fn reopen(&mut self, disk: &FaultyVfs, is_power_cut: bool) {
        self.prepared.clear();
        self.database = open(disk).unwrap();
        self.prepared = take_prepared(&self.database);
        let prepared = self.prepared.iter().map(|it| (it.name.clone(), writes_of(it)));
        let found = State { entries: entries(&self.database), prepared: prepared.collect() };
        check_locks(&self.database, &found);
        let History { states, synced, acknowledged } = &mut self.history;
        let last = states.iter().rposition(|state| *state == found);
        let least = if is_power_cut { *synced } else { *acknowledged };
        let last = last.filter(|last| *last >= least);
        let last = last.unwrap_or_else(|| panic!("{found:#?} is none of {:#?}", &states[least..]));
        if is_power_cut {
            // All that it shows is durable now.
            self.history = History::of(found);
        } else {
            states.truncate(last + 1);
            *synced = (*synced).min(last);
            *acknowledged = last;
        }
    }
}

#[test]
fn prepared_transactions_survive_power_cuts_until_they_are_decided() {
    let (mut found, mut decided) = (0, 0);
    for seed in 0..CASES {
        let mut rng = TestRng::of(seed, 1);
        let (mut disk, state) = create(seed);
        let database = open(&disk).unwrap();
        let history = History::of(state);
        let mut run = Run { rng: &mut rng, database, history, prepared: Vec::new(), begun: 0 };
        for _ in 0..CUTS {
            disk.cut_power_at(disk.operations() + run.rng.below(OPERATIONS));
            let _ = (0..STEPS).all(|_| run.step());
            disk.cut_power();
            let is_power_cut = !run.rng.one_in(8);
            disk = match is_power_cut {
                true => disk.survivors(run.rng.draw()),
                false => disk.after_crash(run.rng.draw()),
            };
            run.reopen(&disk, is_power_cut);
            found += run.prepared.len();
        }
        while !run.prepared.is_empty() {
            assert!(run.decide(0), "seed {seed}");
            check_locks(&run.database, &run.history.now());
            decided += 1;
        }
        run.database.db().close().unwrap();
        run.reopen(&disk, false);
        assert!(run.prepared.is_empty() && run.history.now().prepared.is_empty(), "seed {seed}");
    }
    assert!(found > 50 && decided > 25, "{found} found, {decided} decided");
}
