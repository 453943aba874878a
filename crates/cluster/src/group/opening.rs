//! How a node is created and opened.
//!
//! Creation writes the table, then the log that names it, and last that the node is complete, so an
//! interrupted one is repeated. Opening checks that log and table fit each other: the entry that
//! the table has applied last must be in the log, with its term.

use std::collections::BTreeMap;
use std::sync::Arc;

use raft::eraftpb::ConfState;
use raft::{Config, RawNode, ReadOnlyOption};
use siltstone_engine::{Durability, Engine, Error, Result, WriteBatch};
use siltstone_structures::SplitMix64;
use siltstone_vfs::Vfs;

use super::first_start::{Registration, first_stage, is_new, remove_remains};
use super::options::{GroupOptions, MAX_ELECTION_WAITS};
use super::start_state::{Starts, random_of_start};
use super::{Group, Output};
use crate::applied::Applied;
use crate::budget::Budget;
use crate::identities::{Identities, Stage};
use crate::log::{LogIdentity, Marker, RaftLog, lost};
use crate::planted::{Fault, is_planted};
use crate::requests::Requests;
use crate::store::Store;
use crate::stream::{OpenTable, is_table_name, open_table, table_name};

/// The number of a new node's table.
const FIRST_TABLE: u64 = 1;
/// The maximum size of entries that are appended and not committed, in bytes.
const MAX_UNCOMMITTED_BYTES: u64 = 64 << 20;
/// The entries of one message, in bytes.
const MAX_MESSAGE_BYTES: u64 = 1 << 20;
/// The committed entries that are applied in one batch, in bytes.
const MAX_APPLY_BYTES: u64 = 8 << 20;

impl Group {
    /// Creates a node in an empty directory. The first nodes of a group all have the same `voters`;
    /// a node that joins later has none. It is durable once this returns. If it was interrupted, it
    /// may be repeated ([`is_new`]).
    ///
    /// # Errors
    /// `Refused` if a node lives in the directory; those of the table; I/O errors.
    pub fn create(
        vfs: Arc<dyn Vfs>,
        open: OpenTable,
        options: GroupOptions,
        voters: &[u64],
    ) -> Result<Self> {
        if !is_new(vfs.as_ref())? {
            let reason =
                "a node lives here already; open it, or create the new one elsewhere".into();
            return Err(Error::Refused { path: vfs.name(), reason });
        }
        let mut identities = Identities::create(vfs.clone())?;
        // The file of an earlier version does not say so.
        if identities.stage() != Stage::Creating {
            identities.set_stage(Stage::Creating)?;
        }
        remove_remains(vfs.as_ref())?;
        // An entry that all first nodes have in common: whoever joins later needs a snapshot.
        let marker =
            if voters.is_empty() { Marker::default() } else { Marker { index: 1, term: 1 } };
        let mut applied = Applied { index: marker.index, term: marker.term, ..Applied::default() };
        applied.set_members(ConfState { voters: voters.to_vec(), ..ConfState::default() });
        let table = open_table(vfs.as_ref(), &open, FIRST_TABLE)?;
        let mut batch = WriteBatch::new();
        applied.put_into(&mut batch);
        table.write(&batch, Durability::Synced)?;
        let identity = LogIdentity { group: options.group, node: options.node };
        let log = RaftLog::create(vfs.clone(), identity, marker, FIRST_TABLE)?;
        identities.set_stage(first_stage(options.node, voters))?;
        Self::start(vfs, open, options, identities, Store { log, applied }, table)
    }

    /// Opens a node.
    ///
    /// # Errors
    /// If the log is damaged, missing or does not fit the table ([`crate::log::is_lost`]): the node
    /// must be rebuilt under a new id. `Refused` if the node has still to be created. Those of the
    /// table; I/O errors.
    pub fn open(vfs: Arc<dyn Vfs>, open: OpenTable, options: GroupOptions) -> Result<Self> {
        let mut identities = Identities::open(vfs.clone())?;
        match identities.stage() {
            Stage::Creating => {
                let reason = "the node was not created to the end; create it again".into();
                return Err(Error::Refused { path: vfs.name(), reason });
            }
            Stage::Superseded => {
                let node = options.node;
                let what = format!("another node knows that it is an older copy of node {node}");
                return Err(lost(vfs.name(), &what));
            }
            Stage::Created | Stage::Registered => {}
        }
        let identity = LogIdentity { group: options.group, node: options.node };
        let log = RaftLog::open(vfs.clone(), identity)?;
        let name = table_name(log.table());
        // Others are of snapshots that were not complete, or were replaced.
        for other in vfs.subdirectories()? {
            if is_table_name(&other) && other != name {
                vfs.remove_subdirectory(&other)?;
            }
        }
        let path = format!("{}/{name}", vfs.name());
        if !vfs.has_subdirectory(&name)? {
            return Err(lost(path, "the node's table is missing"));
        }
        let table = open_table(vfs.as_ref(), &open, log.table())?;
        let Some(applied) = Applied::read(table.as_ref(), None)? else {
            return Err(lost(path, "the node's table has no applied index"));
        };
        let position = format!(
            "the node's table has applied entry {} of term {}, and its log has entries {} to {}",
            applied.index,
            applied.term,
            log.first_index(),
            log.last_index()
        );
        if log.term(applied.index) != Some(applied.term) {
            return Err(lost(path, &position));
        }
        identities.begin_start(random_of_start(options.seed, log.incarnation()))?;
        Self::start(vfs, open, options, identities, Store { log, applied }, table)
    }

    pub(super) fn start(
        vfs: Arc<dyn Vfs>,
        open: OpenTable,
        options: GroupOptions,
        identities: Identities,
        store: Store,
        table: Arc<dyn Engine>,
    ) -> Result<Self> {
        let can = table.capabilities();
        if !(can.ordered && can.durable && can.versioned) {
            let engine = table.name();
            let reason = format!("a replicated table cannot use the engine '{engine}'; use lsm");
            return Err(Error::Invalid(reason));
        }
        let config = Config {
            id: options.node,
            election_tick: options.election_ticks,
            heartbeat_tick: options.heartbeat_ticks,
            max_election_tick: MAX_ELECTION_WAITS * options.election_ticks,
            applied: store.applied.index,
            max_size_per_msg: MAX_MESSAGE_BYTES,
            max_uncommitted_size: MAX_UNCOMMITTED_BYTES,
            max_committed_size_per_ready: MAX_APPLY_BYTES,
            check_quorum: true,
            pre_vote: true,
            read_only_option: match is_planted(Fault::LongLease) {
                true => ReadOnlyOption::LeaseBased,
                false => ReadOnlyOption::Safe,
            },
            ..Config::default()
        };
        let (incarnation, last_table) = (store.log.incarnation(), store.log.table());
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raft = RawNode::new(&config, store, &logger)
            .map_err(|error| Error::Invalid(format!("the group's options: {error}")))?;
        let mut group = Group {
            vfs,
            open,
            identities,
            registration: Registration::default(),
            starts: Starts::default(),
            raft,
            table,
            requests: Requests::new(options.node, incarnation),
            random: SplitMix64::stream(options.seed, incarnation),
            timeout_ticks: options.election_ticks,
            outgoing: BTreeMap::new(),
            catching_up: BTreeMap::new(),
            last_stream: 0,
            given_up: 0,
            budget: Budget::new(options.snapshot_bytes_per_tick),
            incoming: None,
            staged: None,
            received: None,
            last_table,
            heard_commit: None,
            is_filtering: false,
            output: Output::default(),
            failure: None,
            options,
        };
        group.begin_start();
        group.begin_registration()?;
        Ok(group)
    }
}
