//! Clients: each has one operation at a time, and all of them are recorded by key.
//!
//! A put and a compare-and-swap lock their key at the leader until their outcome is known there, as
//! a server does. A compare-and-swap reads at a ReadIndex and proposes in the term of its read. A
//! client gives up after a while; what it had proposed may take effect later, or never.

use siltstone_engine::WriteBatch;
use siltstone_testkit::TestRng;
use siltstone_testkit::linear::{self, Act, NEVER, is_linearizable};

use super::node::Node;
use crate::{Event, RequestId};

pub(super) const KEYS: u64 = 3;
/// The steps until a client gives up.
const PATIENCE_STEPS: u64 = 30;

/// The stage of an operation, by what it waits for.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// A get, for its read.
    Get,
    /// A compare-and-swap, for its read.
    SwapRead { to: u64 },
    /// A compare-and-swap that has read `from`, for its turn to propose, at the step `due`.
    SwapProposal { from: Option<u64>, to: u64, term: u64, due: u64 },
    /// A write that was proposed.
    Write(Act),
}

/// An operation that is pending at a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    client: usize,
    key: u64,
    called: u64,
    stage: Stage,
    has_given_up: bool,
}

/// A client.
#[derive(Debug, Clone, Copy)]
enum Client {
    Idle,
    Waits { node: u64, request: RequestId, since: u64 },
}

pub(super) struct Clients {
    clients: Vec<Client>,
    histories: Vec<Vec<linear::Operation>>,
    /// The order of calls and returns.
    clock: u64,
    last_value: u64,
    pub(super) completed: u64,
}

fn row(key: u64) -> Vec<u8> {
    format!("key{key}").into_bytes()
}

fn read(node: &Node, key: u64) -> Result<Option<u64>, String> {
    let Some(group) = &node.group else { return Err("the node is down".into()) };
    let entry = group.table().get(&row(key)).map_err(|error| error.to_string())?;
    Ok(entry.and_then(|entry| entry.value.first_chunk().copied()).map(u64::from_le_bytes))
}

fn batch(key: u64, value: u64, rng: &mut TestRng) -> WriteBatch {
    let mut batch = WriteBatch::new();
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(8 + rng.index(40), 0);
    batch.put(&row(key), &bytes);
    // Other rows of the table, so that snapshots have several chunks.
    let other = format!("other{}", rng.below(20)).into_bytes();
    match rng.below(8) {
        0 => batch.delete(&other),
        1 => batch.delete_range(&b"other5"[..]..&b"other8"[..]),
        _ => batch.put(&other, &bytes),
    };
    batch
}

impl Clients {
    pub(super) fn new(count: usize) -> Self {
        Clients {
            clients: vec![Client::Idle; count],
            histories: vec![Vec::new(); KEYS as usize],
            clock: 0,
            last_value: 0,
            completed: 0,
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn record(&mut self, operation: Operation, act: Act, returned: u64) {
        let called = operation.called;
        self.histories[operation.key as usize].push(linear::Operation { called, returned, act });
    }

    /// Begins an operation of an idle client at some node, if that accepts it.
    pub(super) fn begin(&mut self, now: u64, client: usize, node: &mut Node, rng: &mut TestRng) {
        if let Client::Waits { .. } = self.clients[client] {
            return;
        }
        let Some(group) = &mut node.group else { return };
        let key = rng.below(KEYS);
        let called = self.tick();
        self.last_value += 1;
        let value = self.last_value;
        let kind = rng.below(4);
        if kind < 2 && node.locked.contains(&key) {
            return;
        }
        let (accepted, stage) = match kind {
            0 => {
                let act = Act::Write(Some(value));
                (group.propose(&batch(key, value, rng)), Stage::Write(act))
            }
            1 => (group.read_index(), Stage::SwapRead { to: value }),
            // At any node: a follower asks its leader.
            _ => (group.barrier(), Stage::Get),
        };
        let Ok(request) = accepted else { return };
        if kind < 2 {
            node.locked.insert(key);
        }
        let operation = Operation { client, key, called, stage, has_given_up: false };
        node.pending.insert(request, operation);
        self.clients[client] = Client::Waits { node: node.id, request, since: now };
    }

    /// Whether every client is idle.
    pub(super) fn are_idle(&self) -> bool {
        self.clients.iter().all(|client| matches!(client, Client::Idle))
    }

    /// Lets clients that have waited too long give up.
    pub(super) fn give_up(&mut self, now: u64, nodes: &mut [Node]) {
        for at in 0..self.clients.len() {
            let Client::Waits { node, request, since } = self.clients[at] else { continue };
            if now < since + PATIENCE_STEPS {
                continue;
            }
            self.clients[at] = Client::Idle;
            let node = nodes.iter_mut().find(|found| found.id == node);
            if let Some(operation) = node.and_then(|node| node.pending.get_mut(&request)) {
                operation.has_given_up = true;
                let operation = *operation;
                if let Stage::Write(act) = operation.stage {
                    self.record(operation, act, NEVER);
                }
            }
        }
    }

    /// Handles an event of a node.
    pub(super) fn handle(
        &mut self,
        event: &Event,
        now: u64,
        node: &mut Node,
        rng: &mut TestRng,
    ) -> Result<(), String> {
        let request = match event {
            Event::Applied(id) | Event::Unknown(id) | Event::ReadLost(id) => *id,
            Event::ReadReady { id, .. } => *id,
            Event::Restored | Event::Message(_) => return Ok(()),
        };
        // Changes of membership have no client.
        let Some(operation) = node.pending.remove(&request) else { return Ok(()) };
        match (operation.stage, event) {
            (Stage::Get, Event::ReadReady { .. }) => {
                let found = read(node, operation.key)?;
                self.end(operation, Some(Act::Read(found)));
            }
            (Stage::SwapRead { to }, Event::ReadReady { term, .. }) => {
                let from = read(node, operation.key)?;
                // Some take their time, in which another node may lead for a while.
                let due = if rng.one_in(2) { now } else { now + rng.below(4 * PATIENCE_STEPS) };
                let stage = Stage::SwapProposal { from, to, term: *term, due };
                node.pending.insert(request, Operation { stage, ..operation });
                self.propose_swaps(now, node, rng);
            }
            (Stage::Write(act), Event::Applied(_)) => {
                node.locked.remove(&operation.key);
                self.end(operation, Some(act));
            }
            (stage, _) => {
                if !matches!(stage, Stage::Get) {
                    node.locked.remove(&operation.key);
                }
                self.lose(operation);
            }
        }
        Ok(())
    }

    /// Proposes the compare-and-swaps of a node that are due.
    pub(super) fn propose_swaps(&mut self, now: u64, node: &mut Node, rng: &mut TestRng) {
        let requests: Vec<_> = node.pending.keys().copied().collect();
        for request in requests {
            let Some(&operation) = node.pending.get(&request) else { continue };
            let Stage::SwapProposal { from, to, term, due } = operation.stage else { continue };
            let Some(group) = node.group.as_mut().filter(|_| due <= now) else { continue };
            node.pending.remove(&request);
            let batch = batch(operation.key, to, rng);
            let Ok(request) = group.propose_at(term, &batch) else {
                node.locked.remove(&operation.key);
                self.end(operation, None);
                continue;
            };
            let act = Act::Swap { from, to: Some(to) };
            node.pending.insert(request, Operation { stage: Stage::Write(act), ..operation });
            match &mut self.clients[operation.client] {
                Client::Waits { request: waits, .. } if !operation.has_given_up => {
                    *waits = request;
                }
                // Its client is gone, and the write is under way all the same.
                _ => self.record(operation, act, NEVER),
            }
        }
    }

    /// The operation has ended, with an effect or a result, or without.
    fn end(&mut self, operation: Operation, act: Option<Act>) {
        if operation.has_given_up {
            return;
        }
        self.clients[operation.client] = Client::Idle;
        if let Some(act) = act {
            let returned = self.tick();
            self.completed += 1;
            self.record(operation, act, returned);
        }
    }

    /// The outcome of the operation will never be known.
    pub(super) fn lose(&mut self, operation: Operation) {
        if operation.has_given_up {
            return;
        }
        self.clients[operation.client] = Client::Idle;
        if let Stage::Write(act) = operation.stage {
            self.record(operation, act, NEVER);
        }
    }

    /// Whether every key's history is linearizable.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.histories.iter().position(|history| !is_linearizable(history)) {
            None => Ok(()),
            Some(key) => {
                let mut history = self.histories[key].clone();
                history.sort_by_key(|operation| operation.called);
                let lines: Vec<_> = history.iter().map(|line| format!("{line:?}")).collect();
                Err(format!("the history of key {key} is not linearizable:\n{}", lines.join("\n")))
            }
        }
    }
}
