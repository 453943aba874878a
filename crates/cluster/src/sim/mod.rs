//! A deterministic simulator of one group: nodes, network, disks, time and clients in one thread.
//!
//! ```text
//!   each step   nodes tick, each at its own rate     network delivers, loses, repeats, reorders
//!               clients begin and end operations     power fails, nodes stop, members change,
//!                                                    a node is wiped and created again, or an
//!                                                    older copy of its disk is put back
//!               every node does its I/O              invariants are checked
//!   at the end  everything heals; the group must serve again, and all members must agree
//!               the clients' histories must be linearizable
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | `network` | packets under way, and cut links |
//! | `node` | a node with its disk, its power and its clients' pending operations |
//! | `invariants` | what must hold in every step |
//! | `clients` | clients and their histories |
//! | `copies` | the fault that a disk goes back to an older state |
//! | `world` | one schedule: all of these, and what goes wrong |
//!
//! A schedule is a function of its seed. `SILTSTONE_SCHEDULES=N` sets how many run, and
//! `SILTSTONE_SCHEDULE=SEED` runs one.
//!
//! Source: the invariants after Ongaro and Ousterhout, "In Search of an Understandable Consensus
//! Algorithm", ATC 2014, figure 3.

mod clients;
mod copies;
mod invariants;
mod network;
mod node;
mod tests;
mod world;
