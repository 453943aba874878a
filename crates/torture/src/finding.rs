//! What a history can end with before its last round.

use std::path::PathBuf;

use serde::Serialize;

/// Why a history ends early.
#[derive(Debug)]
pub enum Stop {
    /// The program did what it must not: this is what the harness is for.
    Wrong(String),
    /// The harness cannot do its work here.
    Trouble(String),
    /// Whoever started the run wants it to end.
    Interrupted,
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Stop::Trouble(error.to_string())
    }
}

/// A finding is made where a check fails: `check().map_err(Stop::Wrong)?`.
pub type Result<T> = std::result::Result<T, Stop>;

/// Something that the program did and must not.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The engine.
    pub engine: &'static str,
    /// The fault class.
    pub fault: &'static str,
    /// The seed of the history.
    pub history: u64,
    /// The round of the history, counted from 1.
    pub round: u64,
    /// What is wrong.
    pub what: String,
    /// What was done last before it.
    pub story: Vec<String>,
    /// Where the store, the server's words and the story are kept.
    pub directory: PathBuf,
    /// The command that repeats the history up to this round.
    pub command: String,
}
