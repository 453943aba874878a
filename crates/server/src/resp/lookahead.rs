//! Requests that follow each other in the input of connections, found before the first of them
//! runs.
//!
//! Only complete requests are found. A connection's own parser stays where it is, and meets the
//! requests again that are not taken.

use std::ops::Range;

use super::args::{Args, Span};
use super::request::{Limits, ParseStatus, Parser};

/// Consecutive requests of some inputs, and memory that is used again for the next ones.
#[derive(Debug, Default)]
pub(crate) struct Lookahead {
    parser: Parser,
    /// Arguments of all requests, as positions in their input.
    spans: Vec<Span>,
    requests: Vec<Request>,
}

/// One of the requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// Number of the command.
    pub(crate) command: usize,
    /// Its arguments in [`Lookahead::spans`].
    first_span: usize,
    end_span: usize,
    /// Position in the input behind it.
    pub(crate) end: usize,
}

/// Bounds of a lookahead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// The most requests.
    pub(crate) requests: usize,
    /// After this many bytes no further request is taken.
    pub(crate) bytes: usize,
}

impl Lookahead {
    /// Adds the request of a command at the start of the input, which ends at `end`, and those that
    /// follow it while `command_of` returns their commands. Returns where they are in
    /// [`requests`](Self::requests).
    pub(crate) fn collect(
        &mut self,
        (command, args, end): (usize, Args<'_>, usize),
        input: &[u8],
        limits: &Limits,
        bounds: Bounds,
        command_of: impl Fn(Args<'_>) -> Option<usize>,
    ) -> Range<usize> {
        let Lookahead { parser, spans, requests } = self;
        let first = requests.len();
        let mut push = |command, args: Args<'_>, start: usize, end| {
            let first_span = spans.len();
            let shifted = |span: &Span| Span { start: start + span.start, end: start + span.end };
            spans.extend(args.spans().iter().map(shifted));
            requests.push(Request { command, first_span, end_span: spans.len(), end });
            requests.len() - first
        };
        let (mut count, mut at) = (push(command, args, 0, end), end);
        while count < bounds.requests && at < bounds.bytes && input.get(at) == Some(&b'*') {
            let rest = &input[at..];
            let Ok(ParseStatus::Request { consumed }) = parser.parse(rest, limits) else {
                parser.restart();
                break;
            };
            let args = parser.args(rest);
            let Some(command) = command_of(args) else { break };
            count = push(command, args, at, at + consumed);
            at += consumed;
        }
        parser.shrink();
        first..requests.len()
    }

    /// The requests in order.
    pub(crate) fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// The arguments of a request in its input.
    pub(crate) fn args<'a>(&'a self, request: &Request, input: &'a [u8]) -> Args<'a> {
        Args::new(input, &self.spans[request.first_span..request.end_span])
    }

    /// Drops all requests, and the memory of a large one.
    pub(crate) fn clear(&mut self) {
        self.spans.clear();
        self.requests.clear();
        if self.spans.capacity() > 16 << 10 {
            self.spans = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { max_request_bytes: 1000, max_arguments: 9, authenticated: true };
    const BOUNDS: Bounds = Bounds { requests: 3, bytes: 1000 };

    /// The requests that are found, and the bytes that they take.
    fn find(input: &[u8], bounds: Bounds) -> (Vec<Vec<Vec<u8>>>, usize) {
        let mut parser = Parser::default();
        let Ok(ParseStatus::Request { consumed }) = parser.parse(input, &LIMITS) else {
            panic!("the first request is incomplete");
        };
        let mut lookahead = Lookahead::default();
        let take = |args: Args<'_>| (args.get(0) != Some(b"KEYS")).then_some(1);
        // What was not taken leaves no trace.
        let first = (0, parser.args(input), consumed);
        let before = lookahead.collect(first, input, &LIMITS, bounds, take);
        let found = lookahead.collect(first, input, &LIMITS, bounds, take);
        assert_eq!((before.start, before.end, found.len()), (0, found.start, before.len()));
        let words = |request| lookahead.args(request, input).iter().map(<[u8]>::to_vec).collect();
        let requests = &lookahead.requests()[found];
        (requests.iter().map(words).collect(), requests.last().map_or(0, |last| last.end))
    }

    const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
    const KEYS: &[u8] = b"*2\r\n$4\r\nKEYS\r\n$1\r\n*\r\n";

    #[test]
    fn consecutive_requests_are_found_up_to_the_first_that_is_not_taken() {
        let get = || vec![b"GET".to_vec(), b"a".to_vec()];
        assert_eq!(find(&[GET, GET, KEYS, GET].concat(), BOUNDS), (vec![get(), get()], 40));
        assert_eq!(find(&GET.repeat(5), BOUNDS), (vec![get(), get(), get()], 60));
        assert_eq!(find(&GET.repeat(5), Bounds { bytes: 21, ..BOUNDS }).0.len(), 2);
    }

    #[test]
    fn incomplete_invalid_and_inline_requests_end_it() {
        for rest in [&GET[..GET.len() - 1], b"*2\r\n$x\r\n", b"PING\r\n", b"*0\r\n", b""] {
            let input = [GET, rest].concat();
            let taken = find(&input, BOUNDS).0;
            // A request without arguments is one, but no command.
            assert_eq!(taken.len(), if rest == b"*0\r\n" { 2 } else { 1 }, "{rest:?}");
        }
    }
}
