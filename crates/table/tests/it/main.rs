//! Tests of files of tables, logs and manifests, in one program: it links once, and its tests run
//! beside each other.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests panic and print")]

mod block;
mod log;
mod log_damage;
mod log_encrypted;
mod manifest;
mod rows;
mod salvage;
mod support;
mod table;
mod table_damage;
