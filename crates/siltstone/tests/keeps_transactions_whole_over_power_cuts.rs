//! Power goes off at any operation of the medium while transactions are committed: each is then wholly
//! there or not at all, in the order of the commits, and those that were synced are there.
//! `SILTSTONE_POWER_CUTS` says how often.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone::{Durability, Engine, Env, Error, ManualClock, Table, engines};
use siltstone_faults::Faulty;
use siltstone_testkit::{Dice, Scale};
use siltstone_vfs::Vfs;

const TRANSACTIONS: u64 = 60;
const ACCOUNTS: u64 = 6;
const MONEY: u64 = 1000;

/// A transaction that was tried: the accounts' money after it, and whether it must have survived.
struct Tried {
    number: u64,
    is_synced: bool,
}

fn open(medium: &Faulty, seed: u64) -> siltstone::Result<Arc<dyn Engine>> {
    let env = Env::replayable(Arc::new(ManualClock::at(1)), seed);
    let options = [("memtable", "64KiB"), ("container", "0")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let vfs: Arc<dyn Vfs> = Arc::new(medium.clone());
    engines::open("lsm", vfs, &env, &options.into())
}

fn account(number: u64) -> Vec<u8> {
    format!("account-{number}").into_bytes()
}

fn number(value: Option<Vec<u8>>, missing: u64) -> u64 {
    value.map_or(missing, |value| u64::from_le_bytes(*value.first_chunk().unwrap()))
}

/// Moves money until power goes off. What was told to be committed, in that order.
fn work(medium: &Faulty, seed: u64) -> Vec<Tried> {
    let mut tried = Vec::new();
    let Ok(engine) = open(medium, seed) else { return tried };
    let table = Table::new("t", engine);
    let mut dice = Dice::of(seed, 1);
    for number in 1..=TRANSACTIONS {
        let is_synced = dice.one_in(4);
        if transfer(&table, &mut dice, number, is_synced).is_err() {
            assert!(medium.power_is_off());
            break;
        }
        tried.push(Tried { number, is_synced });
    }
    tried
}

fn transfer(table: &Table, dice: &mut Dice, id: u64, is_synced: bool) -> Result<(), Error> {
    let mut transaction = table.transaction()?;
    let (from, to) = (dice.below(ACCOUNTS), dice.below(ACCOUNTS));
    let amount = dice.below(100);
    let of = number(transaction.get(&account(from))?, MONEY);
    transaction.put(&account(from), &of.wrapping_sub(amount).to_le_bytes())?;
    let of = number(transaction.get(&account(to))?, MONEY);
    transaction.put(&account(to), &of.wrapping_add(amount).to_le_bytes())?;
    // Far apart in the batch and in the log, so that a cut can fall between.
    let filler = dice.below(6000) as usize;
    transaction.put(b"filler", &dice.bytes(filler))?;
    transaction.put(format!("receipt-{id:04}").as_bytes(), &id.to_le_bytes())?;
    transaction.put(b"last", &id.to_le_bytes())?;
    // A plain write meanwhile goes the same way.
    table.put(b"plain", &id.to_le_bytes())?;
    transaction.commit(if is_synced { Durability::Synced } else { Durability::Buffered })
}

#[test]
fn transactions_survive_wholly_and_in_order() {
    let cuts = Scale::from_env().power_cuts;
    let (mut cut, mut lost) = (0, 0);
    for case in 0..cuts {
        let seed = case / 16;
        let length = {
            let medium = Faulty::new(seed);
            assert_eq!(work(&medium, seed).len() as u64, TRANSACTIONS);
            medium.operations()
        };
        let mut dice = Dice::of(case, 2);
        let medium = Faulty::new(seed);
        medium.cut_power_at(dice.below(length));
        let tried = work(&medium, seed);
        let survivors = medium.survivors(dice.draw());
        let table = Table::new("t", open(&survivors, seed).unwrap());
        let get = |key: &[u8]| table.get(key).unwrap();

        let last = number(get(b"last"), 0);
        let synced = tried.iter().filter(|tried| tried.is_synced).map(|tried| tried.number).max();
        assert!(last >= synced.unwrap_or(0), "case {case}: {last} is there, {synced:?} was synced");
        // The one that was being committed may be there as well.
        let told = tried.last().map_or(0, |tried| tried.number);
        assert!(last <= told + 1, "case {case}: {last} is there, {told} was told");
        let receipts: Vec<_> = table.prefix("receipt-").unwrap().map(|e| e.unwrap().0).collect();
        let expected: Vec<_> =
            (1..=last).map(|id| format!("receipt-{id:04}").into_bytes()).collect();
        assert_eq!(receipts, expected, "case {case}");
        let sum = (0..ACCOUNTS).map(|n| number(get(&account(n)), MONEY)).fold(0, u64::wrapping_add);
        assert_eq!(sum, ACCOUNTS * MONEY, "case {case}");
        cut += u64::from(medium.power_is_off());
        lost += told.saturating_sub(last);
        // And it goes on from there.
        transfer(&table, &mut dice, last + 1, true).unwrap();
    }
    println!("{cut} power cuts, {lost} unsynced transactions lost");
}
