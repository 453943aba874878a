//! Traces: files that list the requests to a store, to be replayed or analysed.
//!
//! A trace is a text file with one request per line, in the order of their responses:
//!
//! ```text
//! get KEY               a lookup
//! put KEY BYTES         a write of a value of BYTES bytes
//! del KEY               a deletion
//! scan KEY [ENTRIES]    a scan over ENTRIES entries from KEY on (default: 1)
//! @ SECONDS             arrival time of the following requests, since the first request
//! # …                   a comment
//! ```
//!
//! Bytes of a key outside `!` to `~`, and the backslash, are written as `\xHH`; the empty key is a
//! single backslash. A trace does not contain the contents of values, expiration times, or the
//! grouping of writes into batches.
//!
//! | module | contents |
//! | --- | --- |
//! | `line` | parses and formats one line |
//! | `file` | reads a file line by line |
//! | `replay` | a trace in memory |
//! | `record` | an engine wrapper that records requests |
//!
//! Invariant: a malformed line makes the whole trace invalid; the error has its number.

mod file;
mod line;
mod record;
pub(crate) mod replay;

pub use file::each_line;
pub use line::{Line, Verb};
pub use record::{Recorder, RecordingEngine};
pub use replay::{Request, Trace};
