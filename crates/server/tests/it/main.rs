//! Tests of the server with its clients, in one program: it links once, and its tests run beside
//! each other. Tests that measure the memory of their process are programs of their own.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests panic and print")]

mod atomicity_and_durability;
mod both_servers;
mod collections_among_keys;
mod large_removals;
mod limits;
mod memcached_compat;
mod memcached_rejected_clients;
mod memcached_retrievals;
mod memcached_stats;
mod memcached_tools;
mod mica_scan;
mod random_access_rules;
mod random_commands;
mod raw_udp;
mod redis_access;
mod redis_admin_commands;
mod redis_bits;
mod redis_blocking;
mod redis_collections;
mod redis_commands;
mod redis_dump;
mod redis_encodings;
mod redis_flush_and_sample;
mod redis_functions;
mod redis_hash_expiry;
mod redis_introspection;
mod redis_migrate;
mod redis_notifications;
mod redis_operation;
mod redis_pipelines;
mod redis_pubsub;
mod redis_scripts;
mod redis_sort;
mod redis_sorted_sets;
mod redis_streams;
mod redis_swapdb;
mod redis_tools;
mod replicated;
mod replicated_groups;
#[path = "../support/mod.rs"]
mod support;
mod table_move_history;
mod table_moves;
mod table_moves_beside;
mod table_moves_beside_jobs;
mod table_options;
mod tls_ports;
mod udp_client;
mod udp_handshake;
mod udp_recovery;
mod xdp;
