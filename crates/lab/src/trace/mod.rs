//! Requests that a store was asked, in a file: recorded, read, replayed.
//!
//! A trace is a text, a request a line, in the order in which they were answered:
//!
//! ```text
//! get KEY               a lookup
//! put KEY BYTES         a write of a value of so many bytes
//! del KEY               a removal
//! scan KEY [ENTRIES]    a walk over so many entries from there on (1 if it is not said)
//! @ SECONDS             the requests below came so long after the first
//! # …                   a comment
//! ```
//!
//! Bytes of a key outside of `!` to `~`, and the backslash, are written `\xHH`. What values hold is not
//! in a trace, nor when they expire, nor which writes were one batch.
//!
//! | module | one idea |
//! | --- | --- |
//! | `line` | a line, read and written |
//! | `file` | a file of them, line by line |
//! | `replay` | a trace in memory, to be asked again |
//! | `record` | an engine that writes down what it is asked |
//!
//! Invariant: a line that is malformed refuses the whole trace, by its number.
//!
//! Source: ours.

mod file;
mod line;
mod record;
pub(crate) mod replay;

pub use file::each_line;
pub use line::{Line, Verb};
pub use record::{Recorded, Recorder};
pub use replay::{Request, Trace};
