//! The Redis protocol: requests in, replies out, both as bytes in memory.
//!
//! [`request`] finds the arguments of a command in a connection's input without copying them;
//! [`inline`] does so for commands typed by hand; [`reply`] writes answers in RESP2 or RESP3.
//! Nothing here touches a socket, so all of it can be tested and fuzzed as functions of bytes.
//!
//! Source: the Redis serialization protocol specification, RESP2 and RESP3.

pub mod inline;
pub mod number;
pub mod reply;
pub mod request;

pub use reply::{Protocol, Replies};
pub(crate) use request::is_http;
pub use request::{Args, Limits, Parser, Progress, ProtocolError, Span};

/// Parses arbitrary bytes as a fuzzer would: whole, and again cut in two at every step of a walk.
///
/// # Panics
/// If the two ways disagree, or the parser holds more than a fixed multiple of what it was given.
/// That is a bug in the parser.
pub fn fuzz_parse(bytes: &[u8]) {
    let whole = parse_in_pieces(bytes, bytes.len().max(1));
    for piece in [1, 2, 7] {
        assert_eq!(whole, parse_in_pieces(bytes, piece), "cut every {piece} bytes");
    }
}

/// Bytes held for each byte of input, at most: an inline argument takes two bytes of input (itself and
/// a space), 16 bytes for its span in a list that may be half empty, and its own copy likewise.
/// Inline requests are limited to 64 KiB and arguments in number, so this is small in all.
const MOST_HELD: usize = 18;

/// The commands in `bytes` when they come in pieces of `piece` bytes, and the error that ended
/// them if one did.
///
/// # Panics
/// If the parser holds more than a fixed multiple of what it was given.
pub fn parse_in_pieces(bytes: &[u8], piece: usize) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let limits = Limits { max_request_bytes: 1 << 20, max_arguments: 1 << 20, authenticated: true };
    let (mut parser, mut commands, mut start) = (Parser::default(), Vec::new(), 0);
    for end in (piece..bytes.len()).step_by(piece).chain([bytes.len()]) {
        loop {
            let input = &bytes[start..end];
            match parser.parse(input, &limits) {
                Ok(Progress::Incomplete) => break,
                Ok(Progress::Request { consumed }) => {
                    let args = parser.args(input);
                    commands.push(args.iter().map(<[u8]>::to_vec).collect());
                    start += consumed;
                }
                Err(error) => return (commands, Some(error)),
            }
        }
        assert!(parser.held_bytes() <= 1024 + MOST_HELD * end, "held {}", parser.held_bytes());
    }
    (commands, None)
}
