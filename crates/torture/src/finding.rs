//! Findings, and the other reasons for the end of a history.

use std::path::PathBuf;

use serde::Serialize;

/// The reason why a history ends before its last round.
#[derive(Debug)]
pub enum Stop {
    /// The program violated a requirement.
    Finding(String),
    /// The harness cannot do its work.
    HarnessError(String),
    /// The run was interrupted.
    Interrupted,
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Stop::HarnessError(error.to_string())
    }
}

/// The result of a step of a history.
pub type Result<T> = std::result::Result<T, Stop>;

/// A violated requirement.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The engine.
    pub engine: &'static str,
    /// The fault class.
    pub fault: &'static str,
    /// The seed of the history.
    pub history: u64,
    /// The round of the history, from 1.
    pub round: u64,
    /// The violation.
    pub what: String,
    /// The last events before it.
    #[serde(rename = "story")]
    pub events: Vec<String>,
    /// The directory with the store, the server's standard error and this finding.
    pub directory: PathBuf,
    /// The command that repeats the history up to this round.
    pub command: String,
}
