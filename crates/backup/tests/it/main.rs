//! Tests of repositories, in one program.
#![allow(clippy::unwrap_used, reason = "tests panic")]

mod costs;
mod faulty_store;
mod fixture;
mod interrupted;
mod lock;
mod repository;
