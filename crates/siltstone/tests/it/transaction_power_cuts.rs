//! Power cuts at any file operation during commits: every transaction is atomic, a prefix
//! of the commit order survives, and synced commits are in it. `SILTSTONE_POWER_CUTS` sets the
//! number of cuts.

use std::sync::Arc;

use siltstone::{Durability, Engine, Env, Error, ManualClock, Table, engines};
use siltstone_faults::FaultyVfs;
use siltstone_testkit::{Scale, TestRng};
use siltstone_vfs::Vfs;

const TRANSACTIONS: u64 = 60;
const ACCOUNTS: u64 = 6;
const MONEY: u64 = 1000;

/// A commit that returned.
struct CommitRecord {
    number: u64,
    is_synced: bool,
}

fn open(disk: &FaultyVfs, seed: u64) -> siltstone::Result<Arc<dyn Engine>> {
    let env = Env::replayable(Arc::new(ManualClock::at(1)), seed);
    let options = [("memtable", "64KiB"), ("l0_capacity", "0")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    engines::open("lsm", vfs, &env, &options.into())
}

fn account(number: u64) -> Vec<u8> {
    format!("account-{number}").into_bytes()
}

fn number(value: Option<Vec<u8>>, missing: u64) -> u64 {
    value.map_or(missing, |value| u64::from_le_bytes(*value.first_chunk().unwrap()))
}

/// Moves money until power goes off; returns the commits that returned, in order.
fn work(disk: &FaultyVfs, seed: u64) -> Vec<CommitRecord> {
    let mut committed = Vec::new();
    let Ok(engine) = open(disk, seed) else { return committed };
    let table = Table::new("t", engine);
    let mut rng = TestRng::of(seed, 1);
    for number in 1..=TRANSACTIONS {
        let is_synced = rng.one_in(4);
        if transfer(&table, &mut rng, number, is_synced).is_err() {
            assert!(disk.power_is_off());
            break;
        }
        committed.push(CommitRecord { number, is_synced });
    }
    committed
}

fn transfer(table: &Table, rng: &mut TestRng, id: u64, is_synced: bool) -> Result<(), Error> {
    let mut transaction = table.transaction()?;
    let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
    let amount = rng.below(100);
    let of = number(transaction.get(&account(from))?, MONEY);
    transaction.put(&account(from), &of.wrapping_sub(amount).to_le_bytes())?;
    let of = number(transaction.get(&account(to))?, MONEY);
    transaction.put(&account(to), &of.wrapping_add(amount).to_le_bytes())?;
    // Far apart in the batch and in the log, so that a cut can fall between them.
    let filler = rng.below(6000) as usize;
    transaction.put(b"filler", &rng.bytes(filler))?;
    transaction.put(format!("receipt-{id:04}").as_bytes(), &id.to_le_bytes())?;
    transaction.put(b"last", &id.to_le_bytes())?;
    // A plain write in between goes through the same queue.
    table.put(b"plain", &id.to_le_bytes())?;
    transaction.commit(if is_synced { Durability::Synced } else { Durability::Buffered })
}

#[test]
fn transactions_survive_power_cuts_atomically_and_in_order() {
    let cuts = Scale::from_env().power_cuts;
    let (mut cut, mut lost) = (0, 0);
    for case in 0..cuts {
        let seed = case / 16;
        let length = {
            let disk = FaultyVfs::new(seed);
            assert_eq!(work(&disk, seed).len() as u64, TRANSACTIONS);
            disk.operations()
        };
        let mut rng = TestRng::of(case, 2);
        let disk = FaultyVfs::new(seed);
        disk.cut_power_at(rng.below(length));
        let committed = work(&disk, seed);
        let survivors = disk.survivors(rng.draw());
        let table = Table::new("t", open(&survivors, seed).unwrap());
        let get = |key: &[u8]| table.get(key).unwrap();

        let last = number(get(b"last"), 0);
        let synced = committed.iter().filter(|c| c.is_synced).map(|c| c.number).max();
        assert!(last >= synced.unwrap_or(0), "case {case}: {last} is there, {synced:?} was synced");
        // The commit in progress at the cut may have survived too.
        let returned = committed.last().map_or(0, |committed| committed.number);
        assert!(last <= returned + 1, "case {case}: {last} is there, {returned} returned");
        let receipts: Vec<_> = table.prefix("receipt-").unwrap().map(|e| e.unwrap().0).collect();
        let expected: Vec<_> =
            (1..=last).map(|id| format!("receipt-{id:04}").into_bytes()).collect();
        assert_eq!(receipts, expected, "case {case}");
        let sum = (0..ACCOUNTS).map(|n| number(get(&account(n)), MONEY)).fold(0, u64::wrapping_add);
        assert_eq!(sum, ACCOUNTS * MONEY, "case {case}");
        cut += u64::from(disk.power_is_off());
        lost += returned.saturating_sub(last);
        // The table accepts writes again.
        transfer(&table, &mut rng, last + 1, true).unwrap();
    }
    println!("{cut} power cuts, {lost} unsynced transactions lost");
}
