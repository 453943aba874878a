//! First starts: interrupted ones, nodes that were created again, and directories of earlier
//! versions.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone_engine::ManualClock;
use siltstone_faults::FaultyVfs;
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_testkit::TestRng;
use siltstone_vfs::Ram;

use super::*;
use crate::identities::{MAGIC, replace_file};
use crate::log::is_lost;

fn open_table() -> OpenTable {
    Arc::new(|vfs| {
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        Ok(Arc::new(Lsm::open(vfs, env, Options::default())?) as Arc<dyn Engine>)
    })
}

/// Starts a node as a server does.
fn start(vfs: Arc<dyn Vfs>, id: u64, voters: &[u64]) -> Result<Group> {
    static LAST_SEED: AtomicU64 = AtomicU64::new(0);
    let options = GroupOptions::new(1, id, LAST_SEED.fetch_add(1, Relaxed));
    match is_new(vfs.as_ref())? {
        true => Group::create(vfs, open_table(), options, voters),
        false => Group::open(vfs, open_table(), options),
    }
}

pub(super) fn put(key: &[u8]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key, b"value");
    batch
}

/// Nodes on simulated disks, and which of them run.
pub(super) struct Nodes(pub(super) Vec<(FaultyVfs, Option<Group>)>);

impl Nodes {
    pub(super) fn start(voters: &[u64]) -> Self {
        let mut nodes = Nodes(Vec::new());
        voters.iter().for_each(|_| nodes.0.push((FaultyVfs::new(0), None)));
        voters.iter().for_each(|&id| nodes.restart(id, voters).unwrap());
        nodes
    }

    pub(super) fn get(&mut self, id: u64) -> &mut Group {
        self.0[id as usize - 1].1.as_mut().unwrap()
    }

    pub(super) fn stop(&mut self, id: u64) {
        self.0[id as usize - 1].1 = None;
    }

    fn wipe(&mut self, id: u64) {
        self.0[id as usize - 1] = (FaultyVfs::new(0), None);
    }

    pub(super) fn restart(&mut self, id: u64, voters: &[u64]) -> Result<()> {
        let (vfs, group) = &mut self.0[id as usize - 1];
        *group = Some(start(Arc::new(vfs.clone()), id, voters)?);
        Ok(())
    }

    /// Delivers for some ticks what the network lets through. Returns the failures of nodes, which
    /// stop.
    pub(super) fn run(
        &mut self,
        ticks: usize,
        lets_through: fn(&Packet) -> bool,
    ) -> Vec<(u64, Error)> {
        let mut failures = Vec::new();
        for _ in 0..ticks {
            for from in 1..=self.0.len() as u64 {
                let Some(group) = &mut self.0[from as usize - 1].1 else { continue };
                group.tick();
                let directory = group.directory();
                let packets = group.ready().unwrap().packets;
                for packet in packets.into_iter().filter(lets_through) {
                    let at = packet.to() as usize - 1;
                    let Some(to) = &mut self.0[at].1 else { continue };
                    if let Err(error) = to.step(Envelope { group: 1, directory, packet }) {
                        failures.push((at as u64 + 1, error));
                        self.0[at].1 = None;
                    }
                }
            }
        }
        failures
    }

    pub(super) fn settle(&mut self) {
        let failures = self.run(40, |_| true);
        assert!(failures.is_empty(), "{failures:?}");
    }

    pub(super) fn leader(&self) -> Option<u64> {
        let leads = |(_, group): &(_, Option<Group>)| group.as_ref().is_some_and(Group::leads);
        self.0.iter().position(leads).map(|at| at as u64 + 1)
    }
}

fn is_about_directories(packet: &Packet) -> bool {
    matches!(packet, Packet::Register(_) | Packet::Registered(_))
}

#[test]
fn first_start_is_repeated_after_a_power_cut_at_any_operation() {
    let run = |vfs: &FaultyVfs| -> Result<bool> {
        let mut group = start(Arc::new(vfs.clone()), 1, &[1])?;
        group.campaign_if_alone();
        group.ready()?;
        let id = group.propose(&put(b"k")).unwrap();
        Ok(group.ready()?.events.contains(&Event::Applied(id)))
    };
    for cut in 0.. {
        let mut rng = TestRng::new(cut);
        let vfs = FaultyVfs::new(cut);
        vfs.cut_power_at(cut);
        let first = run(&vfs);
        vfs.cut_power();
        let vfs = vfs.survivors(rng.draw());
        if let Ok(is_applied) = first {
            let group = start(Arc::new(vfs), 1, &[1]).unwrap();
            assert!(is_applied && group.log().last_index() > 1 && cut > 20, "{cut}");
            return;
        }
        // Power fails in the next start, too.
        vfs.cut_power_at(rng.below(cut + 10));
        let _ = run(&vfs);
        vfs.cut_power();
        let vfs = vfs.survivors(rng.draw());
        assert!(run(&vfs).unwrap(), "cut {cut}");
        assert_eq!(vfs.subdirectories().unwrap(), ["table-000001"], "cut {cut}");
    }
}

#[test]
fn node_is_created_in_an_empty_directory_only() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    assert!(is_new(vfs.as_ref()).unwrap());
    vfs.create(LOCK_FILE).unwrap();
    Identities::create(vfs.clone()).unwrap();
    assert!(is_new(vfs.as_ref()).unwrap());
    assert!(Group::open(vfs.clone(), open_table(), GroupOptions::new(1, 1, 1)).is_err());
    drop(start(vfs.clone(), 1, &[1]).unwrap());
    assert!(!is_new(vfs.as_ref()).unwrap());
    let create = |vfs: &Arc<dyn Vfs>| {
        Group::create(vfs.clone(), open_table(), GroupOptions::new(1, 1, 1), &[1])
    };
    let error = create(&vfs).err().unwrap().to_string();
    assert!(error.contains("lives here already"), "{error}");
    // Its file of identities has gone: it is no new node.
    vfs.remove(crate::identities::NAME).unwrap();
    assert!(!is_new(vfs.as_ref()).unwrap() && create(&vfs).is_err());
    assert!(is_lost(&start(vfs, 1, &[1]).err().unwrap()));
}

#[test]
fn group_begins_once_all_first_nodes_have_been_started() {
    let mut nodes = Nodes::start(&[1, 2, 3]);
    nodes.stop(3);
    nodes.settle();
    assert_eq!(nodes.leader(), None);
    assert_eq!(nodes.get(1).unregistered_at(), [3]);
    nodes.restart(3, &[1, 2, 3]).unwrap();
    nodes.settle();
    assert!(nodes.leader().is_some() && nodes.get(1).unregistered_at().is_empty());
    // From then on a majority is enough.
    nodes.stop(3);
    nodes.restart(2, &[]).unwrap();
    nodes.restart(1, &[]).unwrap();
    nodes.settle();
    let leader = nodes.leader().unwrap();
    assert!(nodes.get(leader).propose(&put(b"k")).is_ok());
}

#[test]
fn node_that_was_created_again_stops_whoever_of_the_others_is_there() {
    for other in [1, 2] {
        let mut nodes = Nodes::start(&[1, 2, 3]);
        // They have heard of nothing but directories.
        assert!(nodes.run(3, is_about_directories).is_empty());
        assert!(nodes.get(3).is_registered());
        nodes.stop(3 - other);
        nodes.wipe(3);
        nodes.restart(3, &[1, 2, 3]).unwrap();
        let failures = nodes.run(40, |_| true);
        let [(3, error)] = &failures[..] else { panic!("{failures:?}") };
        assert!(is_lost(error) && error.to_string().contains("created again"), "{error}");
        assert_eq!(nodes.get(other).refused_nodes(), [3]);
        assert_eq!(nodes.leader(), None);
        // It stops at each start.
        nodes.restart(3, &[1, 2, 3]).unwrap();
        assert_eq!(nodes.run(40, |_| true).len(), 1);
    }
}

#[test]
fn node_that_was_created_again_takes_no_part_though_it_does_not_reach_those_who_know_it() {
    let mut nodes = Nodes::start(&[1, 2, 3]);
    nodes.settle();
    nodes.stop(1);
    nodes.wipe(3);
    nodes.restart(3, &[1, 2, 3]).unwrap();
    let failures = nodes.run(100, |packet| !is_about_directories(packet));
    assert!(failures.is_empty() && nodes.leader().is_none(), "{failures:?}");
}

#[test]
fn first_node_is_registered_by_the_group_if_another_one_is_lost_before_it_has_answered() {
    let mut nodes = Nodes::start(&[1, 2, 3]);
    // Node 2 never gets an answer of node 3, which answers node 1.
    let failures = nodes
        .run(60, |packet| !matches!(packet, Packet::Registered(of) if (of.from, of.to) == (3, 2)));
    assert!(failures.is_empty());
    assert!(nodes.get(2).is_registered());
    nodes.wipe(3);
    nodes.settle();
    let leader = nodes.leader().unwrap();
    assert!(nodes.get(leader).propose(&put(b"k")).is_ok());
}

#[test]
fn learner_votes_once_its_directory_is_committed() {
    let mut nodes = Nodes::start(&[1]);
    nodes.settle();
    nodes.0.push((FaultyVfs::new(0), None));
    nodes.get(1).change_membership(&[Change::AddLearner(2)]).unwrap();
    nodes.settle();
    let refused = nodes.get(1).change_membership(&[Change::Promote(2)]).unwrap_err();
    assert!(matches!(refused, Rejection::Busy(_)), "{refused}");
    nodes.restart(2, &[]).unwrap();
    nodes.settle();
    nodes.get(1).change_membership(&[Change::Promote(2)]).unwrap();
    nodes.settle();
    // Created again without voters, as a node that joins.
    nodes.wipe(2);
    nodes.restart(2, &[]).unwrap();
    let failures = nodes.run(40, |_| true);
    let [(2, error)] = &failures[..] else { panic!("{failures:?}") };
    assert!(is_lost(error), "{error}");
}

#[test]
fn directory_of_the_first_version_opens_and_is_committed() {
    let mut nodes = Nodes::start(&[1, 2]);
    nodes.settle();
    for id in [1, 2] {
        nodes.stop(id);
        let vfs = &nodes.0[id as usize - 1].0;
        let identities = Identities::open(Arc::new(vfs.clone())).unwrap();
        let mut body = [&MAGIC[..], &[1], &identities.own().to_le_bytes()].concat();
        body.extend_from_slice(&0u32.to_le_bytes());
        replace_file(vfs, body).unwrap();
        nodes.restart(id, &[]).unwrap();
    }
    nodes.settle();
    let leader = nodes.leader().unwrap();
    assert!(nodes.get(leader).propose(&put(b"k")).is_ok());
}

#[test]
fn only_node_of_a_group_stops_when_a_stranger_knows_that_it_was_created_again() {
    let mut nodes = Nodes::start(&[1]);
    nodes.settle();
    let directory = nodes.get(1).directory();
    let mut hear = |directory| {
        let answer = crate::packet::Registered { from: 2, to: 1, directory, is_committed: true };
        let packet = Packet::Registered(answer);
        nodes.get(1).step(Envelope { group: 1, directory: 20, packet })
    };
    hear(directory).unwrap();
    assert!(is_lost(&hear(directory ^ 1).unwrap_err()));
}

#[test]
fn follower_takes_over_from_a_leader_that_lives_by_its_consent_only() {
    let mut nodes = Nodes::start(&[1, 2, 3]);
    nodes.settle();
    let leader = nodes.leader().unwrap();
    let follower = leader % 3 + 1;
    assert!(matches!(nodes.get(leader).take_over(false), Err(Rejection::Invalid(_))));
    // The others hear of the leader.
    let term = nodes.get(leader).term();
    nodes.get(follower).take_over(true).unwrap();
    nodes.run(3, |_| true);
    assert_eq!((nodes.leader(), nodes.get(leader).term()), (Some(leader), term));
    nodes.get(follower).take_over(false).unwrap();
    nodes.run(3, |_| true);
    assert!(nodes.get(follower).leads() && !nodes.get(leader).leads());
}
