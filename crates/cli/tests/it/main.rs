//! Tests of the commands, in one program: it links once, and its tests run beside each other. Tests
//! that fill a disk or read the documents are programs of their own.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests panic and print")]

mod advise;
mod archive;
mod backup;
mod backup_to_s3;
mod bad_input;
mod changes;
mod closed_pipe;
mod cluster_check;
mod compact;
mod config_file;
mod import_dump;
mod import_export;
mod ingest;
mod interrupt;
mod log_repair;
mod manual;
mod model;
mod options_page;
mod publication;
mod read_permissions;
mod release;
mod replays_traces;
mod replicate_from;
mod s3_server;
#[path = "../server_process/mod.rs"]
mod server_process;
mod silt_repair;
mod support;
mod table_moves;
mod top;
mod verify_repair;
