//! Three nodes in network namespaces, on small disks and with clocks of their own, under clients,
//! through rounds of faults.
//!
//! Each round begins clients, injects one [`Fault`], heals, waits until all is well, and checks
//! what the clients have seen ([`history`]): no acknowledged write is lost, no read is stale, and
//! as a majority is healthy all the time, no group refuses for longer than [`MAX_REFUSAL`].
//!
//! It takes minutes, root, and the programs `ip`, `cc`, `mkfs.ext4` and `mount`. So it only runs if
//! it is asked for:
//!
//! ```text
//! SILTSTONE_NETNS_ROUNDS=20 cargo test -p siltstone-cli --test acknowledged_writes netns -- --nocapture
//! ```
//!
//! | variable | what |
//! | --- | --- |
//! | `SILTSTONE_NETNS_ROUNDS` | rounds of each fault |
//! | `SILTSTONE_NETNS_GROUPS` | Raft groups, 1 or 4; 1 unless given |
//! | `SILTSTONE_NETNS_FAULTS` | parts of the names of faults, with commas between them |
//! | `SILTSTONE_NETNS_SEED` | the order of faults and what they hit |
//! | `SILTSTONE_NETNS_LOGS` | a directory for what the nodes say |

mod faults;
mod history;
mod load;
mod machine;
mod network;
mod report;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use siltstone_testkit::TestRng;

use crate::three_nodes::MAX_REFUSAL;
use crate::three_nodes::nodes::SetOnDrop;
use faults::{Cluster, Fault};
use load::{Round, Totals, check, longest_gap};
use report::Report;

/// Clients run this long before a fault.
const WARM_UP: Duration = Duration::from_millis(300);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
}

/// The faults of a run, in random order.
fn plan(rounds: u64, rng: &mut TestRng) -> Vec<Fault> {
    let wanted = std::env::var("SILTSTONE_NETNS_FAULTS").unwrap_or_default();
    let is_wanted =
        |fault: &Fault| wanted.split(',').any(|part| format!("{fault:?}").contains(part));
    let kinds: Vec<_> = Fault::ALL.into_iter().filter(is_wanted).collect();
    let mut plan: Vec<_> = (0..rounds).flat_map(|_| kinds.iter().copied()).collect();
    for at in (1..plan.len()).rev() {
        plan.swap(at, rng.index(at + 1));
    }
    plan
}

/// One round; returns the longest refusal and what the clients have done.
fn run(
    cluster: &mut Cluster,
    number: usize,
    groups: usize,
    fault: Fault,
    rng: &mut TestRng,
) -> (Duration, Totals) {
    let (clients, synced) = (cluster.nodes.clients.clone(), cluster.synced());
    let round = Round {
        clients: &clients,
        number,
        begin: Instant::now(),
        ends: AtomicBool::new(false),
        successes: AtomicU64::new(0),
        avoided: Mutex::new(None),
    };
    let (records, mut observed, from) = std::thread::scope(|scope| {
        // A failed assertion below must not leave the threads running.
        let _end = SetOnDrop(&round.ends);
        let threads = round.start(scope);
        let observe = |node: &SocketAddr| {
            let (round, node) = (&round, *node);
            scope.spawn(move || load::observe(round, node))
        };
        let observers: Vec<_> = clients.iter().map(observe).collect();
        let sync = scope.spawn(|| machine::longest_sync(&synced, &round.ends));
        round.wait_for_successes();
        std::thread::sleep(WARM_UP);
        if fault.deposes_leader() && rng.one_in(2) {
            let leader = clients[cluster.nodes.leader()];
            *round.avoided.lock().unwrap() = Some(leader);
            std::thread::sleep(WARM_UP / 3);
        }
        let from = round.now();
        cluster.inject(fault, rng);
        cluster.heal();
        *round.avoided.lock().unwrap() = None;
        round.wait_for_successes();
        round.ends.store(true, SeqCst);
        let records: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        println!("  longest sync of another file on a node's disk: {:.0?}", sync.join().unwrap());
        let observed: Vec<_> =
            observers.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        (records, observed, from)
    });
    let refusal = longest_gap(&records, groups, from);
    if refusal > MAX_REFUSAL / 2 {
        observed.sort();
        println!("{fault:?} at {} ms:\n{}", from / 1_000_000, observed.join("\n"));
    }
    (refusal, check(&round, records))
}

fn run_all(rounds: u64) {
    let groups = number("SILTSTONE_NETNS_GROUPS").unwrap_or(1) as usize;
    let seed = number("SILTSTONE_NETNS_SEED").unwrap_or(1);
    let logs = std::env::var_os("SILTSTONE_NETNS_LOGS").map(PathBuf::from);
    let mut rng = TestRng::new(seed);
    let scratch = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(scratch.path(), logs.as_deref(), groups);
    let (mut report, mut totals) = (Report::default(), Totals::default());
    for (number, fault) in plan(rounds, &mut rng).into_iter().enumerate() {
        let begin = Instant::now();
        let (refusal, seen) = run(&mut cluster, number, groups, fault, &mut rng);
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "round {number}, {fault:?}: {refusal:.0?} without success, {seen:?}, {seconds:.1} s"
        );
        report.add(format!("{fault:?}"), refusal);
        totals.add(seen);
    }
    let Totals { acknowledged, unknown, reads } = totals;
    println!(
        "{acknowledged} writes acknowledged, 0 lost; {unknown} unknown; {reads} reads, 0 stale; \
         {groups} groups, seed {seed}\n\n{report}"
    );
    assert!(report.longest() <= MAX_REFUSAL, "a refusal of {:?}", report.longest());
}

#[test]
fn processes_in_namespaces_lose_no_acknowledged_write_through_faults() {
    let Some(rounds) = number("SILTSTONE_NETNS_ROUNDS") else {
        println!("skipped: SILTSTONE_NETNS_ROUNDS is not set");
        return;
    };
    if let Some(obstacle) = network::obstacle() {
        println!("skipped: {obstacle}");
        return;
    }
    // This thread moves to another network.
    std::thread::spawn(move || run_all(rounds)).join().unwrap();
}
