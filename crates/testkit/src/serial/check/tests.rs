//! Hand-made histories: each anomaly of the literature must be found, under its own name, and
//! serializable histories must pass.

use super::super::{Event, History, Outcome, Transaction};
use super::Event::{Append, List, Read, Write};
use super::{Kind, check};

/// Concurrent with all others, unless a test changes the times.
fn transaction(events: &[Event]) -> Transaction {
    let events = events.to_vec();
    Transaction { process: 0, began: 0, ended: 1000, outcome: Outcome::Committed, events }
}

fn history(transactions: &[&[Event]]) -> History {
    let transactions = transactions.iter().map(|events| transaction(events)).collect();
    History { transactions, ..History::default() }
}

fn kind(history: &History) -> Option<Kind> {
    check(history, false).err().map(|anomaly| anomaly.kind)
}

const X: u64 = 1;
const Y: u64 = 2;
const Z: u64 = 3;

#[test]
fn serializable_histories_pass() {
    assert_eq!(kind(&History::default()), None);
    let mut good = history(&[
        &[List(X, vec![]), Append(X, 1), Append(X, 2), List(X, vec![1, 2])],
        &[List(X, vec![1, 2]), Append(X, 3), List(Y, vec![])],
        &[List(X, vec![1, 2, 3]), List(Y, vec![]), Append(Y, 1)],
        &[List(Y, vec![1]), List(X, vec![1, 2, 3])],
        // Ordered before all others, whatever the clock shows.
        &[List(X, vec![]), List(Y, vec![])],
    ]);
    assert_eq!(kind(&good), None);
    // An aborted transaction may have read what was overwritten meanwhile.
    good.transactions.push(Transaction {
        outcome: Outcome::Aborted,
        ..transaction(&[List(X, vec![1, 2]), List(Y, vec![]), Append(X, 9)])
    });
    assert_eq!(kind(&good), None);
    // Blind writes of registers, in another order than that of the clock.
    let mut blind = history(&[
        &[Write(X, 1), Write(Y, 1)],
        &[Write(X, 2), Write(Y, 2)],
        &[Read(X, Some(1)), Read(Y, Some(1))],
    ]);
    blind.orders = [(X, vec![2, 1]), (Y, vec![2, 1])].into();
    assert_eq!(kind(&blind), None);
}

#[test]
fn lost_updates_are_found() {
    // Both read the empty list; only one of their elements is there later.
    let lost = history(&[
        &[List(X, vec![]), Append(X, 1)],
        &[List(X, vec![]), Append(X, 2)],
        &[List(X, vec![2])],
    ]);
    assert_eq!(kind(&lost), Some(Kind::GSingle));
    // The same without a later read: both orders are wrong.
    let unseen = history(&[&[List(X, vec![]), Append(X, 1)], &[List(X, vec![]), Append(X, 2)]]);
    assert_eq!(kind(&unseen), Some(Kind::GSingle));
}

#[test]
fn read_skew_is_found() {
    let skew = history(&[
        &[List(X, vec![]), Append(X, 1), List(Y, vec![]), Append(Y, 1)],
        &[List(X, vec![]), List(Y, vec![1])],
    ]);
    assert_eq!(kind(&skew), Some(Kind::GSingle));
}

#[test]
fn write_skew_is_found() {
    let skew = history(&[
        &[List(X, vec![]), List(Y, vec![]), Append(X, 1)],
        &[List(X, vec![]), List(Y, vec![]), Append(Y, 1)],
    ]);
    assert_eq!(kind(&skew), Some(Kind::G2));
}

#[test]
fn long_fork_is_found() {
    let mut fork = history(&[
        &[Write(X, 1)],
        &[Write(Y, 1)],
        &[Read(X, Some(1)), Read(Y, None)],
        &[Read(X, None), Read(Y, Some(1))],
    ]);
    fork.orders = [(X, vec![1]), (Y, vec![1])].into();
    assert_eq!(kind(&fork), Some(Kind::G2));
}

#[test]
fn read_only_anomaly_is_found() {
    // Fekete, O'Neil and O'Neil, SIGMOD Record 33(3), 2004: without the third it is serializable.
    let events: [&[Event]; 3] = [
        &[List(X, vec![]), List(Y, vec![1]), Append(X, 2)],
        &[List(Y, vec![]), Append(Y, 1)],
        &[List(X, vec![]), List(Y, vec![1])],
    ];
    let withdraws: &[Event] = &[List(X, vec![]), List(Y, vec![]), Append(X, 2)];
    let deposits = events[1];
    let reports = events[2];
    assert_eq!(kind(&history(&[withdraws, deposits])), None);
    assert_eq!(kind(&history(&[withdraws, deposits, reports])), Some(Kind::G2));
}

#[test]
fn phantoms_are_found() {
    // Each scans X, Y and Z, finds nothing, and adds one key.
    let scan = [List(X, vec![]), List(Y, vec![]), List(Z, vec![])];
    let add = |key| [&scan[..], &[Append(key, 1)]].concat();
    assert_eq!(kind(&history(&[&add(X), &add(Y)])), Some(Kind::G2));
}

#[test]
fn dirty_writes_are_found() {
    let mut dirty = history(&[&[Write(X, 1), Write(Y, 1)], &[Write(X, 2), Write(Y, 2)]]);
    dirty.orders = [(X, vec![1, 2]), (Y, vec![2, 1])].into();
    assert_eq!(kind(&dirty), Some(Kind::G0));
}

#[test]
fn dirty_reads_are_found() {
    let reads = [List(X, vec![1])];
    let mut aborted = history(&[&[List(X, vec![]), Append(X, 1)], &reads]);
    aborted.transactions[0].outcome = Outcome::Aborted;
    assert_eq!(kind(&aborted), Some(Kind::G1a));
    // With an unknown outcome, the read shows that it was committed.
    aborted.transactions[0].outcome = Outcome::Unknown;
    assert_eq!(kind(&aborted), None);
    let intermediate = history(&[&[List(X, vec![]), Append(X, 1), Append(X, 2)], &reads]);
    assert_eq!(kind(&intermediate), Some(Kind::G1b));
    let circular = history(&[&[Append(X, 1), List(Y, vec![1])], &[Append(Y, 1), List(X, vec![1])]]);
    assert_eq!(kind(&circular), Some(Kind::G1c));
}

#[test]
fn impossible_reads_are_found() {
    let alone = |events: &[Event]| kind(&history(&[events]));
    assert_eq!(alone(&[List(X, vec![7])]), Some(Kind::Impossible));
    assert_eq!(alone(&[Read(X, Some(7))]), Some(Kind::Impossible));
    assert_eq!(alone(&[Append(X, 1), List(X, vec![])]), Some(Kind::Internal));
    assert_eq!(alone(&[Write(X, 1), Read(X, None)]), Some(Kind::Internal));
    let contradicting = history(&[
        &[Append(X, 1)],
        &[Append(X, 2)],
        &[List(X, vec![1, 2])],
        &[List(X, vec![2, 1])],
    ]);
    assert_eq!(kind(&contradicting), Some(Kind::Impossible));
}

#[test]
fn real_time_order_counts_only_in_strict_checks() {
    let mut stale = history(&[&[List(X, vec![]), Append(X, 1)], &[List(X, vec![])]]);
    stale.transactions[0].ended = 5;
    stale.transactions[1].began = 6;
    assert_eq!(kind(&stale), None);
    let anomaly = check(&stale, true).unwrap_err();
    assert_eq!((anomaly.kind, anomaly.transactions.len()), (Kind::RealTime, 2));
    // They overlap for a moment: both orders are right.
    stale.transactions[1].began = 5;
    assert!(check(&stale, true).is_ok());
}
