//! Nodes that run: threads, TCP, directories on a disk, processes that are killed.

#![allow(clippy::unwrap_used)]

mod clients;
mod processes;
mod restored;
mod single_voter;
mod support;
mod three_nodes;
