//! The Redis protocol: parsing requests and encoding replies, in memory.
//!
//! [`request`] finds the [arguments](args) of a command in a connection's input without copying;
//! [`inline`] parses commands typed by hand; [`reply`] encodes replies in RESP2 or RESP3. Nothing
//! here uses sockets, so all of it can be tested and fuzzed.
//!
//! Source: the Redis serialization protocol specification, RESP2 and RESP3.

pub mod args;
pub mod inline;
pub(crate) mod lookahead;
pub mod number;
pub mod reply;
pub mod request;

pub use args::{Args, Span};
pub use reply::{Replies, RespVersion};
pub(crate) use request::is_http;
pub use request::{Limits, ParseStatus, Parser, ProtocolError};

/// Parses arbitrary bytes at once, and again in pieces, for fuzzing.
///
/// # Panics
/// If the results differ, or the parser uses more than a fixed multiple of its input in memory:
/// bugs of the parser.
pub fn fuzz_parse(bytes: &[u8]) {
    let whole = parse_in_pieces(bytes, bytes.len().max(1));
    for piece in [1, 2, 7] {
        assert_eq!(whole, parse_in_pieces(bytes, piece), "cut every {piece} bytes");
    }
}

/// Maximum memory per byte of input: an inline argument takes two bytes of input (itself and a
/// space), 16 bytes for its span in a list that may be half empty, and its own copy likewise.
/// Inline requests are limited to 64 KiB and in the number of arguments.
const MAX_MEMORY_PER_BYTE: usize = 18;

/// Commands in `bytes` when parsed in pieces of `piece` bytes, and the error that ended parsing, if
/// any.
///
/// # Panics
/// If the parser uses more than a fixed multiple of its input in memory.
pub fn parse_in_pieces(bytes: &[u8], piece: usize) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let limits = Limits { max_request_bytes: 1 << 20, max_arguments: 1 << 20, authenticated: true };
    let (mut parser, mut commands, mut start) = (Parser::default(), Vec::new(), 0);
    for end in (piece..bytes.len()).step_by(piece).chain([bytes.len()]) {
        loop {
            let input = &bytes[start..end];
            match parser.parse(input, &limits) {
                Ok(ParseStatus::Incomplete) => break,
                Ok(ParseStatus::Request { consumed }) => {
                    let args = parser.args(input);
                    commands.push(args.iter().map(<[u8]>::to_vec).collect());
                    start += consumed;
                }
                Err(error) => return (commands, Some(error)),
            }
        }
        assert!(
            parser.memory_bytes() <= 1024 + MAX_MEMORY_PER_BYTE * end,
            "held {}",
            parser.memory_bytes()
        );
    }
    (commands, None)
}
