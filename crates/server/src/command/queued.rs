//! A command with a copy of its arguments, to be run later: by EXEC, or when a key is written.

use crate::resp::{Args, Span};

/// A command to be run later.
pub(crate) struct QueuedCommand {
    /// Number of the command.
    pub(crate) command: usize,
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl QueuedCommand {
    pub(crate) fn new(command: usize, args: Args<'_>) -> Self {
        let mut bytes = Vec::with_capacity(args.iter().map(<[u8]>::len).sum());
        let mut spans = Vec::with_capacity(args.len());
        for arg in args.iter() {
            let start = bytes.len();
            bytes.extend_from_slice(arg);
            spans.push(Span { start, end: bytes.len() });
        }
        QueuedCommand { command, bytes, spans }
    }

    pub(crate) fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    /// Memory used, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of::<Self>() + self.spans.len() * size_of::<Span>()
    }
}
