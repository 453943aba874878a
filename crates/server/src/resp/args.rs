//! Arguments of a command: spans of the input that holds them.

/// Position of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// Byte after the last.
    pub end: usize,
}

/// Arguments of one command, borrowed from the input. The first is the command's name.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// The parts of `bytes` described by `spans`.
    pub fn new(bytes: &'a [u8], spans: &'a [Span]) -> Self {
        Args { bytes, spans }
    }

    /// Number of arguments.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Where the arguments are in the bytes that hold them.
    pub(crate) fn spans(&self) -> &'a [Span] {
        self.spans
    }

    /// The argument at `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| &self.bytes[span.start..span.end])
    }

    /// The arguments in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let bytes = self.bytes;
        self.spans.iter().map(move |span| &bytes[span.start..span.end])
    }

    /// The first `count` arguments, or all if there are fewer.
    pub fn up_to(&self, count: usize) -> Args<'a> {
        Args { bytes: self.bytes, spans: self.spans.get(..count).unwrap_or(self.spans) }
    }

    /// The arguments from `index` on.
    pub fn from(&self, index: usize) -> Args<'a> {
        Args { bytes: self.bytes, spans: self.spans.get(index..).unwrap_or_default() }
    }
}

impl std::ops::Index<usize> for Args<'_> {
    type Output = [u8];

    /// The argument at `index`; a command's arity is checked before its handler runs.
    fn index(&self, index: usize) -> &[u8] {
        let span = self.spans[index];
        &self.bytes[span.start..span.end]
    }
}
